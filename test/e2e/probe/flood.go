package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"time"
)

// flood sends datagrams as fast as it can and prints how many. More may be sent than arrive: only the receiver
// can tell what the path carries.
func flood(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("flood", flag.ContinueOnError)
	to := flags.String("to", "", "address and port")
	length := flags.Duration("for", 3*time.Second, "how long to send")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := net.Dial("udp", *to)
	if err != nil {
		return err
	}
	defer conn.Close()
	const burst = 16 // between two looks at the clock
	datagram, sent := make([]byte, 64), 0
	for end := time.Now().Add(*length); time.Now().Before(end) && ctx.Err() == nil; {
		for range burst {
			// Full queues and refusals are expected.
			if _, err := conn.Write(datagram); err == nil {
				sent++
			}
		}
	}
	fmt.Println(sent)
	return nil
}
