package egressip

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// entry returns the status entry of a node: "node addresses awaiting".
func entry(node, has, awaits string) v1.ProgrammedStatus {
	return v1.ProgrammedStatus{Node: node, EgressIPs: strings.Fields(has), Awaiting: strings.Fields(awaits)}
}

// TestAssign: the holder of an address continues to answer for it until the next node
// is prepared and translates for the pods, and not after that.
func TestAssign(t *testing.T) {
	const a, primary, secondary = "ovn-worker", "172.18.0.33", "172.19.0.33"
	for _, c := range []struct {
		name         string
		addr         string
		node, from   string // of the item
		entries      []v1.ProgrammedStatus
		untranslated bool
		want         string
	}{
		{"new", primary, "", "", nil, false, ""},
		{"stays", primary, "to", "", []v1.ProgrammedStatus{entry("to", primary, "")}, false, ""},
		{"moves", primary, a, "", []v1.ProgrammedStatus{entry(a, primary, "")}, false, a},
		{"moves, and nobody had it yet", primary, a, "", nil, false, ""},
		{"is to be prepared", primary, "to", a, []v1.ProgrammedStatus{entry(a, primary, "")}, false, a},
		{"is prepared, but does not translate", primary, "to", a, []v1.ProgrammedStatus{entry(a, primary, ""), entry("to", "", primary)}, true, a},
		{"is prepared", primary, "to", a, []v1.ProgrammedStatus{entry(a, primary, ""), entry("to", "", primary)}, false, ""},
		{"is prepared for another one", primary, "to", a, []v1.ProgrammedStatus{entry(a, primary, ""), entry("to", "", secondary)}, false, a},
		{"is prepared on a secondary network", secondary, "to", a, []v1.ProgrammedStatus{entry(a, secondary, ""), entry("to", "", secondary)}, true, ""},
		{"is to release it", primary, "to", "", []v1.ProgrammedStatus{entry(a, primary, "")}, false, ""},
		{"is dead", primary, "to", a, []v1.ProgrammedStatus{entry("to", "", "")}, false, ""},
		{"moves to a third", primary, "third", a, []v1.ProgrammedStatus{entry(a, primary, ""), entry("third", "", primary)}, false, a},
		{"comes back", primary, "third", "to", []v1.ProgrammedStatus{entry("to", primary, "")}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decision{Placements: []Placement{{Address: Address{Addr: netip.MustParseAddr(c.addr)}, Node: "to", Primary: c.addr == primary}}}
			status := v1.EgressIPStatus{Programmed: c.entries}
			if c.node != "" {
				status.Items = []v1.EgressIPStatusItem{{EgressIP: c.addr, Node: c.node, From: c.from}}
			}
			got := d.Assign(status, func(Placement) bool { return !c.untranslated })
			if len(got) != 1 || got[0].Node != "to" || got[0].From != c.want {
				t.Errorf("%+v, want from %q", got, c.want)
			}
		})
	}
}

// TestAssignSeveral: a node that still has an address of a pod does not take a second one of the
// family, unless the addresses change places.
func TestAssignSeveral(t *testing.T) {
	addr := map[string]string{"x": "172.18.0.1", "y": "172.18.0.2", "z": "172.18.0.3", "s": "fd00::1"}
	for _, c := range []struct{ name, moves, want string }{
		{"one after the other", "x:a:b y:c:a", "y"},
		{"change places", "x:a:b y:b:a", ""},
		{"in turn", "x:a:b y:b:c z:c:a", ""},
		{"in a row", "x:a:b y:c:a z:d:c", "y z"},
		{"another family", "x:a:b s:c:a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Decision
			var status v1.EgressIPStatus
			for _, move := range strings.Fields(c.moves) {
				parts := strings.Split(move, ":")
				text := addr[parts[0]]
				d.Placements = append(d.Placements, Placement{Address: Address{Addr: netip.MustParseAddr(text)}, Node: parts[2]})
				status.Items = append(status.Items, v1.EgressIPStatusItem{EgressIP: text, Node: parts[1]})
				status.Programmed = append(status.Programmed, entry(parts[1], text, ""), entry(parts[2], "", text))
			}
			// Each node has one entry.
			for i := range status.Programmed {
				for _, o := range status.Programmed {
					if o.Node == status.Programmed[i].Node {
						status.Programmed[i].Awaiting = append(status.Programmed[i].Awaiting, o.Awaiting...)
					}
				}
			}
			var kept []string
			for _, item := range d.Assign(status, func(Placement) bool { return true }) {
				for name, text := range addr {
					if item.EgressIP == text && item.From != "" {
						kept = append(kept, name)
					}
				}
			}
			if got := strings.Join(kept, " "); got != c.want {
				t.Errorf("stay with who has them: %q, want %q", got, c.want)
			}
		})
	}
}

// TestAwaitingElsewhere: a node that was prepared for an address which then went elsewhere is
// not considered prepared when it is assigned the address again.
func TestAwaitingElsewhere(t *testing.T) {
	words := []v1.ProgrammedStatus{entry("a", "1.1.1.1", ""), entry("b", "", "1.1.1.1 2.2.2.2"), entry("c", "", "1.1.1.1")}
	got := DropAwaiting(words, []v1.EgressIPStatusItem{{EgressIP: "1.1.1.1", Node: "b"}, {EgressIP: "2.2.2.2", Node: "c"}})
	if !slices.Equal(got[1].Awaiting, []string{"1.1.1.1"}) || len(got[2].Awaiting) != 0 || len(words[2].Awaiting) != 1 {
		t.Errorf("%+v of %+v", got, words)
	}
}

// TestTakes: a node that is to prepare does not take the address, and a node that retains it is assigned it in its
// own network.
func TestTakes(t *testing.T) {
	status := v1.EgressIPStatus{Items: []v1.EgressIPStatusItem{{EgressIP: "172.18.0.33", Node: "b", From: "a", Network: "172.18.0.0/24"}}}
	x := netip.MustParseAddr("172.18.0.33")
	if Next(false, status, "a", x) != Released || Next(false, status, "b", x) != Preparing {
		t.Error("takes what another one goes on answering for")
	}
	a := topology.Node{Name: "a", Primary: prefixes("172.18.0.3/16")}
	if got := AssignmentOf(status, a); !slices.Equal(got.Primary, []netip.Addr{x}) {
		t.Errorf("%+v", got)
	}
	a = topology.Node{Name: "a", Primary: prefixes("10.0.0.1/8"), Host: prefixes("172.18.0.3/16")}
	if got := AssignmentOf(status, a); got.Networks[x] != netip.MustParsePrefix("172.18.0.0/16") {
		t.Errorf("%+v", got)
	}
	a.Host = nil // not published yet
	if got := AssignmentOf(status, a); got.Networks[x] != netip.MustParsePrefix("172.18.0.0/24") {
		t.Errorf("%+v", got)
	}
	status.Items[0].From = ""
	if Next(true, status, "a", x) != Released || Next(false, status, "b", x) != Held {
		t.Error("who is given the address does not take it")
	}
}

// moving returns a move of an address from one worker to the other.
func moving(ip string, awaits bool) (Decision, v1.EgressIPStatus, Nodes) {
	all := nodes(change{unlabelled}, none)
	e := egress("e", 1, ips(v1.Address(ip)))
	d := Decide(all, decoded(e), cluster)["e"]
	e.Status.Programmed = []v1.ProgrammedStatus{entry("ovn-worker", ip, "")}
	e.Status.Items = []v1.EgressIPStatusItem{{EgressIP: ip, Node: "ovn-worker"}}
	e.Status.Items = d.Assign(e.Status, nil)
	if awaits {
		e.Status.Programmed = append(e.Status.Programmed, entry("ovn-worker2", "", ip))
	}
	return d, e.Status, func(name string) (topology.Node, bool) {
		i := slices.IndexFunc(all, func(n place.Node) bool { return n.Name == name })
		if i < 0 {
			return topology.Node{}, false
		}
		return all[i].Node, true
	}
}

// TestPendingPreparation: while a node is to prepare, only that node owes an acknowledgement, and
// the conditions report this.
func TestPendingPreparation(t *testing.T) {
	digest := func([]netip.Addr) string { return "now" }
	says := func(name string) func(string) bool { return func(node string) bool { return node == name } }
	for _, ip := range []string{"172.18.0.33", "fc00:f853:ccd:e793::33", "172.19.0.33"} {
		d, status, all := moving(ip, false)
		if got := d.PendingAcks(status, digest, all); !slices.Equal(got, []PendingAck{{"ovn-worker2", "prepare for " + ip}}) {
			t.Errorf("owed: %+v", got)
		}
		is := func(reason, message string, r Report) {
			t.Helper()
			if got := programmed(d, status, r); got.Reason != reason || !strings.Contains(got.Message, message) {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
		}
		is(ReasonWaitingForNode, ip+" is still held by node ovn-worker, until node ovn-worker2 is prepared", Report{Unresponsive: says("ovn-worker")})
		is(ReasonNotAcknowledged, "node ovn-worker2 does not prepare for "+ip+", which stays with node ovn-worker", Report{Unresponsive: says("ovn-worker2")})
		d, status, all = moving(ip, true)
		if got := d.PendingAcks(status, digest, all); len(got) > 0 {
			t.Errorf("owed: %+v", got)
		}
		is(ReasonWaitingForNode, "is prepared", Report{Unresponsive: says("ovn-worker2")})
		if ip != "172.19.0.33" {
			is(ReasonNotAcknowledged, "ovn-controller on node ovn-worker2 does not apply changes, "+ip+" stays", Report{Stuck: says("ovn-worker2")})
		}
		status.Items = d.Assign(status, func(Placement) bool { return true })
		if got := d.PendingAcks(status, digest, all); !slices.Equal(got, []PendingAck{{"ovn-worker", "release " + ip}}) {
			t.Errorf("owed: %+v", got)
		}
	}
}

// TestRulesOfRetained: a node has the rules of pods for addresses that it is to hold or
// retains; new pods are led to it when it has their rules.
func TestRulesOfRetained(t *testing.T) {
	const moves, stays = "172.19.0.33", "172.19.0.44"
	pod := addrs("10.244.0.3")
	digest := func(given []netip.Addr) string { return Digest(given, pod) }
	d, status, all := moving(moves, true)
	status.Programmed[0].Digest = digest(addrs(moves))
	paths := d.Paths(status, pod, digest, all)
	if p := paths[0]; p.Answered || p.Now.Node != "ovn-worker" || p.Now.Addr != addrs(moves)[0] {
		t.Errorf("a new pod: %+v", p)
	}
	s := Steering{EgressIP: EgressIP{Key: "e", Addresses: []Address{{Addr: addrs(moves)[0]}}}, Pod: Pod{Addrs: pod}, Paths: paths, Now: NewState(), Applied: NewState()}
	if got := s.Plan().Want.Policies[pod[0]].Hops; !slices.Equal(got, []netip.Addr{paths[0].Now.NextHop}) {
		t.Errorf("it is led to %v", got)
	}
	status.Programmed[0].Digest = digest(nil)
	if p := d.Paths(status, pod, digest, all)[0]; p.Now.Node != "" {
		t.Errorf("a pod without rules: %+v", p)
	}
	// The digest of a node that is to hold another address as well covers both.
	other := Placement{Address: Address{Addr: addrs(stays)[0]}, Node: "ovn-worker"}
	d.Placements = append(d.Placements, other)
	status.Items = append(status.Items, v1.EgressIPStatusItem{EgressIP: stays, Node: "ovn-worker"})
	status.Programmed[0].EgressIPs = []string{moves, stays}
	status.Programmed[0].Digest = digest(addrs(moves, stays))
	if got := d.PendingAcks(status, digest, all); len(got) > 0 {
		t.Errorf("owed: %+v", got)
	}
}

// TestTranslated: a pod that is led to an address is translated on the address's next node
// before the address moves.
func TestTranslated(t *testing.T) {
	pod, x := addrs("10.244.0.3")[0], addrs("172.18.0.33")[0]
	d, status, all := moving(x.String(), true)
	s := Steering{EgressIP: EgressIP{Key: "e", Addresses: []Address{{Addr: x}}}, Pod: Pod{Addrs: []netip.Addr{pod}}, Now: NewState(), Applied: NewState(),
		Paths: d.Paths(status, []netip.Addr{pod}, func([]netip.Addr) string { return "" }, all)}
	if !s.Translated() {
		t.Error("a pod is waited for that nothing leads to the address")
	}
	s.Now.Policies[pod] = Policy{EgressIP: "e", Hops: addrs("100.64.0.3"), Egress: map[netip.Addr]netip.Addr{addrs("100.64.0.3")[0]: x}}
	if s.Translated() {
		t.Error("nothing is in force")
	}
	s.Now.NATs[Site{pod, "ovn-worker2"}], s.Now.NATs[Site{pod, "ovn-worker"}] = x, x
	if s.Applied = s.Used(); s.Translated() || s.Applied.NATs[Site{pod, "ovn-worker"}] != x {
		t.Errorf("in force is what nobody has seen to be: %+v", s.Applied)
	}
	s.Applied.NATs[Site{pod, "ovn-worker2"}] = x
	if !s.Translated() {
		t.Error("it is in force")
	}
	s.Applied = NewState()
	if s.Pod.Pending = true; !s.Translated() {
		t.Error("a pod that cannot send is waited for")
	}
}
