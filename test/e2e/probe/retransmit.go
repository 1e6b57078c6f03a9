package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// retransmitLimit is the longest time between TCP retransmissions. By default TCP doubles the
	// time with each one, up to two minutes, and when both ends have data in flight one may wait
	// for the other: a connection that lost packets for two seconds can then stall for fourteen,
	// which says nothing about the network any more.
	retransmitLimit = time.Second
	// tcpRTOMaxMS is TCP_RTO_MAX_MS, new in Linux 6.15.
	tcpRTOMaxMS = 44
)

// limitRetransmit sets retransmitLimit for a socket and for those that it accepts. Older kernels
// lack the option and keep their default.
func limitRetransmit(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMaxMS, int(retransmitLimit.Milliseconds()))
	})
}
