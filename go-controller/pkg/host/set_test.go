package host_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

type (
	kernel = hostfake.Kernel[int, string]
	set    = host.Set[int, string]
)

func newSet(k host.Kernel[int, string]) *set {
	return host.NewSet("things", k, func(a, b string) bool { return a == b })
}

// model is a reference implementation of Set without a kernel that can be slow or fail.
type model struct {
	have  map[int]string
	want  map[string]map[int]string
	swept bool
}

func (m *model) union() map[int]string {
	all := map[int]string{}
	for _, name := range []string{"a", "b", "c"} {
		for k, v := range m.want[name] {
			if _, ok := all[k]; !ok {
				all[k] = v
			}
		}
	}
	return all
}

func (m *model) pass(dropped map[int]string) {
	union := m.union()
	for k := range m.have {
		_, wanted := union[k]
		_, drop := dropped[k]
		if !wanted && (m.swept || drop) {
			delete(m.have, k)
		}
	}
	maps.Copy(m.have, union)
}

func contribution(r *rand.Rand) map[int]string {
	want := map[int]string{}
	for range r.IntN(6) {
		want[r.IntN(10)] = fmt.Sprint("v", r.IntN(3))
	}
	return want
}

// TestSetAgainstModel runs random sequences of contributions, edits behind the Set's back and the
// end of the startup phase. After each step the kernel must be as the model says, and repeating the
// step must write nothing.
func TestSetAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		left := contribution(r)
		k := hostfake.NewKernel(left)
		s := newSet(k)
		m := model{have: maps.Clone(left), want: map[string]map[int]string{}}
		var history []string
		for step := range 60 {
			again := s.Resync
			switch op := r.IntN(10); {
			case op < 6:
				name, want := string("abc"[r.IntN(3)]), contribution(r)
				history = append(history, fmt.Sprintf("apply %s %v", name, want))
				again = func(ctx context.Context) error { return s.Apply(ctx, name, want) }
				dropped := m.want[name]
				m.want[name] = want
				m.pass(dropped)
			case op < 7:
				key := r.IntN(10)
				history = append(history, fmt.Sprintf("edit %d", key))
				k.Put(key, "foreign")
				m.have[key] = "foreign"
				m.pass(nil)
			case op < 8:
				key := r.IntN(10)
				history = append(history, fmt.Sprintf("remove %d", key))
				k.Drop(key)
				delete(m.have, key)
				m.pass(nil)
			case step > 30:
				history = append(history, "sweep")
				m.swept = true
				m.pass(nil)
				again = s.Sweep
			}
			if err := again(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(k.Objects(), m.have) {
				t.Fatalf("seed %d: kernel has %v, want %v, after\n%s", seed, k.Objects(), m.have, strings.Join(history, "\n"))
			}
			writes := k.Writes()
			if err := again(t.Context()); err != nil {
				t.Fatal(err)
			}
			if k.Writes() != writes {
				t.Fatalf("seed %d: a no-op pass wrote, after\n%s", seed, strings.Join(history, "\n"))
			}
		}
	}
}

var errBroken = errors.New("broken")

// TestSetFailures: a key that cannot be written does not block others, its error is returned to
// whoever wants it, and it is written as soon as that works.
func TestSetFailures(t *testing.T) {
	k := hostfake.NewKernel[int, string](nil)
	broken := true
	k.Fail = func(op string, key int) error {
		if broken && op == "add" && key == 1 {
			return errBroken
		}
		return nil
	}
	s := newSet(k)
	if err := s.Apply(t.Context(), "a", map[int]string{1: "x", 2: "x"}); !errors.Is(err, errBroken) {
		t.Errorf("the contributor of a broken key got %v", err)
	}
	if err := s.Apply(t.Context(), "b", map[int]string{3: "x"}); err != nil {
		t.Errorf("another contributor got %v", err)
	}
	if got, want := k.Objects(), (map[int]string{2: "x", 3: "x"}); !maps.Equal(got, want) {
		t.Errorf("kernel has %v, want %v", got, want)
	}
	broken = false
	if err := s.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := k.Objects(), (map[int]string{1: "x", 2: "x", 3: "x"}); !maps.Equal(got, want) {
		t.Errorf("healed kernel has %v, want %v", got, want)
	}
}

// TestSetForgetsNoDrop: a dropped key that could not be deleted is deleted later, also before
// Sweep.
func TestSetForgetsNoDrop(t *testing.T) {
	k := hostfake.NewKernel(map[int]string{9: "left"})
	broken := false
	k.Fail = func(op string, _ int) error {
		if broken && op != "add" {
			return errBroken
		}
		return nil
	}
	s := newSet(k)
	if err := s.Apply(t.Context(), "a", map[int]string{1: "x"}); err != nil {
		t.Fatal(err)
	}
	broken = true
	if err := s.Apply(t.Context(), "a", nil); !errors.Is(err, errBroken) {
		t.Errorf("got %v while the kernel was broken", err)
	}
	broken = false
	if err := s.Apply(t.Context(), "b", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := k.Objects(), (map[int]string{9: "left"}); !maps.Equal(got, want) {
		t.Errorf("kernel has %v, want %v", got, want)
	}
}

// TestSetDependencies: an object that depends on another is written whatever the order.
func TestSetDependencies(t *testing.T) {
	k := hostfake.NewKernel[int, string](nil)
	k.Fail = func(op string, key int) error {
		if _, ok := k.Objects()[key+1]; op == "add" && key < 5 && !ok {
			return fmt.Errorf("%d needs %d", key, key+1)
		}
		return nil
	}
	want := map[int]string{1: "x", 2: "x", 3: "x", 4: "x", 5: "x"}
	if err := newSet(k).Apply(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	if got := k.Objects(); !maps.Equal(got, want) {
		t.Errorf("kernel has %v", got)
	}
	if k.Writes() != len(want) {
		t.Errorf("%d writes for %d objects", k.Writes(), len(want))
	}
}

// guarded is a Kernel that fails the test if it is used concurrently.
type guarded struct {
	*kernel
	t     *testing.T
	busy  atomic.Int32
	lists atomic.Int32
	gate  chan struct{} // the first List waits for it
}

func (g *guarded) List(ctx context.Context) (map[int]string, error) {
	if g.busy.Add(1) != 1 {
		g.t.Error("the kernel is used by two at a time")
	}
	defer g.busy.Add(-1)
	if g.lists.Add(1) == 1 {
		<-g.gate
	}
	return g.kernel.List(ctx)
}

// TestSetStorm: contributions that arrive during a pass share the next one.
func TestSetStorm(t *testing.T) {
	g := &guarded{kernel: hostfake.NewKernel[int, string](nil), t: t, gate: make(chan struct{})}
	s := newSet(g)
	var wg sync.WaitGroup
	const contributors = 50
	for i := range contributors {
		wg.Go(func() {
			if err := s.Apply(t.Context(), fmt.Sprint(i), map[int]string{i: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	eventually.True(t, "all contributions", func() bool { return len(s.Contributors()) == contributors })
	close(g.gate)
	wg.Wait()
	if n := len(g.Objects()); n != contributors {
		t.Errorf("%d objects, want %d", n, contributors)
	}
	// One pass that was held, one for everything that arrived in the meantime, and some for
	// contributors that had contributed but not yet requested a pass.
	if n := g.lists.Load(); n > contributors/2 {
		t.Errorf("%d passes for a storm", n)
	}
}

// TestSetWaitEnds: a caller stops waiting when its context ends, and its contribution is written by
// the next pass.
func TestSetWaitEnds(t *testing.T) {
	g := &guarded{kernel: hostfake.NewKernel[int, string](nil), t: t, gate: make(chan struct{})}
	s := newSet(g)
	first := make(chan error, 1)
	go func() { first <- s.Apply(t.Context(), "a", map[int]string{1: "x"}) }()
	eventually.True(t, "the first pass", func() bool { return g.lists.Load() > 0 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Apply(ctx, "b", map[int]string{2: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(g.gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := s.Resync(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := g.Objects(), (map[int]string{1: "x", 2: "x"}); !maps.Equal(got, want) {
		t.Errorf("kernel has %v, want %v", got, want)
	}
}

// TestSetDropIsOwed: a contributor that dropped a key gets the error of its deletion from every
// call, not only the first one, until the key is deleted.
func TestSetDropIsOwed(t *testing.T) {
	for _, op := range []string{"list", "delete"} {
		kernel := hostfake.NewKernel[int, string](nil)
		s := newSet(kernel)
		apply := func(contributor string, want map[int]string) error { return s.Apply(t.Context(), contributor, want) }
		if err := errors.Join(apply("a", map[int]string{1: "x"}), s.Sweep(t.Context())); err != nil {
			t.Fatal(err)
		}
		broken := true
		kernel.Fail = func(did string, k int) error {
			if did == op && broken {
				return errors.New("busy")
			}
			return nil
		}
		for n := range 3 {
			if err := apply("a", nil); err == nil {
				t.Errorf("%s fails: try %d to drop a key was said to be done", op, n)
			}
			if op == "delete" {
				if err := apply("b", nil); err != nil {
					t.Errorf("another one hears of it: %v", err)
				}
			}
		}
		broken = false
		if err := apply("a", nil); err != nil || len(kernel.Objects()) > 0 {
			t.Errorf("after it failed the kernel has %v: %v", kernel.Objects(), err)
		}
	}
}

// TestSetDropDuringPass: a key whose last contributor drops it while a pass runs because another
// one has dropped it is deleted by the next pass, even before everybody has contributed.
func TestSetDropDuringPass(t *testing.T) {
	kernel := hostfake.NewKernel[int, string](nil)
	s := newSet(kernel)
	for _, contributor := range []string{"a", "b"} {
		if err := s.Apply(t.Context(), contributor, map[int]string{1: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	last := make(chan error, 1)
	var during sync.Once
	kernel.Fail = func(did string, _ int) error {
		if did == "list" {
			during.Do(func() {
				go func() { last <- s.Apply(t.Context(), "b", nil) }()
				eventually.True(t, "the last contributor to drop it", func() bool { return len(s.Contributors()) == 0 })
			})
		}
		return nil
	}
	if err := errors.Join(s.Apply(t.Context(), "a", nil), <-last); err != nil || len(kernel.Objects()) > 0 {
		t.Errorf("the kernel has %v: %v", kernel.Objects(), err)
	}
}

// TestSetDropsLeftovers: a contributor can have objects of an earlier run deleted before the sweep,
// unless somebody wants them; a failure is reported until they are deleted.
func TestSetDropsLeftovers(t *testing.T) {
	k := hostfake.NewKernel(map[int]string{1: "a", 2: "b", 3: "c"})
	s := newSet(k)
	if err := s.Apply(t.Context(), "b", map[int]string{2: "b"}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	k.Fail = func(op string, _ int) error {
		if op == "delete" {
			return broken
		}
		return nil
	}
	drop := func() error { return s.Drop(t.Context(), "a", func(key int) bool { return key < 3 }) }
	if err := drop(); !errors.Is(err, broken) {
		t.Errorf("a failed drop returns %v", err)
	}
	if err := s.Apply(t.Context(), "a", nil); !errors.Is(err, broken) {
		t.Errorf("after a failed drop, Apply returns %v", err)
	}
	k.Fail = nil
	for range 2 {
		if err := drop(); err != nil {
			t.Fatal(err)
		}
		if got, want := k.Objects(), map[int]string{2: "b", 3: "c"}; !maps.Equal(got, want) {
			t.Errorf("kernel has %v, want %v", got, want)
		}
	}
	if got := k.Writes(); got != 1 {
		t.Errorf("%d writes", got)
	}
}

// exclusive is a kernel in which only the oldest of the objects with the same last digit has an effect.
type exclusive struct{ *kernel }

// Match implements host.Exclusive.
func (exclusive) Match(k int) int { return k % 10 }

// TestExclusive: what an earlier run left goes before Sweep if it would keep a wanted object from taking effect, but not
// before that object is there.
func TestExclusive(t *testing.T) {
	k := hostfake.NewKernel(map[int]string{11: "left", 12: "left", 23: "left"})
	k.Overlap = true
	k.Fail = func(op string, key int) error {
		if op == "add" && key == 2 {
			return errBroken
		}
		return nil
	}
	s := newSet(exclusive{k})
	if err := s.Apply(t.Context(), "a", map[int]string{1: "x", 2: "x", 33: "x"}); !errors.Is(err, errBroken) {
		t.Errorf("the contributor got %v", err)
	}
	if err := s.Apply(t.Context(), "b", map[int]string{43: "x"}); err != nil {
		t.Fatal(err)
	}
	if got, want := k.Objects(), (map[int]string{1: "x", 12: "left", 33: "x", 43: "x"}); !maps.Equal(got, want) {
		t.Errorf("kernel has %v, want %v", got, want)
	}
}
