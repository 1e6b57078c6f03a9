package egressip

import (
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// nobody is a Nodes function for a cluster without live nodes.
func nobody(string) (topology.Node, bool) { return topology.Node{}, false }

func lapsed(n *place.Node) { n.NotAcknowledging = true }
func stuck(n *place.Node)  { n.Stuck = true }

// TestUnacknowledged: an address that a node does not acknowledge goes to another node that can take it;
// acknowledged ones stay. A node whose ovn-controller hangs gives up both.
func TestUnacknowledged(t *testing.T) {
	const a, b = "ovn-worker", "ovn-worker2"
	for _, c := range []struct {
		name  string
		item  string // the node in the status
		word  string // the node whose status entry lists it
		nodes []place.Node
		want  string
	}{
		{"new, to the other", "", "", nodes(change{lapsed}, none), b},
		{"not taken", a, "", nodes(change{lapsed}, none), b},
		{"not taken, and nobody else", a, "", nodes(change{lapsed}, change{unlabelled}), a},
		{"not taken by either", a, "", nodes(change{lapsed}, change{lapsed}), a},
		{"held", a, a, nodes(change{lapsed}, none), a},
		{"held by another, that does not let go", b, a, nodes(change{lapsed}, none), b},
		{"held, ovn-controller hangs", a, a, nodes(change{stuck}, none), b},
		{"held, all ovn-controllers hang", a, a, nodes(change{stuck}, change{stuck}), a},
		{"new, and the ovn-controller of the only one hangs", "", "", nodes(change{unlabelled}, change{stuck}), b},
		{"new, and the only one does not acknowledge", "", "", nodes(change{lapsed}, change{unlabelled}), a},
		{"new, and the only one does not and is to be drained", "", "", nodes(change{lapsed, draining}, change{unlabelled}), ""},
		{"new, and it is not known whether who does not acknowledge is there", "", "", nodes(change{lapsed, unknown}, change{dead}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ip := range []string{"172.18.0.33", "fc00:f853:ccd:e793::33", "172.19.0.33"} {
				e := egress("e", 1, ips(v1.Address(ip)))
				if c.item != "" {
					e.Status.Items = []v1.EgressIPStatusItem{{Node: c.item, EgressIP: ip}}
				}
				if c.word != "" {
					e.Status.Programmed = []v1.ProgrammedStatus{{Node: c.word, EgressIPs: []string{ip}}}
				}
				if got := Decide(c.nodes, decoded(e), cluster)["e"].Placements[0]; got.Node != c.want {
					t.Errorf("%s is given to %q, want %q: %+v", ip, got.Node, c.want, got.Refused)
				}
			}
		})
	}
}

// TestDebts: the nodes that owe releasing or taking an address, or having rules.
func TestDebts(t *testing.T) {
	digest := func(given []netip.Addr) string { return "now" }
	for _, c := range []struct {
		name, ip string
		words    []v1.ProgrammedStatus
		want     []PendingAck
	}{
		{"nobody has it", "172.18.0.33", nil, []PendingAck{{"ovn-worker", "take 172.18.0.33"}}},
		{"another has it", "172.18.0.33", []v1.ProgrammedStatus{{Node: "ovn-worker2", EgressIPs: []string{"172.18.0.33"}}}, []PendingAck{{"ovn-worker2", "release 172.18.0.33"}}},
		{"it has it", "172.18.0.33", []v1.ProgrammedStatus{{Node: "ovn-worker", EgressIPs: []string{"172.18.0.33"}}}, nil},
		{"old rules", "172.19.0.33", []v1.ProgrammedStatus{{Node: "ovn-worker", EgressIPs: []string{"172.19.0.33"}, Digest: "old"}},
			[]PendingAck{{"ovn-worker", "have the rules of the pods, after old"}}},
		{"all rules", "172.19.0.33", []v1.ProgrammedStatus{{Node: "ovn-worker", EgressIPs: []string{"172.19.0.33"}, Digest: "now"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := egress("e", 1, ips(v1.Address(c.ip)))
			d := Decide(nodes(none, change{unlabelled}), decoded(e), cluster)["e"]
			e.Status.Programmed = c.words
			if got := d.PendingAcks(e.Status, digest, nobody); !slices.Equal(got, c.want) {
				t.Errorf("owed: %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestFallback: a pod that is not led to an address yet is led to its current holder, unless that
// node is to give the pod another address of the family.
func TestFallback(t *testing.T) {
	pod := addrs("10.244.0.3")[0]
	all := nodes(none, none)
	find := func(name string) (topology.Node, bool) {
		i := slices.IndexFunc(all, func(n place.Node) bool { return n.Name == name })
		if i < 0 {
			return topology.Node{}, false
		}
		return all[i].Node, true
	}
	e := egress("e", 1, ips("172.18.0.33"))
	e.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: "172.18.0.33"}}
	d := Decide(all, decoded(e), cluster)["e"]
	e.Status.Programmed = []v1.ProgrammedStatus{{Node: "ovn-worker2", EgressIPs: []string{"172.18.0.33"}}}
	paths := func() []Path {
		return d.Paths(e.Status, []netip.Addr{pod}, func([]netip.Addr) string { return "" }, find)
	}
	s := Steering{EgressIP: Decode(e), Pod: Pod{Addrs: []netip.Addr{pod}, Pending: true}, Paths: paths(), Now: NewState(), Applied: NewState(),
		Owned: func(string, netip.Addr) bool { return true }}
	plan := s.Plan()
	if got := plan.Want.Policies[pod].Hops; !slices.Equal(got, addrs("100.64.0.4")) || plan.Done || !slices.Equal(plan.Await, []string{"ovn-worker2"}) {
		t.Fatalf("led to %v: %+v", got, plan)
	}
	// After its start the pod stays there, and the next node is prepared.
	s.Now, s.Applied, s.Pod.Pending = plan.Want, plan.Want.Clone(), false
	plan = s.Plan()
	if got := plan.Want.Policies[pod].Hops; !slices.Equal(got, addrs("100.64.0.4")) || plan.Done || len(plan.Want.NATs) != 2 {
		t.Fatalf("then led to %v: %+v", got, plan)
	}
	// The next node takes it.
	e.Status.Programmed = []v1.ProgrammedStatus{{Node: "ovn-worker", EgressIPs: []string{"172.18.0.33"}}}
	s.Paths, s.Now, s.Applied = paths(), plan.Want, plan.Want.Clone()
	if got := s.Plan().Want.Policies[pod].Hops; !slices.Equal(got, addrs("100.64.0.3")) {
		t.Fatalf("at last led to %v", got)
	}
	// A gateway router gives a pod only one address per family.
	two := egress("e", 1, prodIPs)
	two.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: "172.18.0.33"}, {Node: "ovn-worker2", EgressIP: "172.18.0.44"}}
	d = Decide(all, decoded(two), cluster)["e"]
	e.Status.Programmed = []v1.ProgrammedStatus{{Node: "ovn-worker2", EgressIPs: []string{"172.18.0.33", "172.18.0.44"}}}
	for _, p := range paths() {
		if p.Now.Node != "" {
			t.Errorf("%s is led to %s", p.Addr, p.Now.Node)
		}
	}
}
