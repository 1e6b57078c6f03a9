package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// listenSCTP listens on a port, in both families. The listener is nil if the kernel has no SCTP. The package net
// knows no SCTP, but it handles sockets of type SOCK_STREAM alike: it takes one made here for TCP.
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
