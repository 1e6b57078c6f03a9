package explain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// briefly summarizes a node's features, its addresses, and how its pods leave.
func (n Node) briefly() (features, addresses, pods string) {
	var all [3][]string
	for _, f := range n.Features {
		mark := "-"
		if f.Possible {
			mark = "+"
		}
		all[0] = append(all[0], strings.TrimSpace(mark+f.Feature+" "+f.Network)+" "+f.Why)
	}
	for _, a := range n.Addresses {
		all[1] = append(all[1], fmt.Sprintf("%s %s %v %v", a.Address, a.Object, a.Planned, a.Programmed))
	}
	for _, p := range n.Pods {
		all[2] = append(all[2], fmt.Sprintf("%s %s %d", p.Family, p.Outcome, p.Pods))
	}
	for _, g := range n.Gateways {
		all[2] = append(all[2], fmt.Sprintf("via %s %d", g.Address, g.Pods))
	}
	return strings.Join(all[0], "; "), strings.Join(all[1], "; "), strings.Join(all[2], "; ")
}

const (
	canHold  = "can take addresses of this network"
	canHost  = "+EgressService can be the host of those whose nodeSelector it matches"
	canRoute = "+AdminPolicyBasedExternalRoute routes its own pods"
)

// networksOf returns the same result for each network of a node.
func networksOf(mark, why string) string {
	var out []string
	for _, network := range []string{"172.18.0.0/16", "fc00:f853:ccd:e793::/64", "172.19.0.0/24"} {
		out = append(out, mark+"EgressIP "+network+" "+why)
	}
	return strings.Join(out, "; ")
}

func TestNodeFeatures(t *testing.T) {
	type change = func(*Snapshot)
	second := func(f func(*corev1.Node)) change { return func(s *Snapshot) { f(s.Nodes[2]) } }
	for _, tc := range []struct {
		name  string
		world []change
		want  string
	}{
		{"all", nil, networksOf("+", canHold) + "; " + canHost + "; " + canRoute},
		{"not labelled", []change{unlabelled}, networksOf("-", "is not labelled k8s.ovn.org/egress-assignable") + "; " + canHost + "; " + canRoute},
		{"cordoned", []change{second(func(n *corev1.Node) { n.Spec.Unschedulable = true })}, networksOf("-", "is cordoned") + "; -EgressService is cordoned; " + canRoute},
		{"not Ready", []change{notReady("ovn-worker2")}, networksOf("-", "not ready") + "; -EgressService not ready; " + canRoute},
		{"no gateway", []change{second(func(n *corev1.Node) { delete(n.Annotations, kube.AnnotationL3Gateway) })},
			"-EgressIP 172.18.0.0/16 is not set up for this family yet; -EgressIP fc00:f853:ccd:e793::/64 is not set up for this family yet; " +
				"+EgressIP 172.19.0.0/24 " + canHold + "; " + canHost + "; -AdminPolicyBasedExternalRoute has not published its gateway yet"},
		{"new", []change{second(func(n *corev1.Node) { n.Annotations = nil })},
			"-EgressIP has not published its networks yet; -EgressService has no pod subnet yet; -AdminPolicyBasedExternalRoute has not published its gateway yet"},
		{"disabled features", []change{func(s *Snapshot) {
			s.Settings.EgressIP, s.Settings.EgressService, s.Settings.ExternalGateways = false, false, false
		}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := cluster(t, tc.world...).Node("ovn-worker2")
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := n.briefly(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestNodeAddresses(t *testing.T) {
	type change = func(*Snapshot)
	prod := egressIP("prod", "prod", "172.18.0.33")
	host := func(name string) change { return func(s *Snapshot) { s.EgressServices[0].Status.Host = name } }
	const own = "IPv4 NodeAddress 2; IPv6 NodeAddress 2"
	for _, tc := range []struct {
		name, node      string
		world           []change
		addresses, pods string
		problems        string
	}{
		{"none", "ovn-worker", nil, "", own, ""},
		{"an EgressIP", "ovn-worker2", []change{prod, inForce}, "172.18.0.33 EgressIP/prod true true", "", ""},
		{"its pod", "ovn-worker", []change{prod, inForce}, "", "IPv4 EgressIP 1; IPv4 NodeAddress 1; IPv6 NodeAddress 2", ""},
		{"both families", "ovn-worker2", []change{egressIP("prod", "prod", "172.18.0.33"), egressIP("six", "shop", "fc00:f853:ccd:e793::36"), unlabelled,
			func(s *Snapshot) { s.Nodes[2].Labels[kube.LabelEgressAssignable] = "" }, inForce},
			"172.18.0.33 EgressIP/prod true true; fc00:f853:ccd:e793::36 EgressIP/six true true", "", ""},
		{"not acknowledged", "ovn-worker2", []change{prod, inForce, func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil }},
			"172.18.0.33 EgressIP/prod true false", "", "Waiting"},
		{"not acknowledged by the other", "ovn-worker", []change{prod, inForce, func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil }},
			"", "IPv4 NodeAddress 1; IPv4 Unknown 1; IPv6 NodeAddress 2", ""},
		{"on its way to another", "ovn-worker2", []change{prod, inForce, func(s *Snapshot) { s.EgressIPs[0].Status.Items[0].Node = "ovn-worker" }},
			"172.18.0.33 EgressIP/prod false true", "", "Waiting"},
		{"lost, and no master acts", "ovn-worker2", []change{prod, inForce, notReady("ovn-worker2")},
			"172.18.0.33 EgressIP/prod false true", "", "NodeNotReady,StatusDiffers,Waiting"},
		{"left on an interface", "ovn-worker2", []change{func(s *Snapshot) { s.Nodes[2].Annotations[kube.AnnotationEgressIPAddresses] = `["172.19.0.33"]` }}, "", "", "Waiting"},
		{"an EgressService", "ovn-worker", []change{egressService("shop/checkout", "5.5.5.5", "5555::5"), host("ovn-worker"), inForce},
			"5.5.5.5 EgressService/shop/checkout true true; 5555::5 EgressService/shop/checkout true true",
			"IPv4 EgressService 1; IPv4 NodeAddress 1; IPv6 EgressService 1; IPv6 NodeAddress 1", ""},
		{"an EgressService of another", "ovn-worker2", []change{egressService("shop/checkout", "5.5.5.5"), host("ovn-worker"), inForce}, "", "", ""},
		{"an EgressService that it is to take over", "ovn-worker2", []change{egressService("shop/checkout", "5.5.5.5"), host("ovn-worker"), inForce, host("ovn-worker2"), func(s *Snapshot) {
			s.EgressServices[0].Status.Conditions[1].Status = metav1.ConditionFalse
		}}, "5.5.5.5 EgressService/shop/checkout true false", "", "Programmed,Waiting"},
		{"an EgressService that it is to hand over", "ovn-control-plane", []change{egressService("shop/checkout", "5.5.5.5"), host("ovn-control-plane"), inForce, host("ovn-worker2"), func(s *Snapshot) {
			s.EgressServices[0].Status.Conditions[1].Status = metav1.ConditionFalse
		}}, "5.5.5.5 EgressService/shop/checkout false true", "", ""},
		{"a label that nothing gives to it", "ovn-worker2", []change{func(s *Snapshot) { s.Nodes[2].Labels[kube.LabelEgressServicePrefix+"shop-gone"] = "" }}, "", "", "LabelDiffers"},
		{"a label of another host", "ovn-worker2", []change{egressService("shop/checkout", "5.5.5.5"), host("ovn-worker"), inForce,
			func(s *Snapshot) { s.Nodes[2].Labels[kube.LabelEgressServicePrefix+"shop-checkout"] = "" }}, "", "", "LabelDiffers"},
		{"gateways", "ovn-worker", []change{route("gws", "prod", "172.18.0.51", "172.18.0.52"), route("more", "shop", "172.18.0.51"), inForce}, "",
			"IPv4 ExternalGateways 2; IPv6 NodeAddress 2; via 172.18.0.51 2; via 172.18.0.52 1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := cluster(t, tc.world...).Node(tc.node)
			if err != nil {
				t.Fatal(err)
			}
			_, addresses, pods := n.briefly()
			if addresses != tc.addresses {
				t.Errorf("addresses %s\nwant      %s", addresses, tc.addresses)
			}
			if pods != tc.pods {
				t.Errorf("pods %s\nwant %s", pods, tc.pods)
			}
			if got := reasonsOf(n.Problems); got != tc.problems || n.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, n.InPlace, tc.problems)
			}
		})
	}
}

func TestNodeNotFound(t *testing.T) {
	if _, err := cluster(t).Node("ovn-worker3"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want that it is not found", err)
	}
}

func TestNodeSamples(t *testing.T) {
	n, err := cluster(t, route("gws", "shop", "172.18.0.51"), egressIP("prod", "prod", "172.18.0.33", "172.19.0.44"),
		egressService("infra/proxy", "5.5.5.5"), func(s *Snapshot) { s.EgressServices[0].Status.Host = "ovn-worker" },
		inForce, func(s *Snapshot) {
			status := &s.EgressIPs[0].Status
			status.Programmed = status.Programmed[1:]
			status.Conditions[1].Status, status.Conditions[1].LastTransitionTime = metav1.ConditionFalse, ago(40*time.Second)
		}).Node("ovn-worker")
	if err != nil {
		t.Fatal(err)
	}
	samples(t, "node", n)
}
