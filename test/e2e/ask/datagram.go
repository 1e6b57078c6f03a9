package ask

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// maxDatagram is more than any datagram holds.
const maxDatagram = 1 << 16

// ask sends a datagram and writes the answer. A refusal is an error at once.
func ask(ctx context.Context, network Namespace, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("ask", flag.ContinueOnError)
	timeout := flags.Duration("timeout", defaultTimeout, "how long to wait for the answer")
	size := flags.Int("size", 8, "bytes of the question and at least of the answer")
	from := flags.Int("from", 0, "source port")
	whole := flags.Bool("whole", false, "forbid fragments")
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
	conn, err := network.connect(to.String(), func() (net.Conn, error) { return dialer.DialContext(ctx, "udp", to.String()) })
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(*timeout)); err != nil {
		return err
	}
	if *whole {
		if err := forbidFragments(conn.(*net.UDPConn), to.Addr().Is6()); err != nil {
			return err
		}
	}
	if _, err := conn.Write(make([]byte, *size)); err != nil {
		return tooLarge(conn.(*net.UDPConn), to.Addr().Is6(), err)
	}
	answer := make([]byte, maxDatagram)
	n, err := conn.Read(answer)
	if err != nil {
		return tooLarge(conn.(*net.UDPConn), to.Addr().Is6(), err)
	}
	if n < *size {
		return fmt.Errorf("asked with %d bytes, the answer has %d", *size, n)
	}
	fmt.Fprintln(out, string(bytes.TrimRight(answer[:n], " ")))
	return nil
}

// forbidFragments makes sending a datagram that does not fit an error.
func forbidFragments(conn *net.UDPConn, is6 bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER
	if is6 {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER
	}
	if e := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, option, syscall.IP_PMTUDISC_DO) }); e != nil {
		return e
	}
	return err
}

// tooLarge adds the known path MTU to the error of a datagram that did not fit.
func tooLarge(conn *net.UDPConn, is6 bool, cause error) error {
	raw, err := conn.SyscallConn()
	if err != nil || !errors.Is(cause, syscall.EMSGSIZE) {
		return cause
	}
	level, option, mtu := syscall.IPPROTO_IP, syscall.IP_MTU, 0
	if is6 {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_MTU
	}
	if e := raw.Control(func(fd uintptr) { mtu, err = syscall.GetsockoptInt(int(fd), level, option) }); e != nil || err != nil {
		return cause
	}
	return fmt.Errorf("%w: the path takes %d", cause, mtu)
}

// steady is how many answers in a row must come from one server until chase is satisfied.
const steady = 50

// chase sends datagrams from one port until answers come from one server only. It ignores refusals:
// they are expected while no server is there.
func chase(ctx context.Context, network Namespace, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("chase", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 20*time.Second, "how long to go on")
	every := flags.Duration("every", 10*time.Millisecond, "time between datagrams")
	from := flags.Int("from", 0, "source port")
	until := flags.String("until", "", "name of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("usage: probe chase ADDR:PORT")
	}
	to, err := netip.ParseAddrPort(flags.Arg(0))
	if err != nil {
		return err
	}
	conn, err := network.connect(to.String(), func() (net.Conn, error) {
		return net.DialUDP("udp", &net.UDPAddr{Port: *from}, net.UDPAddrFromAddrPort(to))
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	end, answer, last := time.Now().Add(*timeout), make([]byte, maxDatagram), "nobody"
	for next, row := time.Now(), 0; row < steady; {
		if now := time.Now(); ctx.Err() != nil || now.After(end) {
			return fmt.Errorf("the last to answer was %s, %d of %d times in a row", last, row, steady)
		} else if !now.Before(next) {
			_, _ = conn.Write([]byte("who?"))
			next = now.Add(*every)
		}
		if err := conn.SetReadDeadline(next); err != nil {
			return err
		}
		n, err := conn.Read(answer)
		if err != nil {
			continue
		}
		if last, _, _ = strings.Cut(string(answer[:n]), " "); last == *until {
			row++
		} else {
			row = 0
		}
	}
	fmt.Fprintln(out, last)
	return nil
}
