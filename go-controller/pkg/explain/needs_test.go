package explain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// narrow returns the snapshot with only the pods for which about returns true and the pods that answers
// about them need.
func narrow(t *testing.T, s *Snapshot, about func(*corev1.Pod) bool) *Snapshot {
	t.Helper()
	out := *s
	out.Pods = nil
	var asked []*corev1.Pod
	for _, p := range s.Pods {
		if about(p) {
			asked = append(asked, p)
		}
	}
	needs := out.Needs(asked...)
	for _, p := range s.Pods {
		if about(p) || IsGatewayOf(p.Annotations, needs.Routed) || chosen(t, needs.Pods, p) {
			out.Pods = append(out.Pods, p)
		}
	}
	return &out
}

// chosen reports whether one of the queries matches a pod.
func chosen(t *testing.T, queries []PodQuery, p *corev1.Pod) bool {
	t.Helper()
	return slices.ContainsFunc(queries, func(q PodQuery) bool {
		selector, err := labels.Parse(q.Selector)
		if err != nil {
			t.Fatal(err)
		}
		return (q.Namespace == "" || q.Namespace == p.Namespace) && selector.Matches(labels.Set(p.Labels))
	})
}

// sameFromLess fails if the answer about a pod changes without the pods that it
// does not need. It returns the number of pods used.
func sameFromLess(t *testing.T, s *Snapshot, key string, to netip.AddrPort) int {
	t.Helper()
	less := narrow(t, s, func(p *corev1.Pod) bool { return kube.PodKey(p) == key })
	sameAnswer(t, s, less, func(c *Cluster) (any, error) { return c.Pod(key, to) })
	return len(less.Pods)
}

// sameAnswer fails if the answer from less differs from the one from all.
func sameAnswer(t *testing.T, all, less *Snapshot, ask func(*Cluster) (any, error)) {
	t.Helper()
	var answers []string
	for _, s := range []*Snapshot{all, less} {
		c, err := New(*s)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := ask(c)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.MarshalIndent(answer, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(data))
	}
	if answers[0] != answers[1] {
		t.Errorf("from all %d pods\n%s\nfrom %d\n%s", len(all.Pods), answers[0], len(less.Pods), answers[1])
	}
}

// bystanders adds pods that nothing selects, in the existing namespaces.
func bystanders(n int) func(*Snapshot) {
	return func(s *Snapshot) {
		for i := range n {
			p := pod(fmt.Sprintf("%s/bystander-%d", s.Namespaces[i%len(s.Namespaces)].Name, i), s.Nodes[i%len(s.Nodes)].Name, 20+i)
			s.Pods = append(s.Pods, p)
		}
	}
}

// TestNeeds: of many pods, only those related to the one in question are needed.
func TestNeeds(t *testing.T) {
	members := func(s *Snapshot) {
		s.EgressIPs[0].Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
		p := pod("prod/other", "ovn-worker2", 7)
		p.Labels["app"] = "web"
		s.Pods = append(s.Pods, p)
	}
	everywhere := func(s *Snapshot) { s.EgressIPs[0].Spec.NamespaceSelector.MatchLabels = nil }
	dynamic := func(s *Snapshot) {
		s.Routes[0].Spec.NextHops.Dynamic = []routev1.DynamicHop{{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
			NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "infra"}}, NetworkAttachmentName: "ext"}}
	}
	for _, tc := range []struct {
		name, pod string
		world     []func(*Snapshot)
		pods      int
	}{
		{"nothing", "prod/web", nil, 1},
		{"an EgressIP of other pods", "shop/cart", []func(*Snapshot){egressIP("prod", "prod", "172.18.0.33"), inForce}, 1},
		{"an EgressIP", "prod/web", []func(*Snapshot){egressIP("prod", "prod", "172.18.0.33"), members, inForce}, 2},
		{"an EgressIP on another network", "prod/web", []func(*Snapshot){egressIP("prod", "prod", "172.19.0.33"), members, inForce}, 2},
		{"an EgressIP of all namespaces", "prod/web", []func(*Snapshot){egressIP("prod", "prod", "172.18.0.33"), members, everywhere, inForce}, 2},
		{"an EgressService of other pods", "prod/web", []func(*Snapshot){egressService("shop/checkout", "5.5.5.5"), inForce}, 1},
		{"a gateway by annotation", "prod/web", []func(*Snapshot){gatewayPod, inForce}, 2},
		{"a gateway of another namespace", "shop/cart", []func(*Snapshot){gatewayPod, inForce}, 1},
		{"a gateway by a policy", "prod/web", []func(*Snapshot){gatewayPod, route("gws", "shop"), dynamic, inForce}, 2},
		{"on the host's network", "prod/web", []func(*Snapshot){egressIP("prod", "prod", "172.18.0.33"), members,
			podOf(func(p *corev1.Pod) { p.Spec.HostNetwork = true })}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, n := range []int{30, 150} {
				if got := sameFromLess(t, world(append([]func(*Snapshot){bystanders(n)}, tc.world...)...), tc.pod, netip.AddrPort{}); got != tc.pods {
					t.Errorf("beside %d others it takes %d pods, want %d", n, got, tc.pods)
				}
			}
		})
	}
}

// TestNeedsRandomWorlds: for arbitrary clusters, the answers about each pod and each EgressIP are
// the same without the pods that they do not need.
func TestNeedsRandomWorlds(t *testing.T) {
	for seed := range uint64(150) {
		s := randomWorld(rand.New(rand.NewPCG(seed, 1)))
		for _, p := range s.Pods {
			sameFromLess(t, s, kube.PodKey(p), netip.AddrPort{})
		}
		for _, e := range s.EgressIPs {
			queries := s.SelectedBy(e.Name)
			sameAnswer(t, s, narrow(t, s, func(p *corev1.Pod) bool { return chosen(t, queries, p) }),
				func(c *Cluster) (any, error) { return c.EgressIP(e.Name) })
		}
		if t.Failed() {
			t.Fatalf("in world %d", seed)
		}
	}
}

func randomWorld(r *rand.Rand) *Snapshot {
	names := []string{"prod", "shop", "infra"}
	one := func() string { return names[r.IntN(len(names))] }
	s := world()
	for i := range 3 + r.IntN(9) {
		p := pod(fmt.Sprintf("%s/pod-%d", one(), i), s.Nodes[r.IntN(len(s.Nodes))].Name, 20+i)
		p.Labels["app"] = []string{"cart", "web", "gw"}[r.IntN(3)]
		switch r.IntN(8) {
		case 0:
			p.Spec.HostNetwork = true
		case 1:
			p.Status.Phase = corev1.PodSucceeded
		case 2:
			p.Status.PodIP, p.Status.PodIPs = "", nil
		case 3, 4:
			p.Annotations = map[string]string{kube.AnnotationRoutingNamespaces: one(), kube.AnnotationRoutingNetwork: "ext",
				kube.AnnotationNetworkStatus: fmt.Sprintf(`[{"name":"ext","ips":["172.18.0.%d"]}]`, 60+i)}
		}
		s.Pods = append(s.Pods, p)
	}
	for i := range r.IntN(4) {
		egressIP(fmt.Sprintf("ip-%d", i), one(), fmt.Sprintf("172.%d.0.%d", 18+r.IntN(2), 33+i))(s)
		e := s.EgressIPs[i]
		if r.IntN(3) == 0 {
			e.Spec.NamespaceSelector.MatchLabels = nil
		}
		if r.IntN(2) == 0 {
			e.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
		}
		if r.IntN(3) == 0 {
			e.Spec.OnUnavailable = ipv1.UnavailableDrop
		}
	}
	for i := range r.IntN(4) {
		egressService(fmt.Sprintf("%s/lb-%d", one(), i), fmt.Sprintf("5.5.5.%d", i))(s)
		if r.IntN(2) == 0 {
			s.Services[i].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		if r.IntN(2) == 0 {
			s.EgressServices[i].Status.Host = s.Nodes[r.IntN(len(s.Nodes))].Name
		}
	}
	for i := range r.IntN(4) {
		route(fmt.Sprintf("gws-%d", i), one(), fmt.Sprintf("172.18.0.%d", 51+r.IntN(3)))(s)
		next := &s.Routes[i].Spec.NextHops
		timer := int32(100 * (1 + i))
		next.Static[0].BFDEnabled, next.Static[0].BFD = r.IntN(2) == 0, &routev1.BFDTimers{MinRx: &timer}
		if r.IntN(2) == 0 {
			next.Dynamic = []routev1.DynamicHop{{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
				NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": one()}}, NetworkAttachmentName: "ext",
				HopOptions: next.Static[0].HopOptions}}
		}
	}
	if r.IntN(3) == 0 {
		s.Settings.GatewayNamespaces = []string{one()}
	}
	slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int { return strings.Compare(kube.PodKey(a), kube.PodKey(b)) })
	if r.IntN(4) > 0 {
		inForce(s)
	}
	if r.IntN(3) == 0 {
		notReady(s.Nodes[r.IntN(len(s.Nodes))].Name)(s)
	}
	return s
}
