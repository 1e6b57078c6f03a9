package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// surveyAtOnce is how many URLs are fetched at a time. The first packets of connections are slow in
// a datapath in userspace: with many more at a time, some answers would come after the timeout.
const surveyAtOnce = 16

// survey gets several URLs, each over a new connection, and prints a JSON object with the answer or
// the error for each URL.
func survey(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("survey", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 3*time.Second, "how long to wait for each whole answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("usage: probe survey [-timeout DURATION] URL [URL]")
	}
	client := &http.Client{Timeout: *timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	answers, all := make([]string, flags.NArg()), errgroup.Group{}
	all.SetLimit(surveyAtOnce)
	for i, url := range flags.Args() {
		all.Go(func() error {
			body, err := fetch(ctx, client, url)
			if err != nil {
				body = err.Error()
			}
			answers[i] = body
			return nil
		})
	}
	_ = all.Wait() // errors are answers
	said := map[string]string{}
	for i, url := range flags.Args() {
		said[url] = answers[i]
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}
