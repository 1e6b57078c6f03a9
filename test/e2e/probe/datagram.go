package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// maxDatagram is more than any datagram holds.
const maxDatagram = 1 << 16

// answerAll says by UDP what /who says, filled up with blanks to the size of the
// question: what is too large to arrive is too large to come back, too.
func answerAll(conn net.PacketConn) {
	in := make([]byte, maxDatagram)
	for {
		n, client, err := conn.ReadFrom(in)
		if err != nil {
			return
		}
		out := []byte(who(client.String()))
		out = append(out, bytes.Repeat([]byte{' '}, max(0, n-len(out)))...)
		_, _ = conn.WriteTo(out, client)
	}
}

// ask sends one datagram and prints the answer. A refusal is an error at once.
func ask(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ask", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 3*time.Second, "how long to wait for the answer")
	size := flags.Int("size", 8, "bytes of the question and at least of the answer")
	from := flags.Int("from", 0, "source port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("usage: probe ask ADDR:PORT")
	}
	to, err := netip.ParseAddrPort(flags.Arg(0))
	if err != nil {
		return err
	}
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: *from}, Timeout: *timeout}
	conn, err := dialer.DialContext(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(*timeout)); err != nil {
		return err
	}
	if _, err := conn.Write(make([]byte, *size)); err != nil {
		return err
	}
	answer := make([]byte, maxDatagram)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if n < *size {
		return fmt.Errorf("asked with %d bytes, the answer has %d", *size, n)
	}
	fmt.Println(string(bytes.TrimRight(answer[:n], " ")))
	return nil
}
