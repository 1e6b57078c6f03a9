package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/ask"
)

// watch gets a URL repeatedly, each time over a new connection, and prints the time and the body of
// every answer: the time between two lines is how long there was none. It ends when standard input
// is closed.
func watch(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	every := flags.Duration("every", 50*time.Millisecond, "time between two attempts")
	timeout := flags.Duration("timeout", 250*time.Millisecond, "how long to wait for an answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("usage: probe watch URL")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	server := ask.HTTP{Timeout: *timeout}
	for tick := time.NewTicker(*every); ; {
		if body, err := server.Get(ctx, flags.Arg(0)); err == nil {
			fmt.Println(time.Now().Format(time.RFC3339Nano), body)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
