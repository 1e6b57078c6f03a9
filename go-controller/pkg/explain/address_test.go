package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// briefly summarizes the uses of an address with their nodes, its holders, where it would be, its
// owners, and the pods that leave with it.
func (a Address) briefly() string {
	var out []string
	for _, u := range a.Uses {
		out = append(out, fmt.Sprintf("%s at %s %v", u.Object, u.Node, u.Programmed))
	}
	for _, h := range a.Holders {
		out = append(out, "held by "+h.Node)
	}
	if a.IfAsked != nil {
		out = append(out, "would be at "+a.IfAsked.Node)
	}
	for _, o := range a.Owners {
		out = append(out, strings.TrimSpace(o.Object+" "+o.What))
	}
	for _, p := range a.Pods {
		out = append(out, "pod "+p.Pod)
	}
	return strings.Join(out, "; ")
}

func TestAddress(t *testing.T) {
	type change = func(*Snapshot)
	prod := egressIP("prod", "prod", "172.18.0.33")
	onInterface := func(s *Snapshot) {
		s.Nodes[1].Annotations[kube.AnnotationEgressIPAddresses] = `["172.19.0.33"]`
	}
	for _, tc := range []struct {
		name, address string
		world         []change
		want          string
		problems      string
	}{
		{"an EgressIP", "172.18.0.33", []change{prod, inForce}, "EgressIP/prod at ovn-worker2 true; held by ovn-worker2; pod prod/web", ""},
		{"in IPv6, as nobody else writes it", "FC00:F853:0CCD:E793::0033", []change{egressIP("prod", "prod", "fc00:f853:ccd:e793::33"), inForce},
			"EgressIP/prod at ovn-worker2 true; held by ovn-worker2; pod prod/web", ""},
		{"IPv4 as IPv6", "::ffff:172.18.0.33", []change{prod, inForce}, "EgressIP/prod at ovn-worker2 true; held by ovn-worker2; pod prod/web", ""},
		{"two EgressIPs", "172.18.0.33", []change{prod, egressIP("also", "shop", "172.18.0.33"), inForce},
			"EgressIP/prod at ovn-worker2 true; EgressIP/also at  false; held by ovn-worker2; pod prod/web", "AddressTaken,NotAssigned"},
		{"the other address of an EgressIP", "172.19.0.44", []change{egressIP("prod", "prod", "172.18.0.33", "172.19.0.44"), inForce},
			"EgressIP/prod at ovn-worker true; held by ovn-worker; pod prod/web", ""},
		{"not acknowledged", "172.18.0.33", []change{prod, inForce, func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil }},
			"EgressIP/prod at ovn-worker2 false", "Waiting,Waiting"},
		{"taken out of the spec", "172.18.0.33", []change{prod, inForce, func(s *Snapshot) { s.EgressIPs[0].Spec.EgressIPs = []ipv1.Address{"172.18.0.44"} }},
			"held by ovn-worker2; would be at ovn-worker", "Waiting"},
		{"left on an interface", "172.19.0.33", []change{onInterface}, "held by ovn-worker; would be at ovn-worker", "Waiting"},
		{"on an interface before the node says so", "172.19.0.33", []change{egressIP("prod", "prod", "172.19.0.33"), inForce, func(s *Snapshot) {
			s.EgressIPs[0].Status.Items[0].Node, s.EgressIPs[0].Status.Programmed = "ovn-worker", nil
		}, onInterface}, "EgressIP/prod at ovn-worker false; held by ovn-worker", "Waiting,Waiting"},
		{"an EgressService", "5.5.5.5", []change{egressService("shop/checkout", "5.5.5.5"), inForce},
			"EgressService/shop/checkout at HOST true; would be at ; Service/shop/checkout it is an address of the load balancer of the Service; pod shop/cart", ""},
		{"refused to an EgressService", "172.18.0.3", []change{egressService("shop/checkout", "5.5.5.5", "172.18.0.3"), inForce},
			"EgressService/shop/checkout at  false; would be at ; Node/ovn-worker it is an address of node ovn-worker; " +
				"Service/shop/checkout it is an address of the load balancer of the Service", "NodeAddress"},
		{"nobody's", "172.18.0.77", nil, "would be at ovn-worker", ""},
		{"on no network of a node", "192.0.2.1", nil, "would be at ", ""},
		{"a node's", "172.18.0.4", nil, "would be at ; Node/ovn-worker2 it is an address of node ovn-worker2", ""},
		{"a gateway's", "172.18.0.1", nil, "would be at ; it is the gateway of 3 nodes", ""},
		{"a pod's", "fd00:10:244:2::3", nil, "would be at ; it is in the pod range fd00:10:244::/48 of the cluster; Pod/prod/web it is the address of the pod, on node ovn-worker", ""},
		{"a management port's", "10.244.1.2", nil, "would be at ; it is in the pod range 10.244.0.0/16 of the cluster; Node/ovn-worker it is the address of the node's management port", ""},
		{"on the join switch", "100.64.0.3", nil, "would be at ; it is in the join range 100.64.0.0/16 of the cluster; Node/ovn-worker it is the address of the node's gateway router on the join switch", ""},
		{"a cluster IP", "10.96.0.7", []change{egressService("shop/checkout", "5.5.5.5"), func(s *Snapshot) { s.Services[0].Spec.ClusterIP = "10.96.0.7" }, inForce},
			"would be at ; it is in the Service range 10.96.0.0/16 of the cluster; Service/shop/checkout it is a cluster IP of the Service", ""},
		{"an external gateway", "172.18.0.51", []change{route("gws", "prod", "172.18.0.51"), inForce},
			"would be at ovn-worker; Namespace/prod it is an external gateway of the namespace", ""},
		{"EgressIPs are disabled", "172.18.0.33", []change{prod, func(s *Snapshot) { s.Settings.EgressIP = false }}, "", ""},
		{"a pod that has ended", "10.244.1.3", []change{podOf(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
			"would be at ; it is in the pod range 10.244.0.0/16 of the cluster", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := world(tc.world...)
			c, err := New(*s)
			if err != nil {
				t.Fatal(err)
			}
			a, want := c.Address(netip.MustParseAddr(tc.address)), tc.want
			if len(s.EgressServices) > 0 {
				want = strings.ReplaceAll(want, "HOST", s.EgressServices[0].Status.Host)
			}
			if got := a.briefly(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := reasonsOf(a.Problems); got != tc.problems || a.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, a.InPlace, tc.problems)
			}
		})
	}
}

func TestAddressSamples(t *testing.T) {
	c := cluster(t, egressIP("prod", "prod", "172.18.0.33"), egressIP("also", "shop", "172.18.0.33"), inForce)
	samples(t, "address", c.Address(netip.MustParseAddr("172.18.0.33")))
	samples(t, "address-free", c.Address(netip.MustParseAddr("172.18.0.77")))
}
