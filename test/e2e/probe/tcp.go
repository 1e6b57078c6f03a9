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
	// congestionControl is one that every kernel has and that sends as soon as acknowledgements
	// arrive. BBR, which is the default of some machines, paces packets by the rate of the last
	// seconds: after an outage of two seconds it may send nothing for eight more, although every
	// packet would arrive.
	congestionControl = "reno"
)

// unpaced sets congestionControl for a TCP socket and for those that it accepts. A socket keeps its default if the kernel
// refuses, as it does without CAP_NET_ADMIN if net.ipv4.tcp_allowed_congestion_control lacks it, or if the
// socket is of a protocol without that option, as MPTCP was: that may prolong outages, but is no reason not to run.
func unpaced(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestionControl)
	})
}

// limitRetransmit also sets retransmitLimit. Older kernels lack that option and keep their default.
func limitRetransmit(network, address string, c syscall.RawConn) error {
	if err := unpaced(network, address, c); err != nil {
		return err
	}
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMaxMS, int(retransmitLimit.Milliseconds()))
	})
}
