package main

import (
	"context"
	"flag"
	"net"
	"time"
)

// send sends datagrams continuously, to each address from one socket that stays open and from a new
// one each time: this shows what an address translation does to connections that were open when it
// came or went, as well as to new ones.
func send(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("send", flag.ContinueOnError)
	to := flags.String("to", "", "addresses and ports, separated by commas")
	every := flags.Duration("every", 40*time.Millisecond, "time between two rounds")
	after := flags.Duration("after", 0, "time before the first round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	select {
	case <-time.After(*after):
	case <-ctx.Done():
		return nil
	}
	list, err := targets(*to)
	if err != nil {
		return err
	}
	lasting := make([]net.Conn, len(list))
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		for i, t := range list {
			if lasting[i] == nil {
				if conn, err := net.Dial("udp", t); err == nil {
					lasting[i] = conn
				}
			}
			fresh, err := net.Dial("udp", t)
			if err == nil {
				// Refusals and missing routes are expected while nodes come and go.
				_, _ = fresh.Write([]byte("fresh"))
				fresh.Close()
			}
			if lasting[i] != nil {
				_, _ = lasting[i].Write([]byte("lasting"))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
