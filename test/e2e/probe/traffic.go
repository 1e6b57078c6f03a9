package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// dialTimeout is how long a new connection may take before it counts as lost.
const dialTimeout = time.Second

// traffic keeps one connection to each echo server busy and opens new ones all the time: this shows
// what existing and new connections meet at any moment. The report has both, by server.
func traffic(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("traffic", flag.ContinueOnError)
	to := flags.String("to", "", "addresses and ports of echo servers, separated by commas")
	port := flags.Int("port", 9000, "HTTP port of the report")
	every := flags.Duration("every", 100*time.Millisecond, "time between two new connections to a server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := targets(*to)
	if err != nil {
		return err
	}
	type meters struct{ lasting, fresh *meter }
	all := map[string]meters{}
	for _, t := range list {
		all[t] = meters{&meter{last: time.Now()}, &meter{last: time.Now()}}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		now, reset := time.Now(), r.URL.Query().Has("reset")
		reports := map[string]map[string]report{}
		for t, m := range all {
			reports[t] = map[string]report{"lasting": m.lasting.report(now, reset), "fresh": m.fresh.report(now, reset)}
		}
		_ = json.NewEncoder(w).Encode(reports)
	})
	web := &http.Server{Addr: net.JoinHostPort("", strconv.Itoa(*port)), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.ListenAndServe() }()
	for t, m := range all {
		go keepBusy(ctx, t, m.lasting)
	}
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		for t, m := range all {
			go echoedOnce(ctx, t, m.fresh)
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

// keepBusy keeps one connection to an echo server busy and replaces it when it breaks.
func keepBusy(ctx context.Context, to string, m *meter) {
	// While an answer is outstanding only the other side has data to send. A node that takes over an
	// address learns of the connection from the pod, which has to say that it is there.
	dialer := net.Dialer{Timeout: dialTimeout, Control: unpaced,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 120}}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := beatOver(ctx, dialer, to, 8, tick.C, m); err != nil {
			m.broken(err)
			<-tick.C
		}
	}
}

// echoedOnce opens a connection to an echo server and closes it after one echo.
func echoedOnce(ctx context.Context, to string, m *meter) {
	err := func() error {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			return err
		}
		if n, err := conn.Read(make([]byte, 1)); n != 1 {
			return fmt.Errorf("no echo: %w", err)
		}
		return nil
	}()
	if err != nil {
		m.broken(err)
		return
	}
	m.echo(time.Now())
}
