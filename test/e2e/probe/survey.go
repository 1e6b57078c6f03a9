package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"sync"
	"time"
)

// survey gets several URLs concurrently, each over a new connection, and prints a JSON object with
// the answer or the error for each URL.
func survey(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("survey", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 3*time.Second, "how long to wait for each whole answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("usage: probe survey URL [URL]")
	}
	client := &http.Client{Timeout: *timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	answers, all := make([]string, flags.NArg()), sync.WaitGroup{}
	for i, url := range flags.Args() {
		all.Go(func() {
			body, err := fetch(ctx, client, url)
			if err != nil {
				body = err.Error()
			}
			answers[i] = body
		})
	}
	all.Wait()
	said := map[string]string{}
	for i, url := range flags.Args() {
		said[url] = answers[i]
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}
