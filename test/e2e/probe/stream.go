package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const beat = 50 * time.Millisecond

// report is the answer to GET /report, for the time since the last reset.
type report struct {
	Echoed int `json:"echoed"`
	// MaxGapMillis is the longest time without an echo.
	MaxGapMillis int64 `json:"maxGapMillis"`
	// Reconnects counts connections that broke or could not be opened.
	Reconnects int `json:"reconnects"`
	// LastError is the error of the last of them.
	LastError string `json:"lastError,omitempty"`
}

type meter struct {
	mu         sync.Mutex
	echoed     int
	reconnects int
	lastError  string
	last       time.Time
	maxGap     time.Duration
}

func (m *meter) echo(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.echoed++
	m.maxGap = max(m.maxGap, now.Sub(m.last))
	m.last = now
}

func (m *meter) broken(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reconnects++
	m.lastError = err.Error()
}

// report includes a gap that has not ended yet.
func (m *meter) report(now time.Time, reset bool) report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := report{Echoed: m.echoed, Reconnects: m.reconnects, LastError: m.lastError, MaxGapMillis: max(m.maxGap, now.Sub(m.last)).Milliseconds()}
	if reset {
		m.echoed, m.reconnects, m.lastError, m.maxGap, m.last = 0, 0, "", 0, now
	}
	return r
}

// together merges the reports of several connections: the fewest echoes, the longest gap, and all
// reconnects.
func together(meters []*meter, now time.Time, reset bool) report {
	all := meters[0].report(now, reset)
	for _, m := range meters[1:] {
		r := m.report(now, reset)
		all.Echoed = min(all.Echoed, r.Echoed)
		all.MaxGapMillis = max(all.MaxGapMillis, r.MaxGapMillis)
		all.Reconnects += r.Reconnects
		all.LastError = cmp.Or(r.LastError, all.LastError)
	}
	return all
}

// stream sends a number, padded to the size, every beat over each of its connections and expects it
// back. It ends only with its context: a connection that breaks is counted and replaced.
func stream(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("stream", flag.ContinueOnError)
	to := flags.String("to", "", "address and port of an echo server")
	port := flags.Int("port", 9000, "HTTP port of the report")
	size := flags.Int("size", 8, "how many bytes to send at a time")
	idle := flags.Duration("keepalive", 15*time.Second, "time without traffic after which TCP says that it is there, and says so again")
	connections := flags.Int("connections", 1, "how many connections to keep")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *to == "" || *size < 8 || *connections < 1 {
		return fmt.Errorf("usage: probe stream -to ADDR:PORT [-size BYTES] [-keepalive DURATION] [-connections NUMBER]")
	}
	meters := make([]*meter, *connections)
	for i := range meters {
		meters[i] = &meter{last: time.Now()}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(together(meters, time.Now(), r.URL.Query().Has("reset")))
	})
	web := &http.Server{Addr: net.JoinHostPort("", strconv.Itoa(*port)), Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.ListenAndServe() }()
	dialer := net.Dialer{Timeout: 5 * time.Second, Control: unpaced,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: *idle, Interval: *idle, Count: 60}}
	if *size > 8 {
		dialer.Control = limitRetransmit // more than one packet each way
	}
	for _, m := range meters {
		go beatForEver(ctx, dialer, *to, *size, m)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// beatForEver keeps one connection busy, and replaces it when it breaks.
func beatForEver(ctx context.Context, dialer net.Dialer, to string, size int, m *meter) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		err := beatOver(ctx, dialer, to, size, tick.C, m)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err != nil {
			m.broken(err)
		}
	}
}

// beatOver keeps one connection busy until it breaks.
func beatOver(ctx context.Context, dialer net.Dialer, to string, size int, tick <-chan time.Time, m *meter) error {
	conn, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	out, in := make([]byte, size), make([]byte, size)
	for n := uint64(0); ; n++ {
		binary.BigEndian.PutUint64(out, n)
		if _, err := conn.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, in); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return fmt.Errorf("sent %x, got back %x", out[:8], in[:8])
		}
		m.echo(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}
