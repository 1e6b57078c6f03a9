package health

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// probesPerTimeout is how often a node is probed within the total timeout.
const probesPerTimeout = 4

// together is within how many timeouts nodes that fall silent one after the other may do so for the
// same reason.
const together = 30

// firstAnswers is how long Probed waits at most, however long nodes may be silent.
const firstAnswers = time.Second

// ErrFault is wrapped by errors that say nothing about the node because the probe could not be
// sent. They neither prove nor disprove that it is alive.
var ErrFault = errors.New("probe not sent")

// Prober probes a node once.
type Prober interface {
	// Probe returns nil if the node answered. It returns when ctx is done at the latest, and is
	// called concurrently.
	Probe(ctx context.Context, node string, addr netip.Addr) error
}

// Observer observes a Tracker for metrics. It must not block.
type Observer interface {
	// Probed reports the result of a probe; sent is false if it could not be sent.
	Probed(took time.Duration, answered, sent bool)
	// Changed reports the new state of a node and when it last answered, the zero time for never.
	// It is called before the subscribers. A node that is no longer a target is Unknown.
	Changed(node string, reach place.Reach, answered time.Time)
}

// Tracker keeps the state of each target node. It is safe for concurrent use.
type Tracker struct {
	prober  Prober
	timeout time.Duration

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	wg      sync.WaitGroup
	targets map[string]*target
	subs    []func(node string)
	own     string
	confirm func(ctx context.Context, node string) bool
	watcher Observer // nil: no metrics

	first      map[string]struct{} // the first targets of which nothing is known yet; nil before SetTargets
	firstKnown chan struct{}       // closed when none are left, or after firstAnswers
}

// target is a node that is probed; a change of its addresses makes a new target.
type target struct {
	node   string
	addrs  []netip.Addr
	cancel context.CancelFunc

	// Guarded by Tracker.mu:
	reach          place.Reach
	answer         time.Time // the last one
	took           time.Duration
	answeringSince time.Time // start of the current period of answers without a gap
	confirming     bool      // waiting for a second opinion
}

// NewTracker returns a tracker that probes with p. totalTimeout is how long a node may be silent; 0
// means that nodes are assumed to be reachable and none is probed.
func NewTracker(p Prober, totalTimeout time.Duration) *Tracker {
	return &Tracker{prober: p, timeout: totalTimeout, targets: map[string]*target{}, firstKnown: make(chan struct{})}
}

// SecondOpinion sets the name of the node on which this process runs, which does not count as a
// witness because it always hears itself, even while it is cut off. And it sets a function that
// reports whether a node is known to be dead from another source than probes. It is called if more
// than half of the nodes that were not dead are silent at once, since the cause is more likely on
// our side; without the function, nothing is concluded then. The function must return when ctx is
// done. SecondOpinion must be called before Run.
func (t *Tracker) SecondOpinion(own string, confirm func(ctx context.Context, node string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own, t.confirm = own, confirm
}

// Subscribe adds a function that is called after the state of a node has changed, and after a node
// became or ceased to be a target. It must not block. Subscribe must be called before Run.
func (t *Tracker) Subscribe(f func(node string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs = append(t.subs, f)
}

// Observe sets the observer. It must be called before Run.
func (t *Tracker) Observe(o Observer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watcher = o
}

// Each calls f with each target, its state, and how long its last answer took; 0 if there was none
// yet.
func (t *Tracker) Each(f func(node string, reach place.Reach, answer time.Duration)) {
	type state struct {
		reach place.Reach
		took  time.Duration
	}
	t.mu.Lock()
	states := make(map[string]state, len(t.targets))
	for node, tg := range t.targets {
		states[node] = state{tg.reach, tg.took}
	}
	t.mu.Unlock()
	for node, s := range states {
		f(node, s.reach, s.took)
	}
}

// Reach returns the state of a node; Unknown if it is not a target.
func (t *Tracker) Reach(node string) place.Reach {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tg, ok := t.targets[node]; ok {
		return tg.reach
	}
	return place.Unknown
}

// Probed is closed once each of the first targets has answered, or has been silent for a while:
// whoever chooses among nodes earlier only has those that happened to answer first, and gives them
// everything.
func (t *Tracker) Probed() <-chan struct{} { return t.firstKnown }

// awaitFirst starts to wait for answers of the first targets; t.mu is held.
func (t *Tracker) awaitFirst() {
	if t.first != nil {
		return
	}
	t.first = map[string]struct{}{}
	for node, tg := range t.targets {
		if tg.reach == place.Unknown {
			t.first[node] = struct{}{}
		}
	}
	t.known("")
	time.AfterFunc(min(t.timeout, firstAnswers), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		clear(t.first)
		t.known("")
	})
}

// known records that the state of a node is known, or that it is no longer a target; t.mu is held.
func (t *Tracker) known(node string) {
	delete(t.first, node)
	if t.first == nil || len(t.first) > 0 {
		return
	}
	select {
	case <-t.firstKnown:
	default:
		close(t.firstKnown)
	}
}

// Healthy reports whether a node is known to be reachable.
func (t *Tracker) Healthy(node string) bool { return t.Reach(node) == place.Alive }

// SetTargets replaces the nodes that are probed, with their addresses. A known node keeps its
// state; a node without addresses is not a target.
func (t *Tracker) SetTargets(targets map[string][]netip.Addr) {
	var changed []string
	t.mu.Lock()
	for node, tg := range t.targets {
		if len(targets[node]) == 0 {
			tg.stop()
			delete(t.targets, node)
			t.known(node)
			changed = append(changed, node)
			t.changed(node, place.Unknown, time.Time{})
		}
	}
	for node, addrs := range targets {
		if len(addrs) == 0 {
			continue
		}
		next := &target{node: node, addrs: sortedAddrs(addrs)}
		if t.timeout == 0 {
			next.reach = place.Alive
		}
		if old, ok := t.targets[node]; ok {
			if slices.Equal(old.addrs, next.addrs) {
				continue
			}
			old.stop()
			next.reach, next.answer, next.took, next.answeringSince = old.reach, old.answer, old.took, old.answeringSince
		} else {
			changed = append(changed, node)
		}
		t.targets[node] = next
		t.start(next)
	}
	t.awaitFirst()
	subs := t.subs
	t.mu.Unlock()
	slices.Sort(changed)
	for _, node := range changed {
		notify(subs, node)
	}
}

// Run probes the targets until ctx is done.
func (t *Tracker) Run(ctx context.Context) error {
	t.mu.Lock()
	t.ctx = ctx
	for _, tg := range t.targets {
		t.start(tg)
	}
	t.mu.Unlock()
	<-ctx.Done()
	t.mu.Lock()
	t.ctx = nil // no more targets are started
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}

// start starts to probe a target; t.mu is held.
func (t *Tracker) start(tg *target) {
	if t.ctx == nil || t.timeout == 0 {
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	tg.cancel = cancel
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		t.watch(ctx, tg)
	}()
}

func (tg *target) stop() {
	if tg.cancel != nil {
		tg.cancel()
	}
}

// watch probes one node until ctx is done.
func (t *Tracker) watch(ctx context.Context, tg *target) {
	interval := max(t.timeout/probesPerTimeout, time.Millisecond)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	// Buffered for every attempt that may be in flight, so that none stays blocked when the watch
	// ends.
	answers := make(chan error, 2*probesPerTimeout)
	var attempts sync.WaitGroup
	defer attempts.Wait()
	attempt := func() {
		attempts.Add(1)
		go func() {
			defer attempts.Done()
			sent := time.Now()
			err := t.probe(ctx, tg)
			t.probed(ctx, tg, time.Since(sent), err)
			select {
			case answers <- err:
			case <-ctx.Done():
			}
		}()
	}

	lastAnswer := time.Now() // start of the node's silence while we listened
	tick := lastAnswer
	attempt()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-answers:
			switch {
			case err == nil:
				lastAnswer = time.Now()
				t.answered(tg, lastAnswer)
				t.set(tg, place.Alive)
			case errors.Is(err, ErrFault):
				lastAnswer = time.Now()
				klog.V(4).InfoS("Probe could not be sent", "node", tg.node, "err", err)
			}
		case <-ticker.C:
			now := time.Now()
			if now.Sub(tick) > 2*interval {
				lastAnswer = now // we were suspended ourselves
			}
			tick = now
			// Give the probe sent at the timeout's last tick a chance, too.
			if now.Sub(lastAnswer) > t.timeout {
				t.timedOut(ctx, tg, lastAnswer, &attempts)
			}
			attempt()
		}
	}
}

// probed records the result of a probe, unless it was cancelled.
func (t *Tracker) probed(ctx context.Context, tg *target, took time.Duration, err error) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		tg.took = took
	}
	if t.watcher != nil {
		t.watcher.Probed(took, err == nil, !errors.Is(err, ErrFault))
	}
}

// changed reports a new state to the observer; t.mu is held.
func (t *Tracker) changed(node string, reach place.Reach, answered time.Time) {
	if t.watcher != nil {
		t.watcher.Changed(node, reach, answered)
	}
}

// answered records that a target answered.
func (t *Tracker) answered(tg *target, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.Sub(tg.answer) > t.timeout/2 {
		tg.answeringSince = at
	}
	tg.answer = at
}

// timedOut draws conclusions from the silence of a target for the whole timeout: it is dead if enough
// other nodes answer, or if the second opinion confirms it.
func (t *Tracker) timedOut(ctx context.Context, tg *target, since time.Time, wg *sync.WaitGroup) {
	t.mu.Lock()
	if tg.reach == place.Dead {
		t.mu.Unlock()
		return
	}
	if t.mostAnswered(tg, since) {
		t.mu.Unlock()
		t.set(tg, place.Dead)
		return
	}
	if t.confirm == nil || tg.confirming {
		t.mu.Unlock()
		return
	}
	tg.confirming = true
	t.mu.Unlock()
	wg.Add(1)
	go func() {
		defer wg.Done()
		t.confirmDead(ctx, tg, since)
	}()
}

// mostAnswered reports whether at least half of the nodes, not counting those that have been dead
// for long, answered well after tg fell silent; the own node does not count. The last answers
// before everything falls silent at once may be an interval apart, and so may be the first ones
// afterwards: a node that was silent as well must have answered for the whole timeout again. t.mu
// is held.
func (t *Tracker) mostAnswered(tg *target, since time.Time) bool {
	all, answered := 0, 0
	for _, other := range t.targets {
		switch {
		case other.node == t.own && other != tg:
		case other.answer.Sub(since) >= t.timeout/2 &&
			(other.answeringSince.Before(since) || other.answer.Sub(other.answeringSince) >= t.timeout):
			all++
			answered++
		case other.reach != place.Dead || since.Sub(other.answer) < together*t.timeout:
			all++
		}
	}
	return answered > 0 && 2*answered >= all
}

// confirmDead asks for the second opinion. An answer of the target in the meantime takes precedence.
func (t *Tracker) confirmDead(ctx context.Context, tg *target, since time.Time) {
	limited, cancel := context.WithTimeout(ctx, t.timeout/2)
	defer cancel()
	dead := false
	_ = panics.Catch("health", func() error {
		dead = t.confirm(limited, tg.node)
		return nil
	})
	t.mu.Lock()
	tg.confirming = false
	answered := tg.answer.After(since)
	t.mu.Unlock()
	switch {
	case answered || ctx.Err() != nil:
	case dead:
		t.set(tg, place.Dead)
	default:
		klog.V(2).InfoS("Too many nodes are silent at once, not treating this one as dead", "node", tg.node)
	}
}

// probe probes all addresses of a node at once. It returns nil on the first answer, an error that
// wraps ErrFault if no probe could be sent, and another one if the node was silent.
func (t *Tracker) probe(ctx context.Context, tg *target) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	results := make(chan error, len(tg.addrs))
	for _, addr := range tg.addrs {
		go func() {
			results <- panics.Catch("health", func() error { return t.prober.Probe(ctx, tg.node, addr) })
		}()
	}
	var noAnswer, fault error
	for range tg.addrs {
		switch err := <-results; {
		case err == nil:
			return nil
		case errors.Is(err, ErrFault):
			fault = err
		default:
			noAnswer = err
		}
	}
	if noAnswer != nil {
		return noAnswer
	}
	return fault
}

// set stores the state of a target, if it still is one, and notifies subscribers.
func (t *Tracker) set(tg *target, reach place.Reach) {
	t.mu.Lock()
	old := tg.reach
	if t.targets[tg.node] != tg || old == reach {
		t.mu.Unlock()
		return
	}
	tg.reach = reach
	t.known(tg.node)
	t.changed(tg.node, reach, tg.answer)
	subs := t.subs
	t.mu.Unlock()
	klog.V(2).InfoS("Reachability of a node changed", "node", tg.node, "from", old, "to", reach)
	notify(subs, tg.node)
}

func notify(subs []func(string), node string) {
	for _, f := range subs {
		f(node)
	}
}

func sortedAddrs(addrs []netip.Addr) []netip.Addr {
	s := slices.Clone(addrs)
	slices.SortFunc(s, netip.Addr.Compare)
	return slices.Compact(s)
}
