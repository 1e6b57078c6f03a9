package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// retransmitLimit is the longest time after which TCP sends again what was not
	// acknowledged. By itself it waits twice as long each time, up to two minutes, and
	// where both ends have data under way one may wait for the other: a connection that
	// lost packets for two seconds can stand for fourteen then, which tells nothing about
	// the network any more.
	retransmitLimit = time.Second
	// tcpRTOMaxMS is TCP_RTO_MAX_MS, which Linux has since 6.15.
	tcpRTOMaxMS = 44
)

// limitRetransmit sets retransmitLimit for a socket and for those that it accepts. Older
// kernels do not have the option, and keep their times.
func limitRetransmit(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMaxMS, int(retransmitLimit.Milliseconds()))
	})
}
