package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var destinationOf = netip.MustParseAddrPort("192.0.2.1:80")

// planned is explain's answer for prod/web, which an EgressIP selects.
func planned(change ...func(*explain.Pod)) explain.Pod {
	router := nb.Parent{Table: nbdb.LogicalRouterTable, Name: "ovn_cluster_router"}
	p := explain.Pod{
		Header: explain.Header{APIVersion: explain.APIVersion, Kind: explain.KindPod, InPlace: true, AsOf: metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))},
		Pod:    "prod/web", Node: "ovn-worker", To: destinationOf.String(),
		Families: []explain.Family{{
			Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeEgressIP, By: "EgressIP/prod", Why: "a node that holds the address sends it out",
			Sources: []explain.Source{{Address: "172.18.0.33", Node: "ovn-worker2", Network: "172.18.0.0/16"}},
			ImplementedBy: []explain.Implementation{
				{What: "Logical_Router_Policy in ovn_cluster_router: priority=100", Row: nb.Row{Parent: router,
					Model: &nbdb.LogicalRouterPolicy{Priority: 100, Match: "ip4.src == 10.244.1.3"}}},
				{What: "NAT in GR_ovn-worker2: external_ip=172.18.0.33", Row: nb.Row{Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: "GR_ovn-worker2"},
					Model: &nbdb.NAT{ExternalIP: "172.18.0.33", LogicalIP: "10.244.1.3"}}},
			},
		}},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

// byService makes the pod leave through the host of an EgressService.
func byService(p *explain.Pod) {
	f := &p.Families[0]
	f.Outcome, f.By = explain.OutcomeEgressService, "EgressService/prod/web"
	f.Sources = []explain.Source{{Address: "203.0.113.7", Node: "ovn-worker2"}}
	f.ImplementedBy = []explain.Implementation{
		{What: "Logical_Router_Policy in ovn_cluster_router: priority=101", Row: nb.Row{Parent: nb.Parent{Name: "ovn_cluster_router"},
			Model: &nbdb.LogicalRouterPolicy{Priority: 101, Match: "ip4.src == 10.244.1.3"}}},
		{Node: "ovn-worker2", What: "nat OVN-KUBE-EGRESS-SVC: -s 10.244.1.3/32 -j SNAT --to-source 203.0.113.7"},
	}
}

// nodes answer questions, by "node about", followed by the destination or the choice if that matters.
type nodes map[string]any

func (n nodes) ask(q Question) (Facts, error) {
	answer, ok := n[q.Node+" "+q.About+" to "+q.To.String()]
	if !ok && q.Choice > 0 {
		answer, ok = n[fmt.Sprint(q.Node, " ", q.About, " ", q.Choice)]
	}
	if !ok {
		answer = n[q.Node+" "+q.About]
	}
	switch a := answer.(type) {
	case error:
		return Facts{}, a
	case OVN:
		return Facts{OVN: &a}, nil
	case Kernel:
		return Facts{Kernel: &a}, nil
	case Bridge:
		return Facts{Bridge: &a}, nil
	case Probed:
		return Facts{Probed: &a}, nil
	case Connection:
		return Facts{Connection: &a}, nil
	}
	return Facts{}, nil
}

// run asks until there are no more questions.
func run(t *testing.T, plan explain.Pod, n nodes) Trace {
	t.Helper()
	tracer, err := New(plan, destinationOf, TCP)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		q, more := tracer.Next()
		if !more {
			return tracer.Trace()
		}
		path, values := q.Path()
		if _, err := Decode(path, values); err != nil {
			t.Errorf("the question %+v is none: %v", q, err)
		}
		tracer.Answer(n.ask(q))
	}
	t.Fatal("there is no end of questions")
	return Trace{}
}

func ovnOf(t *testing.T, name string) OVN { return ParseOVN(read(t, "ovn", name+".txt")) }

var (
	out  = Bridge{Name: "breth0", Flows: []Flow{{Table: 0, Match: "in_port=2,ip", Priority: 100, Actions: []string{"ct(commit,zone=64000)", "output:1"}}}, Outputs: []string{"eth0"}}
	held = Bridge{Name: "breth0", Flows: []Flow{{Table: 0, Match: "in_port=2,ip,nw_src=10.244.0.0/16", Priority: 104, Actions: []string{"drop"}}}}
	snat = Kernel{Interface: "breth0", Gateway: netip.MustParseAddr("172.18.0.1"), Table: 254, Bridge: "breth0", ToBridge: true, Source: netip.MustParseAddr("203.0.113.7"),
		NAT: Verdict{Target: "SNAT", Source: netip.MustParseAddr("203.0.113.7"), Rules: []string{"OVN-KUBE-EGRESS-SVC: -s 10.244.1.3/32 -j SNAT --to-source 203.0.113.7"}}}
)

func TestTrace(t *testing.T) {
	plain := func(p *explain.Pod) {
		p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeNode, Why: "nothing selects the pod",
			Sources: []explain.Source{{Address: "172.18.0.3", Node: "ovn-worker"}}}
	}
	several := ovnOf(t, "several")
	several.Asks = false
	toService := ParseOVN(`ingress(dp="ovn-worker", inport="prod_web")
12. ls_in_lb (northd.c:7558): ct.new && ip4.dst == 10.96.0.1 && tcp.dst == 443, priority 120, uuid b2f00a86
    ct_lb_mark(backends=172.18.0.3:6443,172.18.0.2:6443);
egress(dp="ovn-worker", inport="stor-ovn-worker", outport="k8s-ovn-worker")
 9. ls_out_apply_port_sec (northd.c:5777): 1, priority 0, uuid 1fcdce52
    /* output to "k8s-ovn-worker", type "" */
`)
	for name, tc := range map[string]struct {
		plan  explain.Pod
		nodes nodes
	}{
		"egressip":       {planned(), nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": out}},
		"egressservice":  {planned(byService), nodes{"ovn-worker ovn": ovnOf(t, "management"), "ovn-worker2 kernel": snat, "ovn-worker2 bridge": out}},
		"dropped-by-ovn": {planned(), nodes{"ovn-worker ovn": ovnOf(t, "dropped")}},
		"row-missing":    {planned(byService), nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": out}},
		"rule-missing": {planned(byService), nodes{"ovn-worker ovn": ovnOf(t, "management"), "ovn-worker2 bridge": out,
			"ovn-worker2 kernel": Kernel{Interface: "breth0", Table: 254, Bridge: "breth0", ToBridge: true, Source: netip.MustParseAddr("172.18.0.4"),
				NAT: Verdict{Target: "MASQUERADE", Rules: []string{"OVN-KUBE-MASQ: -s 10.244.0.0/16 -j MASQUERADE"}}}}},
		"dropped-by-bridge": {planned(), nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": held}},
		"another-network": {planned(byService), nodes{"ovn-worker ovn": ovnOf(t, "management"), "ovn-worker2 kernel": Kernel{Interface: "eth1", Table: 1111, Bridge: "breth0",
			Rules: []string{"6000: from 10.244.1.3/32, table 1111"}, Source: netip.MustParseAddr("203.0.113.7")}}},
		"no-route": {planned(byService), nodes{"ovn-worker ovn": ovnOf(t, "management"), "ovn-worker2 kernel": Kernel{Bridge: "breth0", Unroutable: "network is unreachable"}}},
		"not-forwarded": {planned(byService), nodes{"ovn-worker ovn": ovnOf(t, "management"), "ovn-worker2 kernel": Kernel{Interface: "breth0", Bridge: "breth0", ToBridge: true,
			Forward: Verdict{Target: "DROP", Rules: []string{"FORWARD: -j DROP"}}}}},
		"silent":             {planned(), nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": errors.New("ovnkube of node ovn-worker2 cannot be reached")}},
		"first-silent":       {planned(), nodes{"ovn-worker ovn": errors.New("ovnkube of node ovn-worker cannot be reached")}},
		"asks":               {planned(), nodes{"ovn-worker ovn": ovnOf(t, "asks")}},
		"of-another-version": {planned(), nodes{"ovn-worker ovn": out}},
		"plain": {planned(plain), nodes{"ovn-worker ovn": OVN{Steps: []Step{{Datapath: "GR_ovn-worker", Stage: "lr_out_snat", Priority: 17, Match: "ip4.src == 10.244.0.0/16", Actions: []string{"ct_snat(172.18.0.3);"}}},
			Source: netip.MustParseAddr("172.18.0.3"), Outputs: []Output{{"ext_ovn-worker", "breth0_ovn-worker", "localnet"}}}, "ovn-worker bridge": out}},
		"held-but-through": {planned(func(p *explain.Pod) {
			p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeHeld, By: "EgressIP/prod", Why: "no node holds the address"}
		}), nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": out}},
		"inside": {planned(func(p *explain.Pod) {
			p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeInside, Sources: []explain.Source{{Address: "10.244.1.3", Node: "ovn-worker"}}}
		}), nodes{"ovn-worker ovn": OVN{Steps: []Step{{Datapath: "ovn-worker", Stage: "ls_in_l2_lkup", Priority: 50}}, Outputs: []Output{{"ovn-worker", "shop_cart", ""}}}}},
		"to-a-service": {planned(func(p *explain.Pod) {
			p.Families[0] = explain.Family{Family: "IPv4", Address: "10.244.1.3", Outcome: explain.OutcomeInside, Sources: []explain.Source{{Address: "10.244.1.3", Node: "ovn-worker"}}}
		}), nodes{"ovn-worker ovn": toService, "ovn-worker kernel to 172.18.0.3:6443": Kernel{Local: true}}},
		"several": {planned(plain), nodes{"ovn-worker ovn": several, "ovn-worker bridge": out}},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, tc.plan, tc.nodes)
			var text bytes.Buffer
			got.Text(&text)
			golden.Check(t, name+".txt", text.String())
			if data, err := json.MarshalIndent(got, "", "  "); err != nil {
				t.Error(err)
			} else if name == "egressip" || name == "rule-missing" {
				golden.Check(t, name+".json", string(data)+"\n")
			}
			inPlace := name == "egressip" || name == "egressservice" || name == "another-network" || name == "plain" || name == "inside" || name == "to-a-service"
			if got.InPlace != inPlace {
				t.Errorf("in place: %v", got.InPlace)
			}
		})
	}
}

func TestNoTrace(t *testing.T) {
	for name, change := range map[string]func(*explain.Pod){
		"on the host's network": func(p *explain.Pod) {
			p.Families = []explain.Family{{Outcome: explain.OutcomeNode, Why: "the pod is on the host's network"}}
		},
		"has no way to send": func(p *explain.Pod) {
			p.Families = []explain.Family{{Outcome: explain.OutcomeNone, Why: "the pod has ended"}}
		},
		"about one family": func(p *explain.Pod) { p.Families = nil },
	} {
		if _, err := New(planned(change), destinationOf, TCP); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPolicyForNodes: the policy for traffic to nodes from a pod with external gateways says nothing about its
// other traffic.
func TestPolicyForNodes(t *testing.T) {
	plan := planned(func(p *explain.Pod) {
		f := &p.Families[0]
		f.ImplementedBy = append(f.ImplementedBy, explain.Implementation{What: "Logical_Router_Policy in ovn_cluster_router: priority=502",
			Row: nb.Row{Parent: nb.Parent{Name: "ovn_cluster_router"}, Model: &nbdb.LogicalRouterPolicy{Priority: topology.PriorityGatewayPodToNode,
				Match: `inport == "rtos-ovn-worker" && ip4.src == $external_gateway_routed_ovn_worker_ip4 && ip4.dst == $node_ips_ip4`}}})
	})
	got := run(t, plan, nodes{"ovn-worker ovn": ovnOf(t, "gateway"), "ovn-worker2 bridge": out})
	if !got.InPlace {
		t.Errorf("it is not in place: %+v", got.Paths)
	}
}

// TestRangesUnknown: without read access to the cluster's settings, the ranges in the match of the policy for
// external gateways are not known, so a trace cannot tell whether a policy is the planned one, nor whether it is
// missing.
func TestRangesUnknown(t *testing.T) {
	const match, cluster = `inport == "rtos-ovn-worker" && ip4.src == $external_gateway_pods_ovn_worker_ip4`, " && ip4.dst != 10.244.0.0/16 && ip4.dst != 100.64.0.0/16"
	policy := explain.Implementation{What: "Logical_Router_Policy in ovn_cluster_router: priority=501",
		Row: nb.Row{Parent: nb.Parent{Name: "ovn_cluster_router"}, Model: &nbdb.LogicalRouterPolicy{Priority: topology.PriorityHybridRoute, Match: match + " && ip4.dst != 10.244.1.0/24"}}}
	for name, tc := range map[string]struct {
		unknown        bool
		priority       int
		match          string
		inPlace, noted bool
	}{
		"it is there":                   {true, topology.PriorityHybridRoute, match + cluster, true, false},
		"it took no part":               {true, topology.PriorityEgressIP, "ip4.src == 10.244.1.3", true, true},
		"the ranges are known":          {false, topology.PriorityHybridRoute, match + cluster, false, false},
		"they are, and it took no part": {false, topology.PriorityEgressIP, "ip4.src == 10.244.1.3", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planned(func(p *explain.Pod) {
				p.RangesUnknown = tc.unknown
				p.Families[0].ImplementedBy = []explain.Implementation{policy}
			})
			ovn := ovnOf(t, "gateway")
			for i := range ovn.Steps {
				if s := &ovn.Steps[i]; s.Stage == "lr_in_policy" && s.Datapath == "ovn_cluster_router" {
					s.Priority, s.Match = tc.priority, tc.match
				}
			}
			got := run(t, plan, nodes{"ovn-worker ovn": ovn, "ovn-worker2 bridge": out})
			if notes := strings.Join(got.Paths[0].Notes, ";"); got.InPlace != tc.inPlace || strings.Contains(notes, "the ranges of the cluster, which are not known") != tc.noted {
				t.Errorf("in place: %v; notes %q; problems %v", got.InPlace, notes, got.Paths[0].Problems)
			}
		})
	}
}
