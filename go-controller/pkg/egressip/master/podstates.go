package master

import (
	"context"
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

// podStates is the state of the pod workers.
type podStates struct {
	mu           sync.Mutex
	byKey        map[string]*podState
	waiting      unprogrammedPods         // pods whose traffic does not leave as intended yet
	untranslated unprogrammedPods         // pods that their EgressIPs' next nodes do not translate for yet
	decisions    map[string]uint64        // by EgressIP, the number of the last decision that reset its pods
	last         uint64                   // the last number given to a decision
	keptSNATs    map[string]bool          // the pods of keepLocalSNAT
	planning     map[string]bool          // the pods whose keys the workers have
	patiences    map[string]time.Duration // by dead node, the limit of the next wait for its chassis
	ctx          context.Context          // the context of Run
}

// podState is the state of a pod in addition to its rows. The mutex of podStates guards
// it, except for the fields that belong to the worker that has the pod's key.
type podState struct {
	port    *port // to be written with the rows of the pod; nil: none
	gate    startGate
	waits   map[string]bool // the pending waits of the pod
	reached []reached
	late    map[string]late // its waits that were in vain

	// The worker owns the following fields: the state in force, and the UID of the pod it belongs to.
	uid     types.UID
	applied egressip.State
	known   bool // applied is valid
	// written and confirmed are the numbers of the last write of the pod's policies, and of the last
	// one that its chassis had in force.
	written, confirmed uint64
	translated         uint64 // the number of the last write of the pod's translations
	node               string
	left               time.Time // when we learned of the pod's deletion; zero: the pod exists
	former             formerPod
}

// begin sets the state in force on the first pass. If the database has a translation that no policy leads to,
// the previous leader may have changed the policies just before.
func (st *podState) begin(applied, now egressip.State) {
	st.applied, st.known = applied, true
	if now.Unused() {
		st.written++
	}
}

// writes records that policies or translations are about to be replaced, even if the outcome will be unknown.
func (st *podState) writes(now, want egressip.State) {
	if !now.SamePolicies(want) {
		st.written++
	}
	if !maps.Equal(now.NATs, want.NATs) {
		st.translated++
	}
}

// wrote records what is in the database. Translations that are not will soon be out of force.
func (st *podState) wrote(want egressip.State) {
	maps.DeleteFunc(st.applied.NATs, func(site egressip.Site, addr netip.Addr) bool { return want.NATs[site] != addr })
}

// unconfirmed reports whether the pod's chassis may have other policies than the last ones that it confirmed.
func (st *podState) unconfirmed() bool { return st.written != st.confirmed }

// reached is a state that a chassis has in force.
type reached struct {
	own      bool // of the pod's own chassis, which has the policies
	policies map[netip.Addr]egressip.Policy
	number   uint64 // of the write of the policies, or of the translations
	nats     map[egressip.Site]netip.Addr
	portGone bool // of the pod's own chassis, which has removed the port of the pod with this UID
	uid      types.UID
	// flushed: the previous flows must be flushed from the chassis' datapath, too.
	flushed bool
}

// same reports whether r and other are the same rows, written at the same time.
func (r reached) same(other reached) bool {
	return r.own == other.own && r.number == other.number && !r.portGone && maps.Equal(r.nats, other.nats) &&
		egressip.State{Policies: r.policies}.SamePolicies(egressip.State{Policies: other.policies})
}

// late is a wait that was in vain: what was waited for, and since when.
type late struct {
	reached
	since *point
}

// startGate keeps a pod from starting.
type startGate struct {
	uid   types.UID
	since time.Time          // when we learned of it
	state egressip.StartGate // according to the pod's plan
	shown bool               // a pass has seen the annotation
	open  bool               // the annotation has been removed, by us or by somebody else
}

func newPodStates() *podStates {
	return &podStates{byKey: map[string]*podState{}, waiting: newUnprogrammedPods(), untranslated: newUnprogrammedPods(),
		decisions: map[string]uint64{}, keptSNATs: map[string]bool{}, planning: map[string]bool{}, patiences: map[string]time.Duration{}}
}

// state returns the state of a pod, creating it if necessary; mu is held.
func (s *podStates) state(key string) *podState {
	st := s.byKey[key]
	if st == nil {
		st = &podState{waits: map[string]bool{}, late: map[string]late{}, applied: egressip.NewState()}
		s.byKey[key] = st
	}
	return st
}

// get returns the state of a pod for the worker that has its key, creating it if necessary.
func (s *podStates) get(key string) *podState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state(key)
}

// plans records that a worker has the keys of pods and may read their addresses from now on.
func (s *podStates) plans(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.planning[key] = true
	}
}

// isPlanning reports whether a worker has the key of a pod.
func (s *podStates) isPlanning(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.planning[key]
}

// clean removes pods without any state, and records that the worker no longer has their keys. Only that worker
// may call it.
func (s *podStates) clean(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.planning, key)
		st := s.byKey[key]
		if st != nil && st.uid == "" && st.left.IsZero() && st.former == (formerPod{}) && st.gate == (startGate{}) && len(st.waits) == 0 && st.port == nil {
			delete(s.byKey, key)
		}
	}
}

// hand leaves a port to the worker of its pod's key.
func (s *podStates) hand(key string, port *port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state(key).port = port
}

// hasPort reports whether a port was left for the worker of a pod's key.
func (s *podStates) hasPort(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byKey[key]
	return st != nil && st.port != nil
}

// takePort returns the port that was left for the worker of a pod's key; nil: none.
func (s *podStates) takePort(key string) *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byKey[key]
	if st == nil {
		return nil
	}
	port := st.port
	st.port = nil
	return port
}

// observe applies the states reached by a pod's chassis and checks its pending annotation. It returns whether
// the pod has a gate, and how long the gate may still hold it.
func (s *podStates) observe(st *podState, p *corev1.Pod) (held bool, rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.uid != kube.PodUID(p) {
		st.succeed()
		st.uid, st.applied, st.known = kube.PodUID(p), egressip.NewState(), false
		st.reached = slices.DeleteFunc(st.reached, func(r reached) bool { return !r.portGone })
		clear(st.late)
	}
	st.node, st.left = p.Spec.NodeName, time.Time{}
	for _, r := range st.reached {
		if r.own {
			st.applied.Policies, st.confirmed = r.policies, r.number
		}
		if r.number == st.translated { // otherwise they were changed meanwhile, perhaps back, and are waited for anew
			maps.Copy(st.applied.NATs, r.nats)
		}
		st.former.gone = st.former.gone || r.of(st.former.uid)
	}
	st.reached = nil
	if st.gate.uid != p.UID {
		if st.gate = (startGate{}); isPending(p) { // the annotation of an earlier object is gone with it
			st.gate = startGate{uid: p.UID, since: time.Now()}
		}
	}
	st.gate.shown = st.gate.shown || st.gate.uid == p.UID && isPending(p)
	return st.gate.uid == p.UID && !st.gate.open, podStartTimeout - time.Since(st.gate.since)
}

// portRemoved reports whether the chassis of the pod with a UID is known to have processed the removal of its
// port.
func (s *podStates) portRemoved(st *podState, uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(st.reached, func(r reached) bool { return r.of(uid) })
}

// end clears the state of a deleted pod, which clean then removes.
func (s *podStates) end(st *podState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.uid, st.applied, st.known, st.left, st.reached, st.gate = "", egressip.NewState(), false, time.Time{}, nil, startGate{}
	st.former = formerPod{}
	clear(st.late)
}

// pending sets the gate of a pod that is about to get its addresses.
func (s *podStates) pending(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.state(key); st.gate.uid != uid {
		st.gate = startGate{uid: uid, since: time.Now()}
	}
}

// notPending removes the closed gate of a pod that was about to get the pending annotation, but does not get it.
func (s *podStates) notPending(key string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byKey[key]; st != nil && st.gate.uid == uid && !st.gate.open {
		st.gate = startGate{}
	}
}

// lostPending reports whether a pod had the pending annotation in an earlier pass, but does not have it now although
// its gate is closed.
func (s *podStates) lostPending(st *podState, p *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.gate.uid == p.UID && st.gate.shown && !st.gate.open && !isPending(p)
}

// setGate records the gate state from a pod's plan, and returns whether the gate may be opened.
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

// opened records that the gate of a pod was opened. It returns the gate, and whether that is new.
func (s *podStates) opened(key string, uid types.UID) (gate startGate, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byKey[key]
	if st == nil || st.gate.uid != uid || st.gate.open {
		return startGate{}, false
	}
	st.gate.open = true
	return st.gate, true
}

// gated returns the pods whose gate is closed, and since when.
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

// resetProgress records that the decision for an EgressIP changed: until its pods have been
// reconciled, they count as neither settled nor translated.
func (s *podStates) resetProgress(name string, pods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.decisions[name] = s.last
	for _, pod := range pods {
		s.waiting.add(name, pod)
		s.untranslated.add(name, pod)
	}
}

// decision returns the number of the decision for an EgressIP, for planned. The planner of a pod
// calls it before reading the decision.
func (s *podStates) decision(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decisions[name]
}

// planned records the progress of a pod of an EgressIP: settled if its traffic leaves as intended, translated
// if it does not keep an address from being released to another node. It counts as neither if another
// decision was made since its plan: then its key is enqueued again. planned returns the EgressIPs whose
// statuses change.
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

// leaves records that a pod has no EgressIP any more, as far as is known, and returns the
// EgressIPs whose statuses change.
func (s *podStates) leaves(key string) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settle(key, "", true)
}

// free records that a pod does not keep any EgressIP from releasing addresses to other nodes, and returns
// the EgressIPs whose statuses change.
func (s *podStates) free(key string) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.translate(key, "")
}

// translate records that a pod keeps no EgressIP other than but from releasing addresses, and
// returns the EgressIPs for which it was the last such pod; mu is held.
func (s *podStates) translate(key, but string) (done []string) {
	for _, name := range s.untranslated.of(key) {
		if name != but && s.untranslated.remove(name, key) {
			done = append(done, name)
		}
	}
	return done
}

// settle records whether the traffic of a pod of an EgressIP, if it has one, leaves as intended. It
// returns the EgressIPs for which this now holds, or no longer holds, for all pods; mu is held.
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

// translated reports whether the pods that an EgressIP had at the time of its decision are
// translated by the nodes that are to take addresses. Later pods are led to these nodes only once
// they are translated.
func (s *podStates) translated(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.untranslated.count(name) == 0
}

// unsettled returns the number of pods of an EgressIP whose traffic does not leave as intended yet.
func (s *podStates) unsettled(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.count(name)
}

// forget removes the state of a deleted EgressIP.
func (s *podStates) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.forget(name)
	s.untranslated.forget(name)
	delete(s.decisions, name)
}

// keepSNAT adds the pod to keptPods. It returns false if done is closed, since keptPods may
// already have been called.
func (s *podStates) keepSNAT(key string, done <-chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-done:
		return false
	default:
		s.keptSNATs[key] = true
		return true
	}
}

// keptPods returns and clears the pods added by keepSNAT.
func (s *podStates) keptPods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Collect(maps.Keys(s.keptSNATs))
	clear(s.keptSNATs)
	return keys
}

// wait records that a pod waits for something; it returns false if it already does. If it has waited for that in
// vain, wait returns since when; otherwise nil.
func (s *podStates) wait(key, what string, r reached) (*podState, *point, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state(key)
	if st.waits[what] {
		return nil, nil, false
	}
	st.waits[what] = true
	if last := st.late[what]; last.same(r) {
		return st, last.since, true
	}
	return st, nil, true
}

// arrived records that pods no longer wait for a chassis. applied reports whether the chassis has
// their changes, as of since, in force.
func (s *podStates) arrived(waiters []waiter, since *point, applied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range waiters {
		delete(p.st.waits, p.what)
		delete(p.st.late, p.what)
		if applied {
			p.st.reached = append(p.st.reached, p.reached)
		} else {
			p.st.late[p.what] = late{p.reached, since}
		}
	}
}

// run sets the context of Run.
func (s *podStates) run(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// context returns the context of Run, or a background context if a new pod arrives before Run is called.
func (s *podStates) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return context.Background()
	}
	return s.ctx
}
