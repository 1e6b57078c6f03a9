package netnstest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NS is a network namespace that a test owns.
type NS struct {
	t  testing.TB
	fd int // keeps the namespace alive while the test runs
}

// Option changes what New makes.
type Option func(*options)

type options struct{ mounts bool }

// PrivateMounts also gives the test a mount namespace with its own /run and a
// /sys that shows the links of the new network namespace.
func PrivateMounts() Option { return func(o *options) { o.mounts = true } }

// New moves the calling goroutine, which must be the test's, into a fresh network namespace with the loopback
// interface up. The goroutine stays locked to its thread, which ends with the test. It needs root and fails the
// test otherwise.
func New(t testing.TB, opts ...Option) *NS {
	t.Helper()
	var o options
	for _, f := range opts {
		f(&o)
	}
	runtime.LockOSThread() // never unlocked: the thread must not be reused
	flags := unix.CLONE_NEWNET
	if o.mounts {
		flags |= unix.CLONE_NEWNS
	}
	if err := unix.Unshare(flags); err != nil {
		t.Fatalf("make a network namespace (this test needs root): %v", err)
	}
	if o.mounts {
		privateMounts(t)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open the network namespace: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatalf("set the loopback up: %v", err)
	}
	return &NS{t: t, fd: fd}
}

func privateMounts(t testing.TB) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("make mounts private: %v", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatalf("mount /run: %v", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		t.Fatalf("mount /sys: %v", err)
	}
}

// FD returns a file descriptor of the namespace, valid until the test ends.
func (ns *NS) FD() int { return ns.fd }

// Go runs f on a goroutine inside the namespace. The channel is closed when f
// has returned. f must not call t.Fatal.
func (ns *NS) Go(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // as in New
		if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
			ns.t.Errorf("enter the network namespace: %v", err)
			return
		}
		f()
	}()
	return done
}

// Run runs a command inside and returns its output without the last newline. The test fails if the command does.
func (ns *NS) Run(name string, args ...string) string {
	ns.t.Helper()
	out, err := ns.Try(name, args...)
	if err != nil {
		ns.t.Fatal(err)
	}
	return out
}

// Try is like Run, for a command that may fail.
func (ns *NS) Try(name string, args ...string) (string, error) {
	return command("", nil, name, args...)
}

// Input is like Run, with text on the command's standard input.
func (ns *NS) Input(input, name string, args ...string) string {
	ns.t.Helper()
	out, err := command(input, nil, name, args...)
	if err != nil {
		ns.t.Fatal(err)
	}
	return out
}

func command(input string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	out := strings.TrimRight(stdout.String(), "\n")
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return out, nil
}

// Veth creates a veth pair with these names, both up.
func (ns *NS) Veth(a, b string) {
	ns.t.Helper()
	ns.Run("ip", "link", "add", a, "type", "veth", "peer", "name", b)
	ns.Run("ip", "link", "set", a, "up")
	ns.Run("ip", "link", "set", b, "up")
}
