package main

import (
	"context"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"strconv"
	"time"
)

// pulse queries each address by UDP continuously, each time from a new port, and counts the
// answers: what a new connection would meet at any moment. It does not wait for an answer before it
// sends the next query.
func pulse(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("pulse", flag.ContinueOnError)
	to := flags.String("to", "", "addresses and ports that answer, separated by commas")
	port := flags.Int("port", 9000, "HTTP port of the report")
	every := flags.Duration("every", 10*time.Millisecond, "time between two questions")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := targets(*to)
	if err != nil {
		return err
	}
	meters := map[string]*meter{}
	for _, t := range list {
		meters[t] = &meter{last: time.Now()}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		reports := map[string]report{}
		for t, m := range meters {
			reports[t] = m.report(time.Now(), r.URL.Query().Has("reset"))
		}
		_ = json.NewEncoder(w).Encode(reports)
	})
	web := &http.Server{Addr: net.JoinHostPort("", strconv.Itoa(*port)), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.ListenAndServe() }()
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		for t, m := range meters {
			go answered(t, m)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		}
	}
}

// answered queries the target once and counts the result.
func answered(target string, m *meter) {
	if err := askOnce(target); err != nil {
		m.broken(err)
		return
	}
	m.echo(time.Now())
}

// askOnce sends a datagram and waits a second for an answer.
func askOnce(target string) error {
	conn, err := net.Dial("udp", target)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("pulse")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, maxAnswer))
	return err
}

// maxAnswer is more than what who returns.
const maxAnswer = 512
