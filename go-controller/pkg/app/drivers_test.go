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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/watch"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// TestOneThatFailsHoldsUpNobody starts a node on a kernel with state of an earlier run, with one
// object that cannot be planned. The other objects are written and repaired, what they no longer
// want is deleted, and the state of the failing object stays until it can be planned again.
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
		if err := eventually.Receive(t, "controller", ended); err != nil {
			t.Error(err)
		}
	})

	trimmed := 0
	d := hostWriters{
		swept: map[string]sweeper{"things": set}, synced: []<-chan struct{}{c.Synced()},
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
	eventually.Receive(t, "the end of the start", c.Attempted())
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
	eventually.Receive(t, "the object that was mended", c.Synced())
	pass("when all have spoken", "fine", "odd")
	if trimmed != 1 {
		t.Errorf("trimmed %d times", trimmed)
	}
}

// failing is a driver whose passes fail.
type failing struct{ passes int }

func (f *failing) Resync(context.Context) error { f.passes++; return errors.New("cannot be read") }
func (f *failing) Sweep(context.Context) error  { f.passes++; return errors.New("cannot be read") }

// TestOneKindFails: a failing kind does not keep other kinds from being repaired.
func TestOneKindFails(t *testing.T) {
	a, b := &failing{}, &failing{}
	d := hostWriters{
		swept: map[string]sweeper{"a": a, "b": b}, guard: func() {},
		trim: func(context.Context) error { t.Error("trimmed after a failure"); return nil },
	}
	err := d.resync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "resync a: ") || !strings.Contains(err.Error(), "resync b: ") || a.passes+b.passes != 2 {
		t.Errorf("resync: %v after %d and %d passes", err, a.passes, b.passes)
	}
}

// TestReadyNamesWhatFails: one failing object is reported, and the process is ready.
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
	eventually.Receive(t, "the end of the start", c.Attempted())
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
	wait := waits.Begin(waits.Wait{Part: "cni", Object: "ns/web", For: "the node's rules", Limit: time.Minute})
	if code, body := ask("/readyz?verbose"); code != http.StatusOK || !strings.Contains(body, `waiting: cni "ns/web" waits for the node's rules (since `) {
		t.Errorf("%d %s", code, body)
	}
	wait.End()
	checks.Add("odd", func() error { panic("nobody thought of it") })
	if code, body := ask("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "odd: panic: nobody thought of it\n") {
		t.Errorf("%d %s", code, body)
	}
	cancel()
	if err := eventually.Receive(t, "controller", ended); err != nil {
		t.Error(err)
	}
	if lines := failing100(); len(lines) != maxNamed+1 || lines[maxNamed] != "failing: 5 more" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func failing100() []string {
	var all []queue.Failure
	for i := range maxNamed + 5 {
		all = append(all, queue.Failure{Controller: "c", Key: fmt.Sprint(i), Err: errors.New("x")})
	}
	return named("failing", all)
}

// TestClientGo: a panic that client-go's own goroutines recover from does not end the process, and
// is counted.
func TestClientGo(t *testing.T) {
	recoverClientGo()
	recoverClientGo()
	before := panics.Counts()["client-go"]
	func() {
		defer utilruntime.HandleCrash()
		panic("in the handler of an event")
	}()
	if got := panics.Counts()["client-go"] - before; got != 1 {
		t.Errorf("counted %d panics", got)
	}
}

// looking is a driver that reports when it reads the host, and fails at first.
type looking struct {
	looked chan string
	name   string
	fails  atomic.Int32
}

func (l *looking) Resync(context.Context) error {
	l.looked <- l.name
	if l.fails.Add(-1) >= 0 {
		return errors.New("not now")
	}
	return nil
}

func (l *looking) Sweep(ctx context.Context) error { return l.Resync(ctx) }

// TestRepairedAtOnce: what others delete is repaired before the next resync, and a failed repair is
// retried.
func TestRepairedAtOnce(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "wire")
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	ns.Run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.9", "proto", "79")
	ns.Run("ip", "rule", "add", "priority", "5000", "from", "192.0.2.7", "lookup", "main")
	looked := make(chan string, 1000)
	kinds := map[string]*looking{}
	d := hostWriters{swept: map[string]sweeper{}, guard: func() { looked <- "guard" }, events: watch.Watch}
	for _, what := range []string{chains, routes, addresses, flows, ipRules, parameters} {
		kinds[what] = &looking{looked: looked, name: what}
		d.swept[what] = kinds[what]
	}
	if err := d.watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := func(after string, want ...string) {
		t.Helper()
		left := map[string]int{}
		for _, what := range want {
			left[what]++
		}
		dump := eventually.Dump(func() string { return fmt.Sprintf("nobody looked at %v", left) })
		for len(left) > 0 {
			what := eventually.Receive(t, "looks after "+after, looked, dump)
			if left[what]--; left[what] <= 0 {
				delete(left, what)
			}
		}
	}
	kinds[ipRules].fails.Store(1)
	ns.Run("ip", "rule", "del", "priority", "5000")
	seen("a rule was deleted", ipRules, ipRules)
	ns.Run("ip", "route", "del", "198.51.100.0/24")
	seen("a route was deleted", routes)
	ns.Run("ip", "addr", "del", "192.0.2.1/24", "dev", "eth0")
	seen("an address was deleted", addresses)
	ns.Run("sysctl", "-q", "net.ipv4.conf.eth0.rp_filter=1")
	seen("a parameter was set", parameters)
	ns.Run("nft", "flush", "ruleset")
	ns.Run("iptables", "-t", "nat", "-N", "OTHER")
	seen("tables were flushed", "guard", chains)
}

// TestFailingRepairBacksOff: a repair that keeps failing is retried less and less often, but a change is repaired at once, and after a
// success failures are retried soon again.
func TestFailingRepairBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began := time.Now()
		var at []time.Duration
		var fails atomic.Bool
		fails.Store(true)
		poke := repairer(t.Context(), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			if fails.Load() {
				return errors.New("cannot be read")
			}
			return nil
		})
		seen := func(what string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(at, want) {
				t.Errorf("%s: repaired after %v, want %v", what, at, want)
			}
			began, at = time.Now(), nil
		}
		after := func(d time.Duration) { <-time.After(d) }
		poke()
		after(2 * time.Minute)
		const s = time.Second
		seen("failing", 0, s/2, s/2+s, s/2+3*s, s/2+7*s, s/2+15*s, s/2+31*s, s/2+61*s, s/2+91*s)
		poke()
		after(repairPause)
		seen("changed", 0)
		fails.Store(false)
		after(resyncInterval)
		seen("mended", resyncInterval-repairPause)
		fails.Store(true)
		poke()
		after(2 * repairPause)
		seen("failing again", 0, s/2)
	})
}
