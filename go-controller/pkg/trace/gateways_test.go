package trace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const gatewayRouter = "GR_ovn-worker"

func own(hop string) string {
	return "ip4.src == $external_gateway_untranslated_ovn_worker_ip4_" + strings.ReplaceAll(hop, ".", "_") + " && reg0 == " + hop
}

// bySecond is the match of the policy that lets pods use the second uplink.
var bySecond = fmt.Sprintf(`outport == %q && ip4.src == $external_gateway_second_ovn_worker_ip4`, topology.ExternalGatewayPort("ovn-worker"))

// throughGateways makes the pod leave through gateways on both uplinks of its node, with its own address if untranslated.
func throughGateways(untranslated bool) func(*explain.Pod) {
	return func(p *explain.Pod) {
		router := nb.Parent{Table: nbdb.LogicalRouterTable, Name: gatewayRouter}
		policy := func(priority int, match string) explain.Implementation {
			return explain.Implementation{What: fmt.Sprintf("Logical_Router_Policy in %s: priority=%d match=%q", gatewayRouter, priority, match),
				Row: nb.Row{Parent: router, Model: &nbdb.LogicalRouterPolicy{Priority: priority, Match: match}}}
		}
		f := &p.Families[0]
		f.Outcome, f.By, f.ImplementedBy = explain.OutcomeGateways, "AdminPolicyBasedExternalRoute/gws", nil
		f.Sources = []explain.Source{{Address: "172.18.0.3", Node: "ovn-worker"}, {Address: "172.19.0.3", Node: "ovn-worker"}}
		if untranslated {
			f.Sources = []explain.Source{{Address: "10.244.1.3", Node: "ovn-worker"}}
			f.ImplementedBy = append(f.ImplementedBy, explain.Implementation{What: "exempting NAT", Row: nb.Row{Parent: router,
				Model: &nbdb.NAT{ExternalIP: "172.18.0.3", LogicalIP: "10.244.1.3"}, Refs: []nb.Ref{{Column: "exempted_ext_ips"}}}})
		}
		for hop, port := range gatewayPorts {
			f.Gateways = append(f.Gateways, explain.Gateway{Address: hop})
			f.ImplementedBy = append(f.ImplementedBy, explain.Implementation{What: "Logical_Router_Static_Route to " + hop,
				Row: nb.Row{Parent: router, Model: &nbdb.LogicalRouterStaticRoute{Nexthop: hop, OutputPort: new(port)}}})
			if untranslated {
				f.ImplementedBy = append(f.ImplementedBy, policy(topology.PriorityUntranslated, own(hop)))
			}
		}
		f.ImplementedBy = append(f.ImplementedBy, policy(topology.PriorityExternalGateway, bySecond))
	}
}

// gatewayPorts are the ports of the gateway router to the gateways.
var gatewayPorts = map[string]string{
	"172.18.0.51": topology.GatewayToExternal("ovn-worker"),
	"172.18.0.52": topology.GatewayToExternal("ovn-worker"),
	"172.19.0.51": topology.ExternalGatewayPort("ovn-worker"),
}

// routed is the way to one of the gateways, with the policy that the packet matches on the gateway router.
func routed(hop, source string, priority int, match string) OVN {
	o := OVN{Outputs: []Output{{Datapath: topology.ExternalSwitch("ovn-worker"), Port: "breth0_ovn-worker", Type: "localnet"}}}
	if gatewayPorts[hop] == topology.ExternalGatewayPort("ovn-worker") && priority > topology.PriorityNoExternalGateway {
		o.Outputs[0] = Output{Datapath: topology.ExternalGatewaySwitch("ovn-worker"), Port: "breth1_ovn-worker", Type: "localnet"}
	}
	o.Steps = []Step{{Datapath: gatewayRouter, Stage: "lr_in_ip_routing_ecmp", Actions: []string{"reg0 = " + hop + ";"}}}
	o.Steps = append(o.Steps, Step{Datapath: gatewayRouter, Stage: "lr_in_policy", Match: match, Priority: priority}, Step{Datapath: gatewayRouter, Stage: "lr_out_snat"})
	if source != "10.244.1.3" {
		o.Source = netip.MustParseAddr(source)
	}
	return o
}

// TestSeveralGateways: each way through one of several gateways takes the policies of this gateway, and not those of the others.
func TestSeveralGateways(t *testing.T) {
	const pod, node, node2 = "10.244.1.3", "172.18.0.3", "172.19.0.3"
	usual := fmt.Sprintf("outport == %q", topology.ExternalGatewayPort("ovn-worker"))
	for name, tc := range map[string]struct {
		untranslated bool
		ways         [3]OVN
		missing      []string // what the ways lack
	}{
		"translated":   {false, [3]OVN{routed("172.18.0.51", node, 0, "1"), routed("172.18.0.52", node, 0, "1"), routed("172.19.0.51", node2, topology.PriorityExternalGateway, bySecond)}, []string{"", "", ""}},
		"untranslated": {true, [3]OVN{routed("172.18.0.51", pod, 100, own("172.18.0.51")), routed("172.18.0.52", pod, 100, own("172.18.0.52")), routed("172.19.0.51", pod, 100, own("172.19.0.51"))}, []string{"", "", ""}},
		"no mark":      {true, [3]OVN{routed("172.18.0.51", pod, 100, own("172.18.0.51")), routed("172.18.0.52", pod, 0, "1"), routed("172.19.0.51", pod, 100, own("172.19.0.51"))}, []string{"", own("172.18.0.52"), ""}},
		"translated by mistake": {true, [3]OVN{routed("172.18.0.51", node, 100, own("172.18.0.51")), routed("172.18.0.52", pod, 100, own("172.18.0.52")), routed("172.19.0.51", pod, 100, own("172.19.0.51"))},
			[]string{"exempting NAT", "", ""}},
		"no second uplink": {false, [3]OVN{routed("172.18.0.51", node, 0, "1"), routed("172.18.0.52", node, 0, "1"), routed("172.19.0.51", node, topology.PriorityNoExternalGateway, usual)},
			[]string{"", "", bySecond}},
	} {
		t.Run(name, func(t *testing.T) {
			ways := nodes{"ovn-worker ovn": OVN{Choices: []int{1, 2, 3}}, "ovn-worker bridge": out}
			for i, way := range tc.ways {
				ways[fmt.Sprint("ovn-worker ovn ", i+1)] = way
			}
			got := run(t, planned(throughGateways(tc.untranslated)), ways)
			if len(got.Paths) != len(tc.ways) {
				t.Fatalf("%d ways, want %d", len(got.Paths), len(tc.ways))
			}
			for i, p := range got.Paths {
				var missing []string
				for _, problem := range p.Problems {
					missing = append(missing, problem.Message)
				}
				text := strings.Join(missing, "; ")
				if tc.missing[i] == "" && text != "" || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), tc.missing[i]) {
					t.Errorf("way %d: %q, want %q", i+1, text, tc.missing[i])
				}
			}
			if want := strings.Join(tc.missing, "") == ""; got.InPlace != want {
				t.Errorf("in place %v, want %v", got.InPlace, want)
			}
		})
	}
}
