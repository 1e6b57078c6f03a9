// Package tcp opens TCP connections that do not outlive an outage of the network.
//
// The kernel repeats what is not acknowledged after pauses that double: after an outage, a connection may be silent for as
// long again, and minutes after a long one. A new connection works at once.
//
// Callers: health, kube.
package tcp

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// idle is after how long without traffic the other side has to acknowledge that it is there, and again is the
	// time until it is asked again.
	idle  = 2 * time.Second
	again = time.Second
	// timeout is that for everything until there is a connection: several addresses may be tried, and several
	// name servers may have to be asked before.
	timeout = 30 * time.Second
)

// Dialer returns a dialer whose connections, and attempts to connect to an address, are broken when the other side has
// acknowledged nothing for the given time.
func Dialer(unacknowledged time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		// With TCP_USER_TIMEOUT, that is the limit, and not the number of times.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idle, Interval: again},
		Control: func(_, _ string, c syscall.RawConn) error {
			var errOption error
			err := c.Control(func(fd uintptr) {
				errOption = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
			})
			return errors.Join(err, errOption)
		},
	}
}
