package master

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestFullDiskOfSouthbound: what ovn-northd could not write because the disk of the southbound database was full is written
// when there is room again, although nothing else happens.
func TestFullDiskOfSouthbound(t *testing.T) {
	north, south := ovsdbtest.StartNB(t), ovsdbtest.StartSB(t, ovsdbtest.WithSmallDisk())
	client, err := ovsdb.Connect(t.Context(), ovsdb.Config{Address: north.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := ovsdb.NewWriter(client).SetGlobal(t.Context(), globalName, globalOptions, globalDefaults); err != nil {
		t.Fatal(err)
	}
	said := startNorthd(t, north, south)
	north.Nbctl("--wait=sb", "sync")

	empty := south.FillDisk()
	north.Nbctl("ls-add", "late") // one transaction, so ovn-northd tries once
	said("OVNSB commit failed")
	empty()
	// It also looks twice a minute by itself, which is too late.
	said("sending inactivity probe")
	eventually.True(t, "the southbound database to have the switch", func() bool {
		out, err := exec.Command("ovn-sbctl", "--timeout=10", "--db="+south.Socket(), "--bare", "--columns=external_ids", "list", "Datapath_Binding").Output()
		return err == nil && strings.Contains(string(out), "name=late")
	})
}

// startNorthd runs ovn-northd until the test ends. What it returns waits for a message of it.
func startNorthd(t *testing.T, north, south *ovsdbtest.Server) (said func(message string)) {
	t.Helper()
	read, write := io.Pipe()
	cmd := exec.Command("ovn-northd", "-vconsole:info", "-vconsole:reconnect:dbg", "-vsyslog:off", "-vfile:off",
		"--unixctl="+filepath.Join(t.TempDir(), "ctl"), "--ovnnb-db="+north.Socket(), "--ovnsb-db="+south.Socket())
	cmd.Stderr = write
	if err := cmd.Start(); err != nil {
		t.Fatalf("start ovn-northd: %v", err)
	}
	t.Cleanup(func() {
		_ = read.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := make(chan string, 10000)
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return func(message string) {
		t.Helper()
		eventually.True(t, "ovn-northd to say "+message, func() bool {
			for {
				select {
				case line := <-lines:
					if strings.Contains(line, message) {
						return true
					}
				default:
					return false
				}
			}
		})
	}
}
