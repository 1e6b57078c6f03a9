package app

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// TestSilentDaemons: a daemon that does not answer, or hangs, is reported by name until it answers.
func TestSilentDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mended atomic.Bool
		checks := map[string]func(context.Context) error{
			"ovs-vswitchd": func(context.Context) error { return nil },
			"ovn-controller": func(ctx context.Context) error {
				if mended.Load() {
					return nil
				}
				<-ctx.Done()
				return errors.New("no answer")
			},
		}
		ended := make(chan error, 1)
		go func() { ended <- watchDaemons(ctx, checks) }()
		<-time.After(3 * daemonInterval)
		synctest.Wait()
		var told []string
		for _, w := range waits.All() {
			told = append(told, w.Reason+" "+w.String())
		}
		if got := strings.Join(told, "\n"); !strings.HasPrefix(got, `WaitingForDaemon node "ovn-controller" waits for an answer: no answer (since `) || len(told) != 1 {
			t.Errorf("told: %q", got)
		}
		mended.Store(true)
		<-time.After(3 * daemonInterval)
		synctest.Wait()
		if all := waits.All(); len(all) > 0 {
			t.Errorf("when all answer: %v", all)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// daemon answers on a control socket like a daemon of OVS or OVN.
func daemon(t *testing.T, dir, name string) (stop func()) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name+".pid"), []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, name+".7.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, `{"id":0,"result":"`+name+` 3.1","error":null}`)
		}
	}()
	return func() { _ = l.Close() }
}

// TestDaemons: a node is healthy if each of the daemons needed for forwarding answers.
func TestDaemons(t *testing.T) {
	// Not t.TempDir: a socket's path is limited to 107 bytes.
	dirs := map[string]string{}
	for _, name := range []string{"ovs-vswitchd", "ovn-controller"} {
		dir, err := os.MkdirTemp("", "run")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		dirs[name] = dir
	}
	checks := daemonChecks(dirs["ovs-vswitchd"], dirs["ovn-controller"])
	if len(checks) != len(dirs) {
		t.Errorf("%d checks", len(checks))
	}
	for name, dir := range dirs {
		check, ok := checks[name]
		if !ok {
			t.Errorf("nobody asks %s", name)
			continue
		}
		if err := check(t.Context()); err == nil {
			t.Errorf("%s is well before it runs", name)
		}
		stop := daemon(t, dir, name)
		if err := check(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		if err := check(t.Context()); err == nil {
			t.Errorf("%s is well after its end", name)
		}
	}
}
