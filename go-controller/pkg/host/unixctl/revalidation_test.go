package unixctl

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestAwaitRevalidation: it ends when ovs-vswitchd answers, and after a while if that refuses, which it does as long as it has datapaths
// of two types. Without ovs-vswitchd it fails.
func TestAwaitRevalidation(t *testing.T) {
	defer func(d time.Duration) { blindWait = d }(blindWait)
	for name, c := range map[string]struct {
		reply  map[string]any
		waited bool
	}{
		"answered": {map[string]any{"id": 0, "result": "", "error": nil}, false},
		"refused":  {map[string]any{"id": 0, "result": nil, "error": "can't wait on multiple udpifs."}, true},
	} {
		blindWait = 50 * time.Millisecond
		d := Daemon{RunDir: t.TempDir(), Name: "ovs-vswitchd"}
		if err := d.AwaitRevalidation(t.Context()); err == nil {
			t.Errorf("%s: no error without ovs-vswitchd", name)
		}
		asked := answer(t, d, c.reply)
		begun := time.Now()
		if err := d.AwaitRevalidation(t.Context()); err != nil || !asked.Load() {
			t.Errorf("%s: %v, asked: %t", name, err, asked.Load())
		}
		if c.waited && time.Since(begun) < blindWait {
			t.Errorf("%s: did not wait", name)
		}
	}
}

// answer makes the daemon give the reply to everything.
func answer(t *testing.T, d Daemon, reply map[string]any) *atomic.Bool {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.RunDir, d.Name+".pid"), []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(d.RunDir, d.Name+".7.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var asked atomic.Bool
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var request struct{ Method string }
			if json.NewDecoder(conn).Decode(&request) == nil && request.Method == "revalidator/wait" {
				asked.Store(true)
			}
			if err := json.NewEncoder(conn).Encode(reply); err != nil {
				t.Error(err)
			}
			conn.Close()
		}
	}()
	return &asked
}
