package sb

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// sbctl runs ovn-sbctl against s.
func sbctl(t *testing.T, s *ovsdbtest.Server, args ...string) string {
	t.Helper()
	out, err := exec.Command("ovn-sbctl", append([]string{"--timeout=20", "--db=" + s.Socket()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ovn-sbctl %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// keep runs an EncapPort of chassis c1 until the test ends or stop is called.
func keep(t *testing.T, s *ovsdbtest.Server, port int) (stop func()) {
	t.Helper()
	return keepOf(t, s, port, func() string { return "c1" })
}

func keepOf(t *testing.T, s *ovsdbtest.Server, port int, chassis func() string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	e := EncapPort{
		Database: nbovsdb.Config{Address: s.Socket()},
		Chassis:  func(context.Context) (string, error) { return chassis(), nil },
		Port:     port,
	}
	go func() { done <- e.Run(ctx) }()
	stop = func() {
		cancel()
		if err := eventually.Receive(t, "Run to return", done); err != nil {
			t.Errorf("Run: %v", err)
		}
		done <- nil // lets a second stop return, too
	}
	t.Cleanup(stop)
	return stop
}

func eventuallyOptions(t *testing.T, s *ovsdbtest.Server, chassis, want string) {
	t.Helper()
	eventually.Succeeds(t, "options of "+chassis, func() error {
		got := sbctl(t, s, "--bare", "--columns=options", "find", "Encap", "chassis_name="+chassis)
		if got != want {
			return fmt.Errorf("options %q, want %q", got, want)
		}
		return nil
	})
}

func TestEncapPort(t *testing.T) {
	s := ovsdbtest.StartSB(t)
	sbctl(t, s, "chassis-add", "other", "geneve", "10.0.0.2")
	stop := keep(t, s, 16081)
	// The chassis registers after us, with an option that is not ours.
	sbctl(t, s, "chassis-add", "c1", "geneve", "10.0.0.1")
	eventuallyOptions(t, s, "c1", "csum=true dst_port=16081")
	eventuallyOptions(t, s, "other", "csum=true")

	sbctl(t, s, "chassis-del", "c1")
	sbctl(t, s, "chassis-add", "c1", "geneve", "10.0.0.9")
	eventuallyOptions(t, s, "c1", "csum=true dst_port=16081")

	s.Kill()
	s.Start()
	sbctl(t, s, "clear", "Encap", sbctl(t, s, "--bare", "--columns=_uuid", "find", "Encap", "chassis_name=c1"), "options")
	eventuallyOptions(t, s, "c1", "dst_port=16081")
	eventuallyNoWait(t)
	stop()

	// The default needs no option, and the option of an earlier configuration is removed.
	keep(t, s, DefaultPort)
	eventuallyOptions(t, s, "c1", "")
}

// eventuallyNoWait waits until the tunnel port waits for nothing any more.
func eventuallyNoWait(t *testing.T) {
	t.Helper()
	eventually.Succeeds(t, "no wait of the tunnel port", func() error {
		for _, w := range waits.All() {
			if w.Part == "tunnel port" {
				return errors.New(w.String())
			}
		}
		return nil
	})
}

// TestEncapPortOfRenamedChassis: the host gets another identity while the connection lasts, and ovn-controller registers
// another chassis.
func TestEncapPortOfRenamedChassis(t *testing.T) {
	s := ovsdbtest.StartSB(t)
	var name atomic.Value
	name.Store("c1")
	keepOf(t, s, 16081, func() string { return name.Load().(string) })
	sbctl(t, s, "chassis-add", "c1", "geneve", "10.0.0.1")
	eventuallyOptions(t, s, "c1", "csum=true dst_port=16081")
	name.Store("c2")
	sbctl(t, s, "chassis-del", "c1")
	sbctl(t, s, "chassis-add", "c2", "geneve", "10.0.0.1")
	eventuallyOptions(t, s, "c2", "csum=true dst_port=16081")
	eventuallyNoWait(t)
}

// TestOwnEncapOnly: a node reads its own rows only, however many nodes there are, and learns of a row that is added
// or that becomes its own.
func TestOwnEncapOnly(t *testing.T) {
	s := ovsdbtest.StartSB(t)
	for i := range 10 {
		sbctl(t, s, "chassis-add", fmt.Sprintf("other%d", i), "geneve", fmt.Sprintf("10.0.0.%d", i+1))
	}
	changed := make(chan struct{}, 100)
	c, err := EncapPort{Database: nbovsdb.Config{Address: s.Socket()}}.follow(t.Context(), "c1", func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	addresses := func() (found []string) {
		var rows []encap
		if err := c.List(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			found = append(found, r.IP)
		}
		return found
	}
	if got := addresses(); len(got) > 0 {
		t.Errorf("read rows of others: %v", got)
	}
	sbctl(t, s, "chassis-add", "c1", "geneve", "10.0.1.1")
	eventually.Receive(t, "the own row", changed)
	sbctl(t, s, "set", "Encap", sbctl(t, s, "--bare", "--columns=_uuid", "find", "Encap", "chassis_name=other3"), "chassis_name=c1")
	eventually.Receive(t, "the row that is its own now", changed)
	got := addresses()
	if slices.Sort(got); !slices.Equal(got, []string{"10.0.0.4", "10.0.1.1"}) {
		t.Errorf("read %v", got)
	}
}
