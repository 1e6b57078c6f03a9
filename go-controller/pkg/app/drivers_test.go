package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

const patience = 20 * time.Second

// TestOneThatFailsHoldsUpNobody starts a node on a kernel that an earlier run has
// left, with an object that cannot be planned. The others are written and repaired,
// what they do not want any more goes, and what the one that fails had stays until it
// can be planned again.
func TestOneThatFailsHoldsUpNobody(t *testing.T) {
	kernel := hostfake.NewKernel(map[string]string{"fine": "old value", "odd": "1", "of nobody": "1"})
	set := host.NewSet("things", kernel, func(a, b string) bool { return a == b })
	var mended atomic.Bool
	var wanted atomic.Pointer[map[string]string]
	wanted.Store(&map[string]string{"fine": "1", "more": "1"})
	c := queue.New("things", func(ctx context.Context, key string) error {
		switch {
		case key == "odd" && mended.Load():
			return set.Apply(ctx, key, map[string]string{"odd": "1"})
		case key == "odd":
			panic("an object that nobody thought of")
		}
		return set.Apply(ctx, key, *wanted.Load())
	})
	c.Seed(func() []string { return []string{"odd", "fine"} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "controller", ended); err != nil {
			t.Error(err)
		}
	})

	trimmed := 0
	d := drivers{
		swept: map[string]sweeper{"things": set}, spoken: []<-chan struct{}{c.Spoken()},
		guard: func() {}, trim: func(context.Context) error { trimmed++; return nil },
	}
	pass := func(when string, want ...string) {
		t.Helper()
		if err := d.resync(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if got := slices.Sorted(maps.Keys(kernel.Objects())); !slices.Equal(got, want) {
			t.Errorf("%s there is %v, want %v", when, got, want)
		}
	}
	await(t, c.Seeded(), "the end of the start")
	pass("after the start", "fine", "more", "odd", "of nobody")
	if kernel.Objects()["fine"] != "1" {
		t.Error("what an earlier run had written otherwise was not replaced")
	}
	if err := kernel.Delete(t.Context(), "fine", ""); err != nil {
		t.Fatal(err)
	}
	pass("after others deleted one", "fine", "more", "odd", "of nobody")
	if err := set.Apply(t.Context(), "fine", map[string]string{"fine": "1"}); err != nil {
		t.Error(err)
	}
	pass("when less is wanted", "fine", "odd", "of nobody")
	if trimmed != 0 {
		t.Error("what leftovers are known by was forgotten before they were deleted")
	}
	mended.Store(true)
	await(t, c.Spoken(), "the object that was mended")
	pass("when all have spoken", "fine", "odd")
	if trimmed != 1 {
		t.Errorf("trimmed %d times", trimmed)
	}
}

func await(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

// failing is a driver that cannot be written.
type failing struct{ passes int }

func (f *failing) Resync(context.Context) error { f.passes++; return errors.New("cannot be read") }
func (f *failing) Sweep(context.Context) error  { f.passes++; return errors.New("cannot be read") }

// TestOneKindFails: the other kinds are repaired all the same.
func TestOneKindFails(t *testing.T) {
	a, b := &failing{}, &failing{}
	d := drivers{
		swept: map[string]sweeper{"a": a, "b": b}, guard: func() {},
		trim: func(context.Context) error { t.Error("trimmed after a failure"); return nil },
	}
	err := d.resync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "resync a: ") || !strings.Contains(err.Error(), "resync b: ") || a.passes+b.passes != 2 {
		t.Errorf("resync: %v after %d and %d passes", err, a.passes, b.passes)
	}
}

// TestReadyNamesWhatFails: one object that fails is told, and the process is ready.
func TestReadyNamesWhatFails(t *testing.T) {
	c := queue.New("egressip-node", func(_ context.Context, key string) error {
		if key == "prod" {
			return errors.New("no such link\nat all")
		}
		return nil
	})
	c.Seed(func() []string { return []string{"prod", "test"} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, 1) }()
	await(t, c.Seeded(), "the end of the start")
	checks := NewChecks()
	checks.Add("gateway", func() error { return nil })
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		checks.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, body := ask("/readyz"); code != http.StatusOK || body != "gateway: ok\nready\n" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask("/readyz?verbose"); code != http.StatusOK ||
		!strings.Contains(body, `failing: egressip-node "prod": no such link at all (`) || !strings.HasSuffix(body, "\nready\n") {
		t.Errorf("%d %s", code, body)
	}
	checks.Add("odd", func() error { panic("nobody thought of it") })
	if code, body := ask("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "odd: panic: nobody thought of it\n") {
		t.Errorf("%d %s", code, body)
	}
	cancel()
	if err := receive(t, "controller", ended); err != nil {
		t.Error(err)
	}
	if lines := failing100(); len(lines) != maxFailing+1 || lines[maxFailing] != "failing: 5 more" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func failing100() []string {
	var all []queue.Failure
	for i := range maxFailing + 5 {
		all = append(all, queue.Failure{Controller: "c", Key: fmt.Sprint(i), Err: errors.New("x")})
	}
	return failures(all)
}

// TestClientGo: what client-go's own goroutines recover from does not end the
// process, and is counted.
func TestClientGo(t *testing.T) {
	surviveClientGo()
	surviveClientGo()
	before := panics.Counts()["client-go"]
	func() {
		defer utilruntime.HandleCrash()
		panic("in the handler of an event")
	}()
	if got := panics.Counts()["client-go"] - before; got != 1 {
		t.Errorf("counted %d panics", got)
	}
}
