package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{
		"serve": serve, "get": get, "watch": watch, "ask": ask, "chase": chase, "api": api, "stream": stream, "send": send, "pulse": pulse, "solicit": solicit, "speak": speak, "survey": survey, "traffic": traffic, "forge": forge, "stray": stray, "flood": flood,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("usage: probe serve|get|watch|ask|chase|api|stream|send|pulse|solicit|speak|survey|traffic|forge|stray|flood")
	}
	return commands[args[0]](ctx, args[1:])
}

// bearer sends requests with a token.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// get prints the body of each URL, each fetched over a new connection. It does not verify the certificates of servers.
func get(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("get", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 3*time.Second, "how long to wait for each whole answer")
	count := flags.Int("count", 1, "how many times to ask")
	overSCTP := flags.Bool("sctp", false, "connect by SCTP instead of TCP")
	token := flags.String("token", "", "a token of the API server to send")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("usage: probe get URL")
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if *overSCTP {
		transport.DialContext = func(_ context.Context, _, address string) (net.Conn, error) { return dialSCTP(address, *timeout) }
	}
	client := &http.Client{Timeout: *timeout, Transport: transport}
	if *token != "" { // only then: the errors of an http.Client with another transport do not always say that its time was up
		client.Transport = bearer{transport, *token}
	}
	for range *count {
		body, err := fetch(ctx, client, flags.Arg(0))
		if err != nil {
			return err
		}
		fmt.Println(body)
	}
	return nil
}
