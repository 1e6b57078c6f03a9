package egressip

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/nbshow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// cluster is the dual-stack cluster of the documentation.
var cluster = Network{
	Cluster: prefixes("10.244.0.0/16", "fd00:10:244::/48"), Service: prefixes("10.96.0.0/16", "fd00:10:96::/112"),
	Join: prefixes("100.64.0.0/16", "fd98::/64"), Masquerade: prefixes("169.254.169.0/29", "fd69::/125"),
}

// node returns the nodes of the documentation: the number is that of the pod subnets.
// The workers may hold egress addresses, and are also on the network 172.19.0.0/24.
func node(name string, number int, change ...func(*place.Node)) place.Node {
	primary := prefixes(fmt.Sprintf("172.18.0.%d/16", number+2), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", number+2))
	n := place.Node{Reach: place.Alive, Node: topology.Node{
		Name: name, Ready: true, EgressAssignable: strings.HasPrefix(name, "ovn-worker"), Chassis: "chassis-" + name,
		Subnets: prefixes(fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:10:244:%d::/64", number+1)),
		Join:    prefixes(fmt.Sprintf("100.64.0.%d/16", number+2), fmt.Sprintf("fd98::%d/64", number+2)),
		Primary: primary,
		Host:    append(slices.Clone(primary), prefixes(fmt.Sprintf("172.19.0.%d/24", number+2))...),
		Gateway: topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_" + name, MAC: "02:42:ac:12:00:02",
			Addrs: primary, NextHops: addrs("172.18.0.1")},
	}}
	for _, f := range change {
		f(&n)
	}
	return n
}

func dead(n *place.Node)       { n.Reach = place.Dead }
func unknown(n *place.Node)    { n.Reach = place.Unknown }
func notReady(n *place.Node)   { n.Ready = false }
func cordoned(n *place.Node)   { n.Unschedulable = true }
func draining(n *place.Node)   { n.Draining = true }
func unlabelled(n *place.Node) { n.EgressAssignable = false }
func unlinked(n *place.Node)   { n.Host = slices.Clone(n.Primary) }

type change = []func(*place.Node)

func nodes(worker, worker2 change) []place.Node {
	return []place.Node{node("ovn-control-plane", 0), node("ovn-worker", 1, worker...), node("ovn-worker2", 2, worker2...)}
}

var allWell = nodes(nil, nil)

var born = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func egress(name string, age int, ips []v1.Address, change ...func(*v1.EgressIP)) *v1.EgressIP {
	e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1,
		CreationTimestamp: metav1.Time{Time: born.Add(-time.Duration(age) * time.Hour)}}}
	e.Spec.EgressIPs = ips
	e.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
	for _, f := range change {
		f(e)
	}
	return e
}

func hold(e *v1.EgressIP) { e.Spec.OnUnavailable = v1.UnavailableDrop }

func of(app string) func(*v1.EgressIP) {
	return func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": app} }
}

// testPod is a pod on a node. One that is pending cannot send yet.
type testPod struct {
	node, app string
	pending   bool
	addrs     []netip.Addr
}

// state is the complete state in the API and the health tracker at one time.
type state struct {
	nodes  []place.Node
	egress []*v1.EgressIP
	pods   map[string]testPod
}

// world follows states like masters, nodes and ovn-controllers do, with their steps in
// any order. Its memory is the statuses and the rows; the master's knowledge of rows
// in force is lost with a restart.
type world struct {
	r      *rand.Rand
	state  state
	status map[string]*v1.EgressIPStatus
	rows   map[string][]nb.Row

	decisions map[string]Decision
	known     map[string]State // in force, as far as the master knows
	released  map[string]bool
	members   *Members

	// The actual state in force: the policies of pods, and the translations, by pod.
	policies map[string]map[netip.Addr]Policy
	nats     map[string]map[Site]netip.Addr

	wrong []string // violations
}

func newWorld() *world {
	return &world{r: rand.New(rand.NewPCG(5, 6)), status: map[string]*v1.EgressIPStatus{}, rows: map[string][]nb.Row{},
		decisions: map[string]Decision{}, known: map[string]State{}, released: map[string]bool{}, members: NewMembers(),
		policies: map[string]map[netip.Addr]Policy{}, nats: map[string]map[Site]netip.Addr{}}
}

func (w *world) restart() {
	w.decisions, w.known, w.members = map[string]Decision{}, map[string]State{}, NewMembers()
}

func (w *world) node(name string) (place.Node, bool) {
	i := slices.IndexFunc(w.state.nodes, func(n place.Node) bool { return n.Name == name })
	if i < 0 {
		return place.Node{}, false
	}
	return w.state.nodes[i], true
}

// acts reports whether a node is active.
func (w *world) acts(name string) bool {
	n, ok := w.node(name)
	return ok && n.Reach != place.Dead
}

// selection returns the selection of all EgressIPs.
func (w *world) selection() *Selection {
	all := NewSelection()
	for _, e := range w.state.egress {
		all.Set(e)
	}
	return all
}

// place is the master's placement and status.
func (w *world) place() (changed bool) {
	var all []EgressIP
	live := map[string]bool{}
	for _, e := range w.state.egress {
		live[e.Name] = true
		if w.status[e.Name] == nil {
			w.status[e.Name] = &v1.EgressIPStatus{}
		}
		e := e.DeepCopy()
		e.Status = *w.status[e.Name].DeepCopy()
		d := Decode(e)
		if last, ok := w.decisions[e.Name]; ok {
			d.Items = last.Nodes()
		}
		all = append(all, d)
	}
	maps.DeleteFunc(w.status, func(name string, _ *v1.EgressIPStatus) bool { return !live[name] })
	w.decisions = Decide(w.state.nodes, all, cluster)
	for key, d := range w.decisions {
		status := w.status[key]
		words := slices.DeleteFunc(slices.Clone(status.Programmed), func(p v1.ProgrammedStatus) bool { return !w.acts(p.Node) })
		items := d.Assign(v1.EgressIPStatus{Items: status.Items, Programmed: words}, func(Placement) bool { return w.translated(key) })
		if !slices.Equal(status.Items, items) || len(words) != len(status.Programmed) {
			status.Items, status.Programmed, changed = items, DropAwaiting(words, items), true
		}
	}
	return changed
}

// take is a node's part: it releases addresses that are not assigned to it, and takes assigned ones
// that no other node holds.
func (w *world) take(name string) (changed bool) {
	if !w.acts(name) {
		return false
	}
	for key, status := range w.status {
		nodeStatus := v1.ProgrammedStatus{Node: name}
		var secondary []netip.Addr
		for _, item := range ItemsOf(*status, name) {
			a := netip.MustParseAddr(item.EgressIP)
			if item.Node == name && item.From != "" {
				nodeStatus.Awaiting = append(nodeStatus.Awaiting, item.EgressIP)
			}
			if Answers(*status, name, a) || Next(false, *status, name, a).Answers() && !w.heldElsewhere(key, name, a) {
				nodeStatus.EgressIPs = append(nodeStatus.EgressIPs, item.EgressIP)
				if strings.HasPrefix(item.EgressIP, "172.19") {
					secondary = append(secondary, a)
				}
			}
		}
		nodeStatus.Digest = w.members.Digest(key, secondary)
		if len(secondary) == 0 {
			nodeStatus.Digest = ""
		}
		i := slices.IndexFunc(status.Programmed, func(p v1.ProgrammedStatus) bool { return p.Node == name })
		switch {
		case i < 0 && len(nodeStatus.EgressIPs)+len(nodeStatus.Awaiting) == 0:
			continue
		case i < 0:
			status.Programmed = append(status.Programmed, nodeStatus)
		case SameNodeStatus(status.Programmed[i], nodeStatus):
			continue
		case len(nodeStatus.EgressIPs)+len(nodeStatus.Awaiting) == 0:
			status.Programmed = slices.Delete(status.Programmed, i, i+1)
		default:
			status.Programmed[i] = nodeStatus
		}
		changed = true
	}
	return changed
}

// heldElsewhere reports whether a node's status entry for another EgressIP lists an
// address, which has moved away from that EgressIP.
func (w *world) heldElsewhere(key, name string, a netip.Addr) bool {
	for other, status := range w.status {
		if other != key && Other(*status, name, a) != "" {
			return true
		}
	}
	return false
}

// steer is the master's part for one pod.
func (w *world) steer(key string) (changed bool) {
	p, ok := w.state.pods[key]
	var chosen []string
	if ok {
		chosen = w.selection().Matching(nil, map[string]string{"app": p.app})
	}
	w.members.Set(key, chosen, p.addrs)
	if len(chosen) == 0 {
		return w.deselect(key, ok)
	}
	d, ok := w.decisions[chosen[0]]
	if !ok {
		return false
	}
	s := w.steering(key, chosen[0], d)
	applied, plan := s.Applied, s.Plan()
	w.checkHeld(key, s, plan)
	rows := plan.Want.Rows()
	changed = text(rows) != text(w.rows[key])
	w.rows[key] = rows
	maps.DeleteFunc(applied.NATs, func(s Site, a netip.Addr) bool { return plan.Want.NATs[s] != a })
	w.known[key] = applied
	if plan.Released && w.pending(key) {
		w.released[key], changed = true, true
	}
	return changed
}

// steering returns the input for planning a pod that an EgressIP has.
func (w *world) steering(key, name string, d Decision) Steering {
	p := w.state.pods[key]
	i := slices.IndexFunc(w.state.egress, func(e *v1.EgressIP) bool { return e.Name == name })
	s := Steering{
		EgressIP: Decode(w.state.egress[i]),
		Pod:      Pod{Key: key, Addrs: p.addrs, Pending: w.pending(key)},
		Paths:    d.Paths(*w.status[name], p.addrs, func(given []netip.Addr) string { return w.members.Digest(name, given) }, w.live),
		Now:      StateOf(w.rows[key]), Applied: NewState(), Owned: w.owned,
	}
	if applied, known := w.known[key]; known {
		s.Applied = applied
	} else if !w.pending(key) {
		s.Applied = s.Used()
	}
	return s
}

// translated reports whether the nodes that are to take the addresses of an EgressIP translate
// for its pods.
func (w *world) translated(name string) bool {
	all := w.selection()
	for key, p := range w.state.pods {
		chosen := all.Matching(nil, map[string]string{"app": p.app})
		if len(chosen) > 0 && chosen[0] == name && w.acts(p.node) && !w.steering(key, name, w.decisions[name]).Translated() {
			return false
		}
	}
	return true
}

// live returns a node by name if it is not dead.
func (w *world) live(name string) (topology.Node, bool) {
	n, ok := w.node(name)
	return n.Node, ok && w.acts(name)
}

// deselect is the master's part for a pod without an EgressIP; is says whether the pod exists.
func (w *world) deselect(key string, is bool) (changed bool) {
	now := StateOf(w.rows[key])
	applied, known := w.known[key]
	if !known {
		applied = now.Clone()
	}
	plan := Steering{Pod: Pod{Addrs: now.Addrs()}, Now: now, Applied: applied, Owned: w.owned}.Plan()
	if !is {
		plan = Plan{Want: NewState()}
	}
	rows := plan.Want.Rows()
	changed = text(rows) != text(w.rows[key])
	w.rows[key], w.known[key] = rows, applied
	if len(rows) == 0 {
		delete(w.rows, key)
	}
	if !plan.Self {
		delete(w.known, key)
	}
	return changed
}

// checkHeld records new next hops whose nodes do not hold the address.
func (w *world) checkHeld(key string, s Steering, plan Plan) {
	for pod, policy := range plan.Want.Policies {
		for _, hop := range policy.Hops {
			ready := func(p Path) bool {
				return p.NextHop == hop && p.Answered && (p.Primary || p.Programmed) || !p.Answered && p.Now.NextHop == hop
			}
			if !slices.Contains(s.Now.Policies[pod].Hops, hop) && !slices.ContainsFunc(s.Paths, ready) {
				w.wrong = append(w.wrong, fmt.Sprintf("%s is led to %s, where nobody is ready", key, hop))
			}
		}
	}
}

func (w *world) pending(key string) bool { return w.state.pods[key].pending && !w.released[key] }

func (w *world) owned(key string, a netip.Addr) bool {
	for _, p := range w.decisions[key].Placements {
		if p.Addr == a && (p.Node != "" || p.Refused.Reason == NoNode) {
			return true
		}
	}
	return false
}

// enforce is an ovn-controller's part; the barrier reports it to the master.
func (w *world) enforce(name string) (changed bool) {
	if !w.acts(name) {
		return false
	}
	for key := range w.state.pods {
		want := StateOf(w.rows[key])
		if w.state.pods[key].node == name {
			if !maps.EqualFunc(w.policies[key], want.Policies, func(a, b Policy) bool { return slices.Equal(a.Hops, b.Hops) }) {
				w.policies[key], changed = want.Policies, true
			}
			if known, ok := w.known[key]; ok && !known.SamePolicies(want) {
				known.Policies = want.Policies
				w.known[key], changed = known, true
			}
		}
		if w.nats[key] == nil {
			w.nats[key] = map[Site]netip.Addr{}
		}
		for site := range maps.Clone(w.nats[key]) {
			if _, ok := want.NATs[site]; site.Node == name && !ok {
				delete(w.nats[key], site)
				changed = true
			}
		}
		for site, a := range want.NATs {
			if site.Node != name {
				continue
			}
			if w.nats[key][site] != a {
				w.nats[key][site], changed = a, true
			}
			if known, ok := w.known[key]; ok && known.NATs[site] != a {
				known.NATs[site], changed = a, true
			}
		}
	}
	return changed
}

// become changes the world to a state and waits until it is settled.
func (w *world) become(st state) {
	for key, p := range w.state.pods { // a previous incarnation
		if q, ok := st.pods[key]; !ok || !slices.Equal(p.addrs, q.addrs) {
			delete(w.policies, key)
			delete(w.nats, key)
			delete(w.known, key)
			delete(w.released, key)
		}
	}
	w.state = st
	w.place()
	for range 200 {
		var steps []func() bool
		steps = append(steps, w.place)
		for _, n := range st.nodes {
			steps = append(steps, func() bool { return w.take(n.Name) }, func() bool { return w.enforce(n.Name) })
		}
		pods := map[string]bool{}
		for key := range st.pods {
			pods[key] = true
		}
		for key := range w.rows {
			pods[key] = true
		}
		for key := range pods {
			steps = append(steps, func() bool { return w.steer(key) })
		}
		w.r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		rest := true
		for _, step := range steps {
			if step() {
				rest = false
			}
			w.check()
		}
		if rest {
			return
		}
	}
	w.wrong = append(w.wrong, "did not come to rest")
}

// check records violations of invariants: two holders of an address, and packets that
// leave with an address that does not belong to the pod's EgressIP.
func (w *world) check() {
	holders := map[string]string{}
	for key, status := range w.status {
		for _, nodeStatus := range status.Programmed {
			for _, a := range nodeStatus.EgressIPs {
				if other, ok := holders[a]; ok && w.acts(nodeStatus.Node) {
					w.wrong = append(w.wrong, fmt.Sprintf("%s of %s is held by %s and %s", a, key, other, nodeStatus.Node))
				}
				if w.acts(nodeStatus.Node) {
					holders[a] = nodeStatus.Node
				}
			}
		}
	}
	for key, policies := range w.policies {
		p := w.state.pods[key]
		if !w.acts(p.node) || w.pending(key) {
			continue
		}
		for pod, policy := range policies {
			if !slices.Contains(p.addrs, pod) {
				continue // of a previous incarnation
			}
			for _, hop := range policy.Hops {
				w.checkHop(key, pod, hop)
			}
		}
	}
}

// checkHop records a hop on the primary network without a translation.
func (w *world) checkHop(key string, pod, hop netip.Addr) {
	for _, n := range w.state.nodes {
		join, ok := topology.PrefixOf(topology.FamilyOf(hop), n.Join)
		if !ok || join.Addr() != hop || !w.acts(n.Name) {
			continue
		}
		if _, ok := w.nats[key][Site{pod, n.Name}]; !ok {
			w.wrong = append(w.wrong, fmt.Sprintf("%s is led to %s, which does not translate %s", key, n.Name, pod))
		}
	}
}

func text(rows []nb.Row) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%s %v", r.ID, r.Model))
		if n, ok := r.Model.(*nbdb.NAT); ok {
			lines[len(lines)-1] = fmt.Sprint(r.ID, n.ExternalIP, n.LogicalIP, n.ExternalIDs)
		}
	}
	return strings.Join(lines, "\n")
}

// String describes the world as a user would see it.
func (w *world) String() string {
	var out strings.Builder
	out.WriteString("$ kubectl get egressips\n")
	waiting := map[string]int{}
	for key := range w.state.pods {
		if !w.settled(key) {
			waiting[w.selection().Matching(nil, map[string]string{"app": w.state.pods[key].app})[0]]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.status)) {
		for _, item := range w.status[key].Items {
			fmt.Fprintf(&out, "%s: %s %s %s\n", key, item.EgressIP, item.Node, item.Network)
		}
		for _, c := range Conditions(w.decisions[key], *w.status[key], Report{Conflicts: w.members.Conflicts(key), Waiting: waiting[key]}) {
			if !conditions.Known(conditions.EgressIP, c) {
				fmt.Fprintf(&out, "not in the vocabulary: ")
			}
			fmt.Fprintf(&out, "%s: %s %s %s: %s\n", key, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	var rows []nb.Row
	for _, key := range slices.Sorted(maps.Keys(w.rows)) {
		rows = append(rows, w.rows[key]...)
	}
	out.WriteString("\n$ ovn-nbctl lr-policy-list ovn_cluster_router\n" + nbshow.PolicyList(rows))
	for _, n := range w.state.nodes {
		var lines []string
		for _, r := range rows {
			if m, ok := r.Model.(*nbdb.NAT); ok && r.Parent.Name == topology.GatewayRouter(n.Name) {
				lines = append(lines, fmt.Sprintf("%-8s %-20s %-20s %s\n", m.Type, m.ExternalIP, m.LogicalIP, *m.LogicalPort))
			}
		}
		slices.Sort(lines)
		if len(lines) > 0 {
			fmt.Fprintf(&out, "\n$ ovn-nbctl lr-nat-list %s\n%s", topology.GatewayRouter(n.Name), strings.Join(lines, ""))
		}
	}
	return out.String()
}

// settled returns whether the planner considers a pod settled.
func (w *world) settled(key string) bool {
	p := w.state.pods[key]
	chosen := w.selection().Matching(nil, map[string]string{"app": p.app})
	if len(chosen) == 0 || !w.acts(p.node) {
		return true
	}
	return w.steering(key, chosen[0], w.decisions[chosen[0]]).Plan().Done
}
