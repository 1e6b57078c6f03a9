package ask

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialSCTP connects to an address and port. The package net knows no SCTP, but it handles sockets of type SOCK_STREAM
// alike: it takes one made here for TCP.
func dialSCTP(ctx context.Context, address string, timeout time.Duration) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
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
