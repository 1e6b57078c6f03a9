package egressip

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Pod is a pod of an EgressIP.
type Pod struct {
	// Key is "namespace/name".
	Key   string
	Addrs []netip.Addr
	// Pending: the pod has the pending annotation and cannot send yet.
	Pending bool
	// Late: the pod was Pending too long and is about to start. Hops that were written
	// meanwhile count only if their translations are in force.
	Late bool
	// NodeDown: the pod's node is considered dead. The node may merely be busy and continue to
	// forward the pod's traffic, but nothing else waits for it.
	NodeDown bool
}

// Path is a path out of the cluster for pods: an address that has a node.
type Path struct {
	Placement
	// Answered: the node reports that it answers for the address.
	Answered bool
	// Programmed: on a secondary network, the node has the rules of the pod.
	Programmed bool
	// Now is the node that still has the address, if another node is to have it and
	// pods can be led to the current one; the zero Placement if there is none.
	Now Placement
}

// Steering is the complete input for planning the rows of one pod.
type Steering struct {
	EgressIP EgressIP // zero: no EgressIP has the pod any more
	Pod      Pod
	Paths    []Path
	// Now is the state of the database. Applied is the state known to have reached the
	// chassis: for policies the pod's chassis, for each translation the chassis of its node.
	Now, Applied State
	// Unconfirmed: policies were written after those in Applied, so the pod's chassis may have
	// others than Applied says, even ones that are no longer in the database.
	Unconfirmed bool
	// Owned reports whether an address belongs to an EgressIP.
	Owned func(egressIP string, addr netip.Addr) bool
}

// Plan is the plan for the rows of a pod.
type Plan struct {
	Want State
	// Await are the nodes whose chassis must have the translations in force before the plan can
	// proceed. Self reports the same for the pod's chassis and the policies.
	Await []string
	Self  bool
	// Released: as far as this pod is concerned, it may send: all outgoing traffic has an
	// egress address, or is dropped because the user wants that.
	Released bool
	// Lingers: translations are kept until the policies lead elsewhere.
	Lingers bool
	// Done: nothing remains to be done or waited for.
	Done bool
}

// StartGate says whether a pod that has the pending annotation may start.
type StartGate uint8

// The states of a StartGate.
const (
	Blocked  StartGate = iota
	Open               // the pod's traffic leaves as intended
	TimedOut           // the pod was planned as late: its chassis drops untranslated traffic
)

// StartGate returns the StartGate of the planned pod, which matters only if the pod has the pending annotation.
func (p Plan) StartGate(pod Pod) StartGate {
	switch {
	case p.Released:
		return Open
	case pod.Late && !p.Self:
		return TimedOut
	}
	return Blocked
}

// Plan plans the rows of a pod according to docs/design/egress-ip.md.
func (s Steering) Plan() Plan {
	plan := Plan{Want: NewState(), Released: true, Done: true}
	if plan.Want.EgressIP = s.EgressIP.Key; s.EgressIP.Key == "" {
		plan.Want.EgressIP = s.Now.EgressIP
	}
	for _, pod := range s.Pod.Addrs {
		if s.EgressIP.Serves(topology.FamilyOf(pod)) {
			s.address(&plan, pod)
		}
	}
	plan.Self = s.Unconfirmed || !s.Applied.SamePolicies(plan.Want) || !s.Now.SamePolicies(plan.Want)
	if plan.Self {
		plan.Released, plan.Done = false, plan.Done && s.Pod.NodeDown
	}
	s.linger(&plan)
	slices.Sort(plan.Await)
	plan.Await = slices.Compact(plan.Await)
	return plan
}

// Rerouted returns the addresses of the pod that have a policy, or get one once a path is ready. The
// others leave as they would without the EgressIP, so nothing may be arranged for them.
func (s Steering) Rerouted() []netip.Addr {
	var addrs []netip.Addr
	for _, pod := range s.Pod.Addrs {
		if len(s.pathsOf(pod)) > 0 || s.EgressIP.DropWhenUnavailable && s.EgressIP.Serves(topology.FamilyOf(pod)) {
			addrs = append(addrs, pod)
		}
	}
	return addrs
}

// address plans the rows of one address of the pod.
func (s Steering) address(plan *Plan, pod netip.Addr) {
	paths := s.pathsOf(pod)
	was, had := s.Now.Policies[pod]
	if len(paths) == 0 {
		if s.EgressIP.DropWhenUnavailable {
			plan.Want.Policies[pod] = Policy{EgressIP: s.EgressIP.Key}
		}
		return
	}
	for i, p := range paths {
		if now, ok := s.through(p, was); ok {
			paths[i], plan.Done = now, false
		}
	}
	kept := s.kept(paths, pod, was)
	policy := Policy{EgressIP: s.EgressIP.Key}
	for _, p := range paths {
		if s.ready(p, pod, was, kept) {
			policy.addHop(p.NextHop, p.Addr)
			continue
		}
		plan.Done = false
		if hop, ok := kept[p.Addr]; ok {
			policy.addHop(hop, p.Addr)
		}
	}
	slices.SortFunc(policy.Hops, netip.Addr.Compare)
	stay := !s.Pod.Late && len(policy.Hops) == 0 && len(was.Hops) > 0 && s.mayStay(pod, was)
	switch {
	case stay:
		policy = was
	case len(policy.Hops) == 0:
		plan.Released = false
	}
	if len(policy.Hops) > 0 || had || s.Pod.Pending || s.Pod.Late || s.EgressIP.DropWhenUnavailable {
		plan.Want.Policies[pod] = policy
	}
	for _, p := range paths {
		s.translate(plan, p, pod, stay, kept)
	}
	for site, addr := range s.Now.NATs {
		_, other := plan.Want.NATs[site]
		_, keep := kept[addr]
		if site.Pod == pod && !other && (stay || keep) {
			plan.Want.NATs[site] = addr
		}
	}
}

// ready reports whether traffic may be led to a path. A path that the database already uses
// counts as ready.
func (s Steering) ready(p Path, pod netip.Addr, was Policy, kept map[netip.Addr]netip.Addr) bool {
	routed := was.EgressIP == s.EgressIP.Key && slices.Contains(was.Hops, p.NextHop)
	for other, hop := range kept {
		if hop == p.NextHop && other != p.Addr {
			return false // the other address's connections use this hop until its new path is ready
		}
	}
	if !p.Primary {
		return routed && !s.Pod.Late || p.Answered && p.Programmed
	}
	site := Site{pod, p.Node}
	now, has := s.Now.NATs[site]
	switch {
	case now == p.Addr && routed && !s.Pod.Late:
		return true
	case !p.Answered:
		return false
	case s.Pod.Pending, s.Applied.NATs[site] == p.Addr:
		return true
	}
	// The router gives another address now: the exchange changes a single row.
	return has && now != p.Addr && slices.Contains(was.Hops, p.NextHop)
}

// mayStay reports whether a pod's traffic may stay as it is until another path
// is ready: the addresses it uses still belong to its EgressIP.
func (s Steering) mayStay(pod netip.Addr, was Policy) bool {
	for _, addr := range was.Egress { // on a secondary network nothing else tells which address a pod uses
		if !s.Owned(was.EgressIP, addr) {
			return false
		}
	}
	translated := false
	for site, addr := range s.Now.NATs {
		if site.Pod != pod {
			continue
		}
		if !s.Owned(was.EgressIP, addr) {
			return false
		}
		translated = true
	}
	return translated || was.EgressIP == s.EgressIP.Key
}

// translate plans the translation of a path and what to wait for.
func (s Steering) translate(plan *Plan, p Path, pod netip.Addr, stay bool, kept map[netip.Addr]netip.Addr) {
	if !p.Primary {
		return
	}
	site := Site{pod, p.Node}
	if now, ok := s.Now.NATs[site]; ok && now != p.Addr {
		// A translation that no policy leads to any more blocks the one that is waited for.
		used := slices.Contains(s.Now.Policies[pod].Hops, p.NextHop) || slices.Contains(s.Applied.Policies[pod].Hops, p.NextHop)
		if _, keep := kept[now]; stay && used || keep {
			plan.Want.NATs[site] = now
			return
		}
	}
	plan.Want.NATs[site] = p.Addr
	was := s.Now.Policies[pod]
	done := !s.Pod.Pending && !s.Pod.Late && s.Now.NATs[site] == p.Addr && was.EgressIP == s.EgressIP.Key && slices.Contains(was.Hops, p.NextHop)
	if s.Applied.NATs[site] == p.Addr || done {
		return
	}
	plan.Await = append(plan.Await, p.Node)
	plan.Done = false
	if slices.Contains(plan.Want.Policies[pod].Hops, p.NextHop) {
		plan.Released = false
	}
}

// linger keeps translations that are no longer needed until the policies that
// lead elsewhere are in force. Translations of a dead node are kept, too: the node may be
// restarting, and traffic led to it until then would leave with the node's own address.
func (s Steering) linger(plan *Plan) {
	if !plan.Self {
		return
	}
	for site, addr := range s.Now.NATs {
		_, wanted := plan.Want.NATs[site]
		led := s.Unconfirmed || len(s.Now.Policies[site.Pod].Hops)+len(s.Applied.Policies[site.Pod].Hops) > 0
		if !wanted && led && slices.Contains(s.Pod.Addrs, site.Pod) {
			plan.Want.NATs[site], plan.Lingers = addr, true
		}
	}
}
