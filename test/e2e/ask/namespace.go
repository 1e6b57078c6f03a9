package ask

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is the path of a network namespace, such as /proc/PID/ns/net; empty for that of this process. It is a
// path and not an open file, which would keep the interfaces of a deleted pod.
type Namespace string

// Do calls f on a thread that is in the namespace. A socket remains in the namespace in which f
// makes it. Goroutines that f starts are not in the namespace.
func (n Namespace) Do(f func() error) error {
	if n == "" {
		return f()
	}
	result := make(chan error, 1)
	go func() { result <- n.do(f) }()
	return <-result
}

// do is called on a goroutine of its own: if there is no way back from the namespace, the goroutine stays locked
// to its thread, which ends with it.
func (n Namespace) do(f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace of this process: %w", err)
	}
	defer unix.Close(home)
	if err := n.enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// enter moves the calling thread into the namespace.
func (n Namespace) enter() error {
	there, err := unix.Open(string(n), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n, err)
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n, err)
	}
	return nil
}

// connect calls dial, which connects to an address and port, in the namespace. Another namespace than that of this
// process has its own name servers and interfaces, which package net would not use.
func (n Namespace) connect(address string, dial func() (net.Conn, error)) (conn net.Conn, err error) {
	if to, err := netip.ParseAddrPort(address); n != "" && (err != nil || to.Addr().Zone() != "") {
		return nil, fmt.Errorf("%s is not an IP address without a zone and a port", address)
	}
	err = n.Do(func() (err error) {
		conn, err = dial()
		return err
	})
	return conn, err
}
