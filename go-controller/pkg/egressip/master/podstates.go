package master

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// podStates is the state of the queue of pods.
type podStates struct {
	mu           sync.Mutex
	byKey        map[string]*podState
	waiting      unprogrammedPods  // pods whose traffic does not leave as planned yet
	untranslated unprogrammedPods  // pods without a translation yet on a node that is to take an address
	decisions    map[string]uint64 // for each EgressIP, the number of the last decision about its nodes
	last         uint64            // the highest of these numbers
	keptSNATs    map[string]bool   // pods of keepLocalSNAT
	ctx          context.Context   // that Run was called with
}

// podState is the state of a pod besides its rows. The mutex of podStates guards it, except
// for the fields that belong to the holder of the pod's lock.
type podState struct {
	// busy: the pod is locked; again: its key is enqueued when it is unlocked.
	busy, again bool
	idle        chan struct{} // closed when the pod is unlocked; nil if nobody waits for that
	gate        startGate
	waits       map[string]bool // what the pod waits for, see await
	reached     []reached

	// These belong to the holder of the lock: what is in force for which incarnation.
	uid     types.UID
	inForce egressip.State
	known   bool // inForce is set
	node    string
	left    time.Time // when the pod was found to be gone; zero while it exists
}

// reached is what a chassis has put in force.
type reached struct {
	own      bool // the chassis is the pod's own and has the policies
	policies map[netip.Addr]egressip.Policy
	nats     map[egressip.Site]netip.Addr
	portGone bool // the chassis is the pod's own and no longer has its port
	// flushed: the datapath of the chassis must have dropped its cached flows, too.
	flushed bool
}

// startGate keeps a pod from starting before its policies are in force.
type startGate struct {
	uid   types.UID
	since time.Time          // when the gate was first seen
	state egressip.StartGate // according to the last plan of the pod
	open  bool               // the annotation has been removed
}

func newPodStates() *podStates {
	return &podStates{byKey: map[string]*podState{}, waiting: newUnprogrammedPods(), untranslated: newUnprogrammedPods(),
		decisions: map[string]uint64{}, keptSNATs: map[string]bool{}}
}

// state returns the state of a pod; mu is held.
func (s *podStates) state(key string) *podState {
	st := s.byKey[key]
	if st == nil {
		st = &podState{waits: map[string]bool{}, inForce: egressip.NewState()}
		s.byKey[key] = st
	}
	return st
}

// tryLock locks a pod. If the pod is locked already, tryLock fails, and unlock returns the pod's
// key so that it is enqueued.
func (s *podStates) tryLock(key string) (*podState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state(key)
	if st.busy {
		st.again = true
		return nil, false
	}
	st.busy = true
	return st, true
}

// lock locks a pod, and waits until it can.
func (s *podStates) lock(ctx context.Context, key string) (*podState, error) {
	for {
		s.mu.Lock()
		st := s.state(key)
		if !st.busy {
			st.busy = true
			s.mu.Unlock()
			return st, nil
		}
		if st.idle == nil {
			st.idle = make(chan struct{})
		}
		idle := st.idle
		s.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for who works on pod %s: %w", key, ctx.Err())
		}
	}
}

// unlock unlocks pods and returns those that are to be reconciled again. It forgets pods without
// any state.
func (s *podStates) unlock(keys ...string) (again []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		st := s.byKey[key]
		if st.again {
			again = append(again, key)
		}
		st.busy, st.again = false, false
		if st.idle != nil {
			close(st.idle)
			st.idle = nil
		}
		if st.uid == "" && st.gate == (startGate{}) && len(st.waits) == 0 {
			delete(s.byKey, key)
		}
	}
	return again
}

// observe updates the state of a pod with what chassis have put in force and with its pending
// annotation. It returns whether the pod has a start gate, and for how long that may still hold it.
func (s *podStates) observe(st *podState, p *corev1.Pod) (held bool, rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.uid != kube.PodUID(p) {
		st.uid, st.inForce, st.known, st.reached = kube.PodUID(p), egressip.NewState(), false, nil
	}
	st.node, st.left = p.Spec.NodeName, time.Time{}
	for _, r := range st.reached {
		if r.own {
			st.inForce.Policies = r.policies
		}
		maps.Copy(st.inForce.NATs, r.nats)
	}
	st.reached = nil
	if st.gate.uid != p.UID {
		if st.gate = (startGate{}); isPending(p) { // the gate of an earlier pod of the name is void
			st.gate = startGate{uid: p.UID, since: time.Now()}
		}
	}
	return st.gate.uid == p.UID && !st.gate.open, podStartTimeout - time.Since(st.gate.since)
}

// silent tells whether the pod's chassis is known to have removed the pod's port.
func (s *podStates) silent(st *podState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(st.reached, func(r reached) bool { return r.portGone })
}

// end clears the state of a pod that is gone, so that unlock forgets it.
func (s *podStates) end(st *podState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.uid, st.inForce, st.known, st.left, st.reached, st.gate = "", egressip.NewState(), false, time.Time{}, nil, startGate{}
}

// pending sets the start gate of a pod that is about to get its addresses.
func (s *podStates) pending(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.state(key); st.gate.uid != uid {
		st.gate = startGate{uid: uid, since: time.Now()}
	}
}

// setGate records the gate's state in the plan of a pod, and tells whether the gate may be opened.
func (s *podStates) setGate(st *podState, uid types.UID, gate egressip.StartGate) (opens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.gate.uid != uid || st.gate.open {
		return false
	}
	st.gate.state = gate
	return gate != egressip.Blocked
}

// gate returns the gate of a pod.
func (s *podStates) gate(key string) startGate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byKey[key]; st != nil {
		return st.gate
	}
	return startGate{}
}

// opened records that the gate of a pod was removed.
func (s *podStates) opened(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byKey[key]; st != nil && st.gate.uid == uid {
		st.gate.open = true
	}
}

// gated returns the pods that have a closed gate, with the times since which they have it.
func (s *podStates) gated() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	gated := map[string]time.Time{}
	for key, st := range s.byKey {
		if st.gate.uid != "" && !st.gate.open {
			gated[key] = st.gate.since
		}
	}
	return gated
}

// undecided records a new decision about the nodes of an EgressIP: until its pods have been planned
// again, they count as neither programmed nor translated.
func (s *podStates) undecided(name string, pods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.decisions[name] = s.last
	for _, pod := range pods {
		s.waiting.add(name, pod)
		s.untranslated.add(name, pod)
	}
}

// decision returns the number of the last decision about an EgressIP, for planned. A planner asks
// for the number before it reads the decision.
func (s *podStates) decision(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decisions[name]
}

// planned records the progress of a pod of an EgressIP: settled if its traffic leaves as planned,
// translated if it keeps no address from being released to another node. If there was a new
// decision since the pod was planned, it is neither; the decision has enqueued the pod's key. It
// returns the EgressIPs whose statuses change.
func (s *podStates) planned(key, name string, decision uint64, settled, translated bool) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decisions[name] != decision {
		settled, translated = false, false
	}
	but := name
	if translated {
		but = ""
	}
	return append(s.settle(key, name, settled), s.translate(key, but)...)
}

// leaves records that a pod no longer has an EgressIP, and returns the EgressIPs whose statuses
// change.
func (s *podStates) leaves(key string) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settle(key, "", true)
}

// free records that a pod keeps no EgressIP from releasing addresses to other nodes, and returns
// the EgressIPs whose statuses change.
func (s *podStates) free(key string) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.translate(key, "")
}

// translate records that a pod keeps no EgressIP from releasing addresses, except for but, and
// returns the EgressIPs for which it was the last such pod; mu is held.
func (s *podStates) translate(key, but string) (done []string) {
	for _, name := range s.untranslated.of(key) {
		if name != but && s.untranslated.remove(name, key) {
			done = append(done, name)
		}
	}
	return done
}

// settle records whether the traffic of a pod leaves as planned, and returns the EgressIPs for which
// this now holds, or no longer holds, for all pods; mu is held.
func (s *podStates) settle(key, name string, settled bool) (changed []string) {
	for _, other := range s.waiting.of(key) {
		if (settled || other != name) && s.waiting.remove(other, key) {
			changed = append(changed, other)
		}
	}
	if settled {
		return changed
	}
	if s.waiting.count(name) == 0 {
		changed = append(changed, name)
	}
	s.waiting.add(name, key)
	return changed
}

// translated tells whether the nodes that are to take addresses of an EgressIP translate for all
// pods that it had when the nodes were decided. Pods that came later are rerouted to a node only
// when it translates for them.
func (s *podStates) translated(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.untranslated.count(name) == 0
}

// unsettled returns the number of pods of an EgressIP whose traffic does not leave as planned yet.
func (s *podStates) unsettled(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.count(name)
}

// forget drops the state of an EgressIP that is gone.
func (s *podStates) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.forget(name)
	s.untranslated.forget(name)
	delete(s.decisions, name)
}

// keepSNAT makes keptPods return the pod. It returns false if told is closed, since keptPods may
// have been called by then.
func (s *podStates) keepSNAT(key string, told <-chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-told:
		return false
	default:
		s.keptSNATs[key] = true
		return true
	}
}

// keptPods returns the pods of keepSNAT, once.
func (s *podStates) keptPods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Collect(maps.Keys(s.keptSNATs))
	clear(s.keptSNATs)
	return keys
}

// wait records that a pod waits for something, and returns false if it already did.
func (s *podStates) wait(key, what string) (*podState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state(key)
	if st.waits[what] {
		return nil, false
	}
	st.waits[what] = true
	return st, true
}

// arrived ends the wait of pods for a chassis; inForce tells whether the chassis has what they
// waited for.
func (s *podStates) arrived(waiters []waiter, inForce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range waiters {
		delete(p.st.waits, p.what)
		if inForce {
			p.st.reached = append(p.st.reached, p.reached)
		}
	}
}

// run records the context that Run was called with.
func (s *podStates) run(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// context returns the context of Run, or the background context before Run was called.
func (s *podStates) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return context.Background()
	}
	return s.ctx
}
