package machine

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestCableGone removes a cable that disappears between lookup and removal, as
// happens when the machine at its other end dies.
func TestCableGone(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a namespace, which the quick tests do not")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "far"}
			veth.Name = "near"
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
			found, err := netlink.LinkByName("near")
			if err != nil {
				return err
			}
			return errors.Join(removeCable(found), removeCable(found), unplug("near"))
		}()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSignalGone distinguishes a process that has ended from one that cannot be signaled.
func TestSignalGone(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := p.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a process that has ended: %v", err)
	}
}
