package explain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

func TestService(t *testing.T) {
	type change = func(*Snapshot)
	checkout := egressService("shop/checkout", "5.5.5.5")
	selector := func(s *Snapshot) {
		s.EgressServices[0].Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
		s.Nodes[1].Labels["zone"] = "a"
	}
	const (
		selectorWhy = "does not match nodeSelector"
		could       = "could be the host, and is that of 0 others"
		v6          = "IPv6 NodeAddress (the EgressService has no IPv6 address, and leaves this family alone)"
	)
	for _, tc := range []struct {
		name     string
		world    []change
		host     string // the host, whether it is programmed, and the other nodes
		pods     string
		problems string
	}{
		{"in place", []change{checkout, selector, inForce}, "ovn-worker true: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker; " + v6, ""},
		{"both families", []change{egressService("shop/checkout", "5.5.5.5", "5555::5"), selector, inForce}, "ovn-worker true: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker; IPv6 EgressService 5555::5@ovn-worker", ""},
		{"any node", []change{checkout, func(s *Snapshot) { s.EgressServices[0].Status.Host = "ovn-worker" }, inForce},
			"ovn-worker true: ovn-control-plane " + could + ", ovn-worker2 " + could, "shop/cart IPv4 EgressService 5.5.5.5@ovn-worker; " + v6, ""},
		{"only nodes with an endpoint", []change{checkout, func(s *Snapshot) { s.Services[0].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }, inForce},
			"ovn-worker true: ovn-control-plane has no endpoint, which externalTrafficPolicy Local demands, ovn-worker2 has no endpoint, which externalTrafficPolicy Local demands",
			"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker; " + v6, ""},
		{"no node", []change{checkout, selector, notReady("ovn-worker"), inForce}, " false: ovn-control-plane " + selectorWhy + ", ovn-worker not ready, ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 NodeAddress (no node serves it: no node can be the host: ovn-control-plane, ovn-worker2: does not match nodeSelector; ovn-worker: not ready); " + v6, "NoNode,NotAssigned"},
		{"no address yet", []change{egressService("shop/checkout"), inForce}, " false: ",
			"shop/cart IPv4 NodeAddress (the Service has no ingress IP yet); IPv6 NodeAddress (the Service has no ingress IP yet)", "NoIngressIP,NotAssigned"},
		{"no Service", []change{checkout, func(s *Snapshot) { s.Services = nil }, inForce}, " false: ",
			"shop/cart IPv4 NodeAddress (there is no Service of this name); IPv6 NodeAddress (there is no Service of this name)", "ServiceNotFound,NotAssigned"},
		{"no EgressService", []change{checkout, func(s *Snapshot) { s.EgressServices = nil }}, "",
			"shop/cart IPv4 NodeAddress (there is no EgressService of the name); IPv6 NodeAddress (there is no EgressService of the name)", ""},
		{"sourceIPBy Network", []change{checkout, func(s *Snapshot) { s.EgressServices[0].Spec.SourceIPBy = servicev1.SourceIPNetwork }, inForce}, "ALL true: ",
			"shop/cart IPv4 EgressService @ovn-worker; IPv6 EgressService @ovn-worker", ""},
		{"not acknowledged", []change{checkout, selector, inForce, func(s *Snapshot) { s.EgressServices[0].Status.Programmed.Digest = "other" },
			func(s *Snapshot) { s.EgressServices[0].Status.Conditions[1].Status = metav1.ConditionFalse }},
			"ovn-worker false: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 Unknown; " + v6, "Programmed,Waiting,Waiting"},
		{"the host lacks its label", []change{checkout, selector, inForce, func(s *Snapshot) { delete(s.Nodes[1].Labels, kube.LabelEgressServicePrefix+"shop-checkout") }},
			"ovn-worker true: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker; " + v6, "LabelDiffers"},
		{"another node has the label, too", []change{checkout, selector, inForce, func(s *Snapshot) { s.Nodes[2].Labels[kube.LabelEgressServicePrefix+"shop-checkout"] = "" }},
			"ovn-worker true: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker; " + v6, "LabelDiffers"},
		{"the host is lost and no master acts", []change{checkout, selector, inForce, notReady("ovn-worker")},
			" false: ovn-control-plane " + selectorWhy + ", ovn-worker not ready, ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 NodeAddress (no node serves it: no node can be the host: ovn-control-plane, ovn-worker2: does not match nodeSelector; ovn-worker: not ready); " + v6, "StatusDiffers"},
		{"an older one has the pod", []change{egressService("shop/older", "5.5.5.6"), checkout, func(s *Snapshot) { s.EgressServices[1].Status.Host = "ovn-worker2" }, inForce},
			"ovn-worker2 true: ovn-control-plane OTHER, ovn-worker OTHER",
			"shop/cart IPv4 EgressService 5.5.5.6@HOST (EgressService/shop/older is older and has the pod); IPv6 NodeAddress (the EgressService has no IPv6 address, and leaves this family alone)", ""},
		{"gateways come first", []change{route("gws", "shop", "172.18.0.51"), checkout, selector, inForce}, "ovn-worker true: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 ExternalGateways 172.18.0.3@ovn-worker (AdminPolicyBasedExternalRoute/gws comes first: external gateways, then EgressServices, then EgressIPs); " + v6, ""},
		{"a pod on the host's network", []change{checkout, selector, func(s *Snapshot) { s.Pods[1].Spec.HostNetwork = true }, inForce},
			"ovn-worker true: ovn-control-plane " + selectorWhy + ", ovn-worker2 " + selectorWhy,
			"shop/cart IPv4 NodeAddress 172.18.0.3@ovn-worker (the pod is on the host's network: it sends as its node does, and no egress feature is about it); " +
				"IPv6 NodeAddress fc00:f853:ccd:e793::3@ovn-worker (the pod is on the host's network: it sends as its node does, and no egress feature is about it)", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			snap := world(tc.world...)
			c, err := New(*snap)
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Service("shop/checkout")
			if err != nil {
				t.Fatal(err)
			}
			host := ""
			if s.Host != nil {
				var others []string
				for _, o := range s.Host.Others {
					others = append(others, o.Node+" "+o.Why)
				}
				host = fmt.Sprintf("%s %v: %s", s.Host.Node, s.Host.Programmed, strings.Join(others, ", "))
			}
			wantHost, wantPods := tc.host, tc.pods
			if len(snap.EgressServices) == 2 {
				at := snap.EgressServices[0].Status.Host
				for _, n := range snap.Nodes {
					count := 0
					if n.Name == at {
						count = 1
					}
					wantHost = strings.ReplaceAll(wantHost, n.Name+" OTHER", fmt.Sprintf("%s could be the host, and is that of %d others", n.Name, count))
				}
				wantPods = strings.ReplaceAll(wantPods, "HOST", at)
			}
			if host != wantHost {
				t.Errorf("host %s\nwant %s", host, wantHost)
			}
			if got := podsBriefly(s.Pods); got != wantPods {
				t.Errorf("pods %s\nwant %s", got, wantPods)
			}
			if got := reasonsOf(s.Problems); got != tc.problems || s.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, s.InPlace, tc.problems)
			}
		})
	}
}

// podsBriefly summarizes the outcomes for pods; if they leave with the address of their own
// node, without the address.
func podsBriefly(pods []SelectedPod) string {
	var out []string
	for _, p := range pods {
		var families []string
		for _, f := range p.Families {
			text := f.Family + " " + string(f.Outcome)
			for _, s := range f.Sources {
				if f.Outcome != OutcomeNode || strings.Contains(f.WhyNot, "host's network") {
					text += " " + s.Address + "@" + s.Node
				}
			}
			if f.WhyNot != "" {
				text += " (" + f.WhyNot + ")"
			}
			families = append(families, text)
		}
		out = append(out, p.Pod+" "+strings.Join(families, "; "))
	}
	return strings.Join(out, " | ")
}

func TestServiceLoadBalancer(t *testing.T) {
	proxy := corev1.LoadBalancerIPModeProxy
	c := cluster(t, egressService("shop/checkout", "172.18.0.3", "5.5.5.5", "5.5.5.6", "5555::5"), func(s *Snapshot) {
		lb := &s.Services[0].Status.LoadBalancer
		lb.Ingress = append(lb.Ingress, corev1.LoadBalancerIngress{IP: "5.5.5.7", IPMode: &proxy}, corev1.LoadBalancerIngress{Hostname: "lb.example"})
	}, inForce)
	s, err := c.Service("shop/checkout")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range s.LoadBalancer {
		got = append(got, fmt.Sprintf("%s %v %s", a.Address, a.Used, a.Why))
	}
	want := "172.18.0.3 false it is an address of node ovn-worker; 5.5.5.5 true pods leave with it in IPv4; " +
		"5.5.5.6 false pods leave with the first address of each family; 5555::5 true pods leave with it in IPv6; 5.5.5.7 false its ipMode is Proxy"
	if strings.Join(got, "; ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
	}
}

func TestServiceNotFound(t *testing.T) {
	if _, err := cluster(t).Service("shop/nothing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want that it is not found", err)
	}
	disabled := func(s *Snapshot) { s.Settings.EgressService = false }
	if _, err := cluster(t, egressService("shop/checkout", "5.5.5.5"), disabled).Service("shop/checkout"); !errors.Is(err, ErrDisabled) {
		t.Errorf("got %v, want that the feature is not enabled", err)
	}
}

func TestServiceSamples(t *testing.T) {
	s, err := cluster(t, egressService("shop/checkout", "5.5.5.5", "172.18.0.3"), func(s *Snapshot) {
		s.EgressServices[0].Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/zone": "a"}}
		s.Nodes[1].Labels["kubernetes.io/zone"], s.Nodes[2].Labels["kubernetes.io/zone"] = "a", "a"
		s.EgressServices[0].Status.Host = "ovn-worker"
	}, inForce, func(s *Snapshot) {
		programmed := &s.EgressServices[0].Status.Conditions[1]
		programmed.Status, programmed.Reason = metav1.ConditionFalse, "WaitingForHost"
		programmed.Message, programmed.LastTransitionTime = "node ovn-worker has not acknowledged its rules yet", ago(40*time.Second)
		s.EgressServices[0].Status.Programmed = nil
	}).Service("shop/checkout")
	if err != nil {
		t.Fatal(err)
	}
	samples(t, "service", s)
}
