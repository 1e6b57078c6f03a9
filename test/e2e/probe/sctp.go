package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The package net knows no SCTP, but it handles sockets of type SOCK_STREAM alike: it takes those
// made here for TCP.

// listenSCTP listens on a port, in both families. The listener is nil if the kernel has no SCTP.
func listenSCTP(port int) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make an SCTP socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close() // the listener has a copy
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: port}); err != nil {
		return nil, fmt.Errorf("bind SCTP port %d: %w", port, err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		return nil, fmt.Errorf("listen at SCTP port %d: %w", port, err)
	}
	return net.FileListener(file)
}

// dialSCTP connects to an address and port.
func dialSCTP(address string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	family, sockaddr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())})
	if to.Addr().Is4() {
		family, sockaddr = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, fmt.Errorf("make an SCTP socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "sctp")
	defer file.Close() // the connection has a copy
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return nil, fmt.Errorf("limit the time to connect: %w", err)
	}
	if err := unix.Connect(fd, sockaddr); err != nil {
		return nil, fmt.Errorf("connect to %s by SCTP: %w", address, err)
	}
	return net.FileConn(file)
}
