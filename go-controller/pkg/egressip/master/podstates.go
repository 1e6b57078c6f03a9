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

// podStates is the state of those that work on pods.
type podStates struct {
	mu           sync.Mutex
	byKey        map[string]*podState
	waiting      unprogrammedPods  // those that do not leave as they are to yet
	untranslated unprogrammedPods  // those that nodes which are to take addresses do not translate for yet
	decisions    map[string]uint64 // of each EgressIP, the number of that which made its pods undecided
	last         uint64            // the number of the last of these
	keptSNATs    map[string]bool   // those of keepLocalSNAT
	ctx          context.Context   // of Run
}

// podState is what is known of a pod besides its rows. The mutex of podStates guards
// it, but for what belongs to who works on the pod.
type podState struct {
	// busy: somebody works on the pod; again: its key is to come back then.
	busy, again bool
	idle        chan struct{} // closed when nobody does any more; nil: nobody waits for that
	gate        startGate
	waits       map[string]bool // what is waited for
	reached     []reached

	// Of who works on the pod: what is in force, of which incarnation.
	uid     types.UID
	inForce egressip.State
	known   bool // inForce says something
	node    string
	left    time.Time // when we learned that the pod is gone; zero: it is there
}

// reached is what a chassis has in force.
type reached struct {
	own      bool // the pod's, which has policies
	policies map[netip.Addr]egressip.Policy
	nats     map[egressip.Site]netip.Addr
	portGone bool // the pod's, which does not have its port any more
	// flushed: what was there before must be out of the chassis' memory, too.
	flushed bool
}

// startGate is that on a pod which is not to start yet.
type startGate struct {
	uid   types.UID
	since time.Time          // when we learned of it
	state egressip.StartGate // what its pod's plan says
	open  bool               // we took it away
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

// tryLock takes hold of a pod; it fails where somebody works on it, who brings its
// key back at the end.
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

// lock takes hold of a pod when nobody works on it any more.
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

// unlock lets go of pods, and returns those that are to be worked on again. One that nothing
// is to be known of is forgotten.
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

// observe takes over what was reached for a pod, and whether it bears the mark; it tells whether
// the pod has a gate, and how long that may hold it.
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
		if st.gate = (startGate{}); isPending(p) { // the mark of an earlier object is gone with it
			st.gate = startGate{uid: p.UID, since: time.Now()}
		}
	}
	return st.gate.uid == p.UID && !st.gate.open, podStartTimeout - time.Since(st.gate.since)
}

// silent tells whether the chassis of a pod is known to have heard that its port is gone.
func (s *podStates) silent(st *podState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(st.reached, func(r reached) bool { return r.portGone })
}

// end forgets a pod that is gone, when whoever works on it lets go of it.
func (s *podStates) end(st *podState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.uid, st.inForce, st.known, st.left, st.reached, st.gate = "", egressip.NewState(), false, time.Time{}, nil, startGate{}
}

// pending puts the gate on a pod that is about to get its addresses.
func (s *podStates) pending(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.state(key); st.gate.uid != uid {
		st.gate = startGate{uid: uid, since: time.Now()}
	}
}

// setGate notes what the plan of a pod says of its gate, and tells whether that may be opened.
func (s *podStates) setGate(st *podState, uid types.UID, gate egressip.StartGate) (opens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.gate.uid != uid || st.gate.open {
		return false
	}
	st.gate.state = gate
	return gate != egressip.Blocked
}

// gate returns the gate on a pod.
func (s *podStates) gate(key string) startGate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byKey[key]; st != nil {
		return st.gate
	}
	return startGate{}
}

// opened notes that the gate on a pod was taken away.
func (s *podStates) opened(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byKey[key]; st != nil && st.gate.uid == uid {
		st.gate.open = true
	}
}

// gated returns the pods that have a gate, and since when.
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

// undecided notes that another decision was made about an EgressIP: some pods of it neither
// leave as they are to, nor are translated for, until they were looked at.
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

// decision returns the number of the decision about an EgressIP, for planned. Who plans a pod
// asks before reading the decision.
func (s *podStates) decision(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decisions[name]
}

// planned notes how far a pod of an EgressIP is: settled where it leaves as it is to, translated
// where it keeps no address from being released to another node. It is neither where another
// decision was made since its plan: then its key comes back. It returns the EgressIPs whose
// statuses that changes.
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

// leaves notes that a pod has no EgressIP any more, as far as that is known, and returns the
// EgressIPs whose statuses that changes.
func (s *podStates) leaves(key string) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settle(key, "", true)
}

// free notes that a pod keeps no EgressIP from releasing addresses to other nodes, and returns
// the EgressIPs whose statuses that changes.
func (s *podStates) free(key string) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.translate(key, "")
}

// translate notes that a pod keeps no EgressIP but for one from releasing addresses, and
// returns those of which it was the last; mu is held.
func (s *podStates) translate(key, but string) (done []string) {
	for _, name := range s.untranslated.of(key) {
		if name != but && s.untranslated.remove(name, key) {
			done = append(done, name)
		}
	}
	return done
}

// settle notes whether a pod of an EgressIP, if it has one, leaves as it is to, and returns
// the EgressIPs of which all pods do now, or not any more; mu is held.
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

// translated tells whether the pods that an EgressIP had when its nodes were decided are
// translated for by those that are to take addresses. Later ones are led to them when
// they are.
func (s *podStates) translated(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.untranslated.count(name) == 0
}

// unsettled returns how many pods of an EgressIP do not leave as they are to yet.
func (s *podStates) unsettled(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.count(name)
}

// forget drops what is known of an EgressIP that is gone.
func (s *podStates) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.forget(name)
	s.untranslated.forget(name)
	delete(s.decisions, name)
}

// keepSNAT has the pod come back by keptPods; false where told is closed, and keptPods may
// have been called before.
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

// wait notes that a pod waits for something; false where it does already.
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

// arrived notes that pods need not wait for a chassis any more, which has what they wait for
// in force or not.
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

// run says that Run was called with a context.
func (s *podStates) run(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// context returns that of Run, or another one where a new pod comes before.
func (s *podStates) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return context.Background()
	}
	return s.ctx
}
