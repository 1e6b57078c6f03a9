package health

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

const timeout = time.Second

var (
	v4 = netip.MustParseAddr("10.244.1.2")
	v6 = netip.MustParseAddr("fd00:10:244:2::2")
	// own is the address of the node on which the tracker runs, which always answers.
	own = netip.MustParseAddr("10.244.0.2")
)

// world is a Prober whose answers a test sets. A silent address answers when the probe's context
// ends.
type world struct {
	mu    sync.Mutex
	alive map[netip.Addr]bool
	fault map[netip.Addr]bool
	asked map[string]int
	rtt   time.Duration
}

// newWorld returns a world whose answers take a moment: an answer at the very instant at which a node
// becomes a target could be ahead of the notification about that.
func newWorld(alive ...netip.Addr) *world {
	w := &world{alive: map[netip.Addr]bool{}, fault: map[netip.Addr]bool{}, asked: map[string]int{}, rtt: time.Nanosecond}
	for _, a := range append(alive, own) {
		w.alive[a] = true
	}
	return w
}

func (w *world) set(m map[netip.Addr]bool, a netip.Addr, v bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m[a] = v
}

func (w *world) count(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[node]
}

func (w *world) Probe(ctx context.Context, node string, addr netip.Addr) error {
	w.mu.Lock()
	w.asked[node]++
	alive, fault, rtt := w.alive[addr], w.fault[addr], w.rtt
	w.mu.Unlock()
	if fault {
		return fmt.Errorf("%w: no route", ErrFault)
	}
	if alive {
		select {
		case <-time.After(rtt):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// changes records notifications of subscribers.
type changes struct {
	mu    sync.Mutex
	heard []string
}

func (c *changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.heard
	c.heard = nil
	return h
}

// bubble runs a test of a tracker with a fake clock.
func bubble(t *testing.T, w *world, total time.Duration, test func(t *testing.T, tr *Tracker, c *changes)) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(w, total)
		c := &changes{}
		tr.Subscribe(func(node string) {
			reach := tr.Reach(node) // a subscriber may call Reach
			c.mu.Lock()
			defer c.mu.Unlock()
			if node != "own" {
				c.heard = append(c.heard, node+" "+reach.String())
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tr.Run(ctx) }()
		synctest.Wait()
		test(t, tr, c)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func targets(nodes ...string) map[string][]netip.Addr {
	m := map[string][]netip.Addr{"own": {own}}
	for _, n := range nodes {
		m[n] = []netip.Addr{v4, v6}
	}
	return m
}

func expect(t *testing.T, tr *Tracker, c *changes, reach place.Reach, heard ...string) {
	t.Helper()
	if got := tr.Reach("n1"); got != reach {
		t.Errorf("n1 is %s, want %s", got, reach)
	}
	if got := tr.Healthy("n1"); got != (reach == place.Alive) {
		t.Errorf("Healthy is %t while n1 is %s", got, reach)
	}
	if got := c.take(); !slices.Equal(got, heard) {
		t.Errorf("subscribers heard %q, want %q", got, heard)
	}
}

func TestFirstAnswerIsAtOnce(t *testing.T) {
	w := newWorld(v4)
	w.rtt = time.Microsecond // the clock stands still until the test has looked
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		expect(t, tr, c, place.Unknown, "n1 unknown")
		pass(time.Millisecond)
		expect(t, tr, c, place.Alive, "n1 alive")
	})
}

func TestUnknownUntilFullSilence(t *testing.T) {
	bubble(t, newWorld(), timeout, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		pass(timeout - time.Millisecond)
		expect(t, tr, c, place.Unknown, "n1 unknown")
		pass(timeout/4 + time.Millisecond)
		expect(t, tr, c, place.Dead, "n1 dead")
	})
}

// TestDetectionIsBounded: a node may die at any moment between two probes. Its death must be
// detected within the timeout plus one interval, and not before the timeout.
func TestDetectionIsBounded(t *testing.T) {
	for _, rtt := range []time.Duration{0, 20 * time.Millisecond, 400 * time.Millisecond} {
		for phase := time.Duration(0); phase < timeout/4; phase += 10 * time.Millisecond {
			w := newWorld(v4)
			w.rtt = rtt
			bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
				died := make(chan time.Time, 1)
				tr.Subscribe(func(node string) {
					if node == "n1" && tr.Reach(node) == place.Dead {
						died <- time.Now()
					}
				})
				tr.SetTargets(targets("n1"))
				pass(3*timeout + phase)
				w.set(w.alive, v4, false)
				start := time.Now()
				took := (<-died).Sub(start)
				// Answers to probes sent before the death still arrive.
				if limit := timeout + timeout/4 + rtt; took > limit || took < timeout-timeout/4 {
					t.Errorf("rtt %v, phase %v: took %v, want at most %v", rtt, phase, took, limit)
				}
			})
		}
	}
}

func TestAnswerOfAnyFamilyCounts(t *testing.T) {
	w := newWorld(v4, v6)
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		pass(timeout)
		w.set(w.alive, v4, false)
		pass(5 * timeout)
		expect(t, tr, c, place.Alive, "n1 unknown", "n1 alive")
		w.set(w.alive, v6, false)
		pass(2 * timeout)
		expect(t, tr, c, place.Dead, "n1 dead")
		w.set(w.alive, v4, true)
		pass(timeout / 2)
		expect(t, tr, c, place.Alive, "n1 alive")
	})
}

func TestLostProbesAreNoDeath(t *testing.T) {
	w := newWorld(v4)
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		pass(timeout)
		for range 5 {
			w.set(w.alive, v4, false)
			pass(timeout - timeout/4)
			w.set(w.alive, v4, true)
			pass(timeout / 4)
		}
		expect(t, tr, c, place.Alive, "n1 unknown", "n1 alive")
	})
}

func TestFaultsOfOurOwnProveNothing(t *testing.T) {
	w := newWorld(v4)
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		pass(timeout)
		w.set(w.fault, v4, true)
		w.set(w.fault, v6, true)
		pass(10 * timeout)
		expect(t, tr, c, place.Alive, "n1 unknown", "n1 alive")
		w.set(w.fault, v6, false) // one family can be probed, and is silent
		pass(2 * timeout)
		expect(t, tr, c, place.Dead, "n1 dead")
	})
}

// TestStandstillIsNoSilence: a watch that was blocked, here by a subscriber, has not listened.
func TestStandstillIsNoSilence(t *testing.T) {
	w := newWorld(v4)
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
		stall := 5 * timeout
		tr.Subscribe(func(node string) {
			if node == "n1" && tr.Reach("n1") == place.Alive {
				<-time.After(stall)
			}
		})
		tr.SetTargets(targets("n1"))
		pass(stall + 2*timeout)
		expect(t, tr, c, place.Alive, "n1 unknown", "n1 alive")
		w.set(w.alive, v4, false)
		pass(timeout + timeout/4 + time.Millisecond)
		expect(t, tr, c, place.Dead, "n1 dead")
	})
}

// TestSilenceOfAllProvesNothing: if all nodes are silent at once, whatever the phase, it is the
// master that is cut off. This master is not on any of the nodes.
func TestSilenceOfAllProvesNothing(t *testing.T) {
	other := netip.MustParseAddr("10.244.2.2")
	for phase := time.Duration(0); phase < timeout/4; phase += 10 * time.Millisecond {
		w := newWorld(v4, other)
		bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
			tr.SetTargets(map[string][]netip.Addr{"n2": {other}})
			pass(phase)
			tr.SetTargets(map[string][]netip.Addr{"n1": {v4, v6}, "n2": {other}})
			pass(3 * timeout)
			c.take()
			w.set(w.alive, other, false)
			w.set(w.alive, v4, false)
			pass(10 * timeout)
			expect(t, tr, c, place.Alive)
			if !tr.Healthy("n2") {
				t.Errorf("phase %v: n2 is dead", phase)
			}
			// The network is back, and n1 really is gone.
			w.set(w.alive, other, true)
			pass(timeout)
			expect(t, tr, c, place.Alive)
			pass(timeout / 2)
			expect(t, tr, c, place.Dead, "n1 dead")
		})
	}
}

// others are three nodes besides the master's own.
var others = map[string]netip.Addr{"n1": v4, "n2": netip.MustParseAddr("10.244.2.2"), "n3": netip.MustParseAddr("10.244.3.2")}

// opinion is a second opinion that a test sets.
type opinion struct {
	mu    sync.Mutex
	dead  map[string]bool
	takes time.Duration
}

func (o *opinion) confirm(ctx context.Context, node string) bool {
	o.mu.Lock()
	dead, takes := o.dead[node], o.takes
	o.mu.Unlock()
	select {
	case <-time.After(takes):
		return dead
	case <-ctx.Done():
		return false
	}
}

// inCluster runs a test with a master on the node "own" of four, for all phases between two probes.
func inCluster(t *testing.T, test func(t *testing.T, w *world, tr *Tracker, o *opinion, reaches func(want place.Reach, nodes ...string))) {
	for phase := time.Duration(0); phase < timeout/4; phase += 10 * time.Millisecond {
		w, o := newWorld(slices.Collect(maps.Values(others))...), &opinion{dead: map[string]bool{}, takes: timeout / 4}
		bubble(t, w, timeout, func(t *testing.T, tr *Tracker, _ *changes) {
			tr.SecondOpinion("own", o.confirm)
			all := targets()
			for node, a := range others {
				all[node] = []netip.Addr{a}
			}
			tr.SetTargets(all)
			pass(3*timeout + phase)
			reaches := func(want place.Reach, nodes ...string) {
				t.Helper()
				for _, node := range nodes {
					if got := tr.Reach(node); got != want {
						t.Errorf("phase %v: %s is %s, want %s", phase, node, got, want)
					}
				}
			}
			reaches(place.Alive, "own", "n1", "n2", "n3")
			test(t, w, tr, o, reaches)
		})
	}
}

// TestOwnNodeIsNoWitness: the own node hears itself even while its switch hangs, its tunnels are
// cut or its uplink is down: the silence of all others then says nothing about them.
func TestOwnNodeIsNoWitness(t *testing.T) {
	inCluster(t, func(_ *testing.T, w *world, _ *Tracker, _ *opinion, reaches func(place.Reach, ...string)) {
		for range 3 {
			for _, a := range others {
				w.set(w.alive, a, false)
			}
			pass(4 * timeout)
			reaches(place.Alive, "own", "n1", "n2", "n3")
			for _, a := range others {
				w.set(w.alive, a, true)
			}
			pass(timeout)
			reaches(place.Alive, "own", "n1", "n2", "n3")
		}
	})
}

// TestReturnOneByOne: when the network to all others comes back, they answer one after the other:
// the last one is not dead because of that, however long all were silent.
func TestReturnOneByOne(t *testing.T) {
	for _, silence := range []time.Duration{timeout * 7 / 8, timeout * 5 / 4, 4 * timeout} {
		inCluster(t, func(_ *testing.T, w *world, tr *Tracker, _ *opinion, reaches func(place.Reach, ...string)) {
			var died []string
			tr.Subscribe(func(node string) {
				if tr.Reach(node) == place.Dead {
					died = append(died, node)
				}
			})
			for _, a := range others {
				w.set(w.alive, a, false)
			}
			pass(silence)
			for _, node := range []string{"n2", "n3", "n1"} {
				w.set(w.alive, others[node], true)
				pass(timeout / 4)
			}
			pass(2 * timeout)
			reaches(place.Alive, "own", "n1", "n2", "n3")
			if len(died) > 0 {
				t.Errorf("silence of %v: %v passed for dead", silence, died)
			}
			// A node that does not answer although the others have done so for a while is dead.
			w.set(w.alive, others["n1"], false)
			pass(timeout + timeout/4 + time.Millisecond)
			reaches(place.Dead, "n1")
		})
	}
}

// TestDeadTogether: nodes that die together are dead within two timeouts if the second opinion
// agrees, whether it is all others or most of them.
func TestDeadTogether(t *testing.T) {
	for _, dead := range [][]string{{"n1", "n2", "n3"}, {"n1", "n3"}} {
		inCluster(t, func(_ *testing.T, w *world, _ *Tracker, o *opinion, reaches func(place.Reach, ...string)) {
			for _, node := range dead {
				o.mu.Lock()
				o.dead[node] = true
				o.mu.Unlock()
				w.set(w.alive, others[node], false)
			}
			pass(timeout - timeout/4 - time.Millisecond)
			reaches(place.Alive, dead...)
			pass(timeout + timeout/4)
			reaches(place.Dead, dead...)
			reaches(place.Alive, "own")
			for _, node := range dead {
				w.set(w.alive, others[node], true)
			}
			pass(timeout / 2)
			reaches(place.Alive, "own", "n1", "n2", "n3")
		})
	}
}

// TestOneOfManyIsDead: a master that hears one of three others has more likely lost the network to
// two than seen them die: only the one that the second opinion confirms is dead.
func TestOneOfManyIsDead(t *testing.T) {
	inCluster(t, func(_ *testing.T, w *world, _ *Tracker, o *opinion, reaches func(place.Reach, ...string)) {
		o.mu.Lock()
		o.dead["n2"] = true
		o.mu.Unlock()
		w.set(w.alive, others["n1"], false)
		w.set(w.alive, others["n2"], false)
		pass(10 * timeout)
		reaches(place.Dead, "n2")
		reaches(place.Alive, "n1", "n3", "own")
		pass(2 * together * timeout) // n2 fell silent together with n1, however long ago
		reaches(place.Alive, "n1", "n3", "own")
	})
}

// TestOneDiesAfterAnother: a single node that dies is dead without a second opinion, also if
// another one has been dead for long.
func TestOneDiesAfterAnother(t *testing.T) {
	inCluster(t, func(_ *testing.T, w *world, _ *Tracker, _ *opinion, reaches func(place.Reach, ...string)) {
		for _, node := range []string{"n1", "n2"} {
			w.set(w.alive, others[node], false)
			pass(timeout + timeout/4 + time.Millisecond)
			reaches(place.Dead, node)
			pass(together * timeout)
		}
		reaches(place.Alive, "n3", "own")
		w.set(w.alive, others["n3"], false)
		pass(10 * timeout)
		reaches(place.Alive, "n3") // nobody is left to compare with
	})
}

// TestAnswerOutweighsTheOpinion: an answer that arrives while the second opinion is being asked
// takes precedence.
func TestAnswerOutweighsTheOpinion(t *testing.T) {
	inCluster(t, func(t *testing.T, w *world, tr *Tracker, o *opinion, reaches func(place.Reach, ...string)) {
		o.mu.Lock()
		o.dead = map[string]bool{"n1": true, "n2": true, "n3": true}
		o.takes = timeout/2 - time.Millisecond
		o.mu.Unlock()
		died := false
		tr.Subscribe(func(node string) { died = died || tr.Reach(node) == place.Dead })
		for _, a := range others {
			w.set(w.alive, a, false)
		}
		pass(timeout + timeout/4)
		for _, a := range others {
			w.set(w.alive, a, true)
		}
		pass(2 * timeout)
		reaches(place.Alive, "own", "n1", "n2", "n3")
	})
}

func TestTimeoutZeroAssumesReachable(t *testing.T) {
	w := newWorld()
	bubble(t, w, 0, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		pass(time.Hour)
		expect(t, tr, c, place.Alive, "n1 alive")
		if n := w.count("n1"); n != 0 {
			t.Errorf("probed %d times", n)
		}
	})
}

func TestTargetsComeAndGo(t *testing.T) {
	w := newWorld(v4)
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, c *changes) {
		tr.SetTargets(targets("n1"))
		pass(timeout)
		c.take()

		// The same targets in another order change nothing and cause no more probes.
		before := w.count("n1")
		tr.SetTargets(map[string][]netip.Addr{"own": {own}, "n1": {v6, v4}})
		pass(timeout)
		if n := w.count("n1") - before; n > 2*4+2 {
			t.Errorf("asked %d times in one timeout", n)
		}
		expect(t, tr, c, place.Alive)

		// Other addresses: the state stays until probes show otherwise.
		other := netip.MustParseAddr("10.244.9.2")
		tr.SetTargets(map[string][]netip.Addr{"own": {own}, "n1": {other}})
		expect(t, tr, c, place.Alive)
		pass(2 * timeout)
		expect(t, tr, c, place.Dead, "n1 dead")

		// Removed, or without addresses: unknown and not probed.
		tr.SetTargets(map[string][]netip.Addr{"own": {own}, "n1": {}})
		expect(t, tr, c, place.Unknown, "n1 unknown")
		before = w.count("n1")
		pass(5 * timeout)
		if n := w.count("n1") - before; n != 0 {
			t.Errorf("asked %d times after it ceased to be a target", n)
		}
		tr.SetTargets(nil)
		expect(t, tr, c, place.Unknown)
	})
}

func TestTargetsBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(newWorld(v4), timeout)
		tr.SetTargets(targets("n1", "n2"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tr.Run(ctx) }()
		pass(time.Millisecond)
		if !tr.Healthy("n1") || !tr.Healthy("n2") {
			t.Error("targets that were there before Run are not probed")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		tr.SetTargets(targets("n3")) // after the end: no probe starts
	})
}
