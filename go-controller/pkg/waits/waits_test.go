package waits

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func texts() string {
	var all []string
	for _, w := range All() {
		all = append(all, w.String())
	}
	return strings.Join(all, "\n")
}

// TestWaits: each wait is listed with who waits and since when, sorted, until it ends.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, went := make(chan struct{}), make(chan bool, 1)
		go func() {
			went <- Until(t.Context(), done, Wait{Part: "labels", For: "the services", Limit: time.Minute})
		}()
		pod := Begin(Wait{Part: "cni", Object: "ns/web", For: "its addresses"})
		pod.For("its\nport")
		synctest.Wait()
		want := "cni \"ns/web\" waits for its port (since 2000-01-01T00:00:00Z)\n" +
			"labels waits for the services (since 2000-01-01T00:00:00Z, for 1m0s at most)"
		if got := texts(); got != want {
			t.Errorf("all are\n%s\nwant\n%s", got, want)
		}
		if got := Counts(); got["cni"] != 1 || got["labels"] != 1 {
			t.Errorf("counts are %v", got)
		}
		close(done)
		pod.End()
		if !<-went {
			t.Error("what is there was not waited for")
		}
		counts := Counts()
		if n, known := counts["cni"]; texts() != "" || n != 0 || !known {
			t.Errorf("after the end: %q, %v", texts(), counts)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if Until(ctx, make(chan struct{}), Wait{Part: "labels"}) || !Until(ctx, done, Wait{Part: "labels"}) {
			t.Error("what Until says does not tell what ended it")
		}
	})
}

// TestLost: a connection is missing since it was lost, with the latest reason.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lost
		w := Wait{Part: "ports", For: "the southbound database", Reason: ReasonDatabase}
		l.Set(w, nil)
		l.Set(w, errors.New("refused"))
		<-time.After(time.Minute)
		l.Set(w, errors.New("timed out"))
		if got := texts(); got != "ports waits for the southbound database: timed out (since 2000-01-01T00:00:00Z)" {
			t.Errorf("lost: %q", got)
		}
		l.Set(w, nil)
		if got := texts(); got != "" {
			t.Errorf("connected: %q", got)
		}
	})
}
