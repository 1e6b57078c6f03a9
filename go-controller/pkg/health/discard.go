package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// DiscardPort is the TCP port that Discard connects to. Nothing needs to listen there: a refused
// connection proves as well as an answer that the node's network stack is alive.
const DiscardPort = 9

// Discard is the Prober that opens a TCP connection to DiscardPort.
type Discard struct {
	// Port replaces DiscardPort if it is not 0.
	Port uint16
}

// faults are errors on our own side: no probe was sent.
var faults = []error{
	syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE,
	syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EACCES, syscall.EAFNOSUPPORT,
}

// Probe implements Prober.
func (d Discard) Probe(ctx context.Context, node string, addr netip.Addr) error {
	port := d.Port
	if port == 0 {
		port = DiscardPort
	}
	dialer := net.Dialer{KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, port).String())
	if err == nil {
		return conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	for _, f := range faults {
		if errors.Is(err, f) {
			return fmt.Errorf("probe node %s: %w: %w", node, ErrFault, err)
		}
	}
	return fmt.Errorf("probe node %s: %w", node, err)
}
