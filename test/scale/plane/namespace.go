package plane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside is the environment variable that is set for the process in the namespaces.
const inside = "SCALE_INSIDE"

// Inside reports whether this process runs in separate namespaces.
func Inside() bool { return os.Getenv(inside) != "" }

// Enter runs this program again with the same arguments, in separate namespaces, and
// returns its exit status. All processes that it starts end with it, however it ends, because it is
// the first process of its PID namespace.
func Enter() (int, error) {
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("make namespaces (this needs root): %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) {
		return max(1, status.ExitCode()), nil
	}
	return 0, err
}

// Furnish prepares the namespaces: /proc shows the processes in them, /run is empty, and all addresses
// of the given ranges are local, so that probes of nodes are answered.
func Furnish(ranges ...netip.Prefix) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// Masters keep their identity there.
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("start loopback: %w", err)
	}
	for _, r := range ranges {
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(r), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("make %s local: %w", r, err)
		}
	}
	return nil
}

// Silence makes addresses stop answering, or answer again.
func Silence(silent bool, addrs ...netip.Addr) error {
	for _, a := range addrs {
		route := &netlink.Route{Dst: ipNet(netip.PrefixFrom(a, a.BitLen())), Type: unix.RTN_BLACKHOLE, Table: unix.RT_TABLE_LOCAL}
		change := netlink.RouteReplace
		if !silent {
			change = netlink.RouteDel
		}
		if err := change(route); err != nil {
			return fmt.Errorf("silence %s: %w", a, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
