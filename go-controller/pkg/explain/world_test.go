package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var taken = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(taken.Add(-d)) }

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// world is the cluster of the documentation: a control plane and two workers, which may hold
// egress addresses and are also on the network 172.19.0.0/24; dual-stack.
func world(change ...func(*Snapshot)) *Snapshot {
	s := &Snapshot{Taken: taken, Renewed: taken.Add(-2 * time.Second), Settings: Settings{
		EgressIP: true, EgressService: true, ExternalGateways: true,
		Pods: prefixes("10.244.0.0/16", "fd00:10:244::/48"), Services: prefixes("10.96.0.0/16", "fd00:10:96::/112"),
		Join: prefixes("100.64.0.0/16", "fd98::/64"), Masquerade: prefixes("169.254.169.0/29", "fd69::/125"),
	}}
	for i, name := range []string{"ovn-control-plane", "ovn-worker", "ovn-worker2"} {
		s.Nodes = append(s.Nodes, node(name, i))
	}
	s.Reachability = &reachability.Report{AsOf: taken.Add(-40 * time.Second), Nodes: map[string]reachability.Node{}}
	for i, n := range s.Nodes {
		s.Reachability.Nodes[n.Name] = reachability.Node{State: reachability.Reachable, Since: taken.Add(-time.Hour), LatencyMilliseconds: int64(1 + i/2)}
	}
	for _, name := range []string{"prod", "shop", "infra"} {
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
	}
	s.Pods = []*corev1.Pod{pod("prod/web", "ovn-worker", 3), pod("shop/cart", "ovn-worker", 4)}
	for _, f := range change {
		f(s)
	}
	return s
}

func node(name string, i int) *corev1.Node {
	primary := prefixes(fmt.Sprintf("172.18.0.%d/16", i+2), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+2))
	host := append(slices.Clone(primary), prefixes(fmt.Sprintf("172.19.0.%d/24", i+2))...)
	var texts []string
	for _, p := range host {
		texts = append(texts, p.String())
	}
	hosts, _ := json.Marshal(texts)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{
		kube.AnnotationNodeSubnets:      kube.FormatNodeSubnets(prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1))),
		kube.AnnotationGatewayLRPIfAddr: kube.FormatGatewayLRPIfAddr(prefixes(fmt.Sprintf("100.64.0.%d/16", i+2), fmt.Sprintf("fd98::%d/64", i+2))),
		kube.AnnotationChassisID:        "chassis-" + name,
		kube.AnnotationPrimaryIfAddr:    fmt.Sprintf(`{"ipv4":%q,"ipv6":%q}`, primary[0], primary[1]),
		kube.AnnotationHostAddresses:    string(hosts),
		kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_" + name,
			MAC: "02:42:ac:12:00:03", Addrs: primary, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1")}, NodePort: true}),
	}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	if i > 0 {
		n.Labels[kube.LabelEgressAssignable] = ""
	}
	return n
}

// pod returns a pod of a namespace, on a worker, with address number i.
func pod(key, on string, i int) *corev1.Pod {
	namespace, name, _ := strings.Cut(key, "/")
	subnet := map[string]int{"ovn-control-plane": 0, "ovn-worker": 1, "ovn-worker2": 2}[on]
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: on}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.244.%d.%d", subnet, i)}, {IP: fmt.Sprintf("fd00:10:244:%d::%d", subnet+1, i)}}
	p.Status.PodIP = p.Status.PodIPs[0].IP
	return p
}

// egressIP adds an EgressIP for a namespace; the first is the oldest.
func egressIP(name, namespace string, addrs ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		e := &ipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(time.Hour - time.Duration(len(s.EgressIPs))*time.Minute)}}
		for _, a := range addrs {
			e.Spec.EgressIPs = append(e.Spec.EgressIPs, ipv1.Address(a))
		}
		e.Spec.NamespaceSelector.MatchLabels = map[string]string{"name": namespace}
		s.EgressIPs = append(s.EgressIPs, e)
	}
}

// egressService adds a LoadBalancer Service with its EgressService, for the pods with the label
// app of the Service's name.
func egressService(key string, ingress ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		namespace, name, _ := strings.Cut(key, "/")
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: ago(time.Hour - time.Duration(len(s.EgressServices))*time.Minute)}
		svc := &corev1.Service{ObjectMeta: meta}
		svc.Spec.Type, svc.Spec.Selector = corev1.ServiceTypeLoadBalancer, map[string]string{"app": "cart"}
		for _, a := range ingress {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		s.Services = append(s.Services, svc)
		s.EgressServices = append(s.EgressServices, &servicev1.EgressService{ObjectMeta: meta})
		for i, family := range []string{"v4", "v6"} {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + family,
				Labels: map[string]string{discoveryv1.LabelServiceName: name}}, Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}}}
			for _, p := range s.Pods {
				if p.Namespace == namespace && p.Labels["app"] == "cart" && len(p.Status.PodIPs) > i {
					slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{p.Status.PodIPs[i].IP}})
				}
			}
			s.EndpointSlices = append(s.EndpointSlices, slice)
		}
	}
}

// secondUplink gives the nodes a second uplink on the network 172.19.0.0/24.
func secondUplink(s *Snapshot) {
	for i, n := range s.Nodes {
		known, _ := kube.Node(n)
		known.Gateway.External = topology.ExternalAttachment{InterfaceID: "breth1_" + n.Name, MAC: fmt.Sprintf("02:42:ac:13:00:%02x", i+2),
			Addrs: prefixes(fmt.Sprintf("172.19.0.%d/24", i+2))}
		n.Annotations[kube.AnnotationL3Gateway] = kube.FormatL3Gateway(known.Gateway)
	}
}

// route adds a policy with static hops for a namespace.
func route(name, namespace string, hops ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		r := &routev1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(time.Hour)}}
		r.Spec.From.NamespaceSelector.MatchLabels = map[string]string{"name": namespace}
		for _, h := range hops {
			r.Spec.NextHops.Static = append(r.Spec.NextHops.Static, routev1.StaticHop{IP: h})
		}
		s.Routes = append(s.Routes, r)
	}
}

// inForce writes the state that master and nodes write when everything is done.
func inForce(s *Snapshot) {
	before := s.Taken
	s.Taken = ago(5 * time.Minute).Time
	c, err := New(*s)
	if err != nil {
		panic(err)
	}
	s.Taken = before
	done := c.acknowledged()
	c.snap.EgressServices = done.EgressServices
	for i, n := range c.acknowledgeLabels() {
		s.Nodes[i].Labels = n.Labels
	}
	for i, e := range s.EgressIPs {
		e.Status = done.EgressIPs[i].Status
	}
	for i, eg := range s.EgressServices {
		eg.Status = done.EgressServices[i].Status
	}
	for i, r := range s.Routes {
		r.Status = done.Routes[i].Status
	}
	for i, ns := range s.Namespaces {
		ns.Annotations = done.Namespaces[i].Annotations
	}
}

// ask explains a pod, from all pods and from only those that the answer needs.
func ask(t *testing.T, s *Snapshot, key, to string) Pod {
	t.Helper()
	c, err := New(*s)
	if err != nil {
		t.Fatal(err)
	}
	var at netip.AddrPort
	if to != "" {
		var err error
		if at, err = netip.ParseAddrPort(to); err != nil {
			at = netip.AddrPortFrom(netip.MustParseAddr(to), 0)
		}
	}
	p, err := c.Pod(key, at)
	if err != nil {
		t.Fatal(err)
	}
	sameFromLess(t, s, key, at)
	return p
}
