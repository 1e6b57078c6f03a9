package main

import (
	"context"
	"flag"
	"net"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// speak serves on a port, by TCP and UDP, and from the same port sends unsolicited datagrams and
// attempts to connect to others. It does not exit when asked to, like a server with open
// connections.
func speak(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("speak", flag.ContinueOnError)
	port := flags.Int("port", 8080, "port to serve on and to speak from")
	to := flags.String("to", "", "addresses and ports, separated by commas")
	every := flags.Duration("every", 50*time.Millisecond, "time between two rounds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := targets(*to)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTERM)
	shared := net.ListenConfig{Control: sharePort}
	at := net.JoinHostPort("", strconv.Itoa(*port))
	echo, err := shared.Listen(ctx, "tcp", at)
	if err != nil {
		return err
	}
	go echoAll(echo)
	datagrams, err := shared.ListenPacket(ctx, "udp", at)
	if err != nil {
		return err
	}
	go answerAll(datagrams)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: *port}, Control: sharePort, Timeout: 4 * *every}
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		for _, t := range list {
			peer, err := net.ResolveUDPAddr("udp", t)
			if err != nil {
				return err
			}
			// Refusals and missing routes are expected while nodes come and go.
			_, _ = datagrams.WriteTo([]byte("spoken"), peer)
			go func() {
				if conn, err := dialer.DialContext(ctx, "tcp", t); err == nil {
					conn.Close()
				}
			}()
		}
		<-tick.C
	}
}

// sharePort lets several sockets use the same port.
func sharePort(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
			if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1); err != nil {
				failed = err
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}
