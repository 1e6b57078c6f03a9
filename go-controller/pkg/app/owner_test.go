package app

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit/auditfile"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// limited runs a function with no other capabilities than the given ones.
func limited(t *testing.T, run func() error, capabilities ...uint) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends
		var have [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capget(&header, &have[0]); err != nil {
			done <- err
			return
		}
		have[0].Effective, have[1].Effective = 0, 0
		for _, c := range capabilities {
			have[0].Effective |= 1 << c
		}
		if err := unix.Capset(&header, &have[0]); err != nil {
			done <- err
			return
		}
		done <- run()
	}()
	return eventually.Receive(t, "an end", done)
}

// TestOwnerOfLog: a file that belongs to somebody else is rotated, and the new one belongs to the same user, who reads it. A
// master has the necessary capabilities: see the Deployment.
func TestOwnerOfLog(t *testing.T) {
	const somebody = 1234
	for _, c := range []struct {
		what         string
		capabilities []uint
		fails        bool
	}{
		{"those of a master", []uint{unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN}, false},
		{"fewer", []uint{unix.CAP_DAC_OVERRIDE}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "somebody")
			path := filepath.Join(dir, "audit.log")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600), os.Chown(dir, somebody, somebody), os.Chown(path, somebody, somebody)); err != nil {
				t.Fatal(err)
			}
			err := limited(t, func() error {
				s, err := auditfile.Open(path, 8, 1)
				if err != nil {
					return err
				}
				if _, err := s.Write([]byte("one\n")); err != nil {
					return err
				}
				return s.Rotate()
			}, c.capabilities...)
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if s, ok := info.Sys().(*syscall.Stat_t); !c.fails && (!ok || s.Uid != somebody || s.Gid != somebody || info.Mode().Perm() != 0o600) {
				t.Errorf("%+v", info.Sys())
			}
		})
	}
}
