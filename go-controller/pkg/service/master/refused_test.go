package master_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// asking returns a Service without a node port that requests addresses.
func asking(name, clusterIP string, age time.Duration, ips ...string) *corev1.Service {
	return object(name, at(clusterIP), func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC).Add(-age))
		s.Spec.Type, s.Spec.Ports[0].NodePort, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, 0, ips
	})
}

// vip matches a virtual address with a single backend in a dump.
var vip = regexp.MustCompile(`([0-9.]+):80=([0-9.]+):8080`)

// serves waits until exactly these external virtual addresses have backends, as
// "VIP=BACKEND".
func (w *world) serves(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	eventually.Succeeds(w.t, fmt.Sprintf("%v to be served", want), func() error {
		var have []string
		for _, found := range vip.FindAllStringSubmatch(w.nb.Dump(), -1) {
			if !strings.HasPrefix(found[1], "10.96.") {
				have = append(have, found[1]+"="+found[2])
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			return fmt.Errorf("served are %v", have)
		}
		return nil
	}, eventually.Dump(w.nb.Dump))
}

// told waits for an Event that contains all words, and fails on any other Event.
func (w *world) told(words ...string) {
	w.t.Helper()
	said := eventually.Receive(w.t, fmt.Sprintf("an Event that says %q", words), w.events.Events)
	for _, word := range words {
		if !strings.Contains(said, word) {
			w.t.Errorf("%q does not say %q", said, word)
		}
	}
}

func (w *world) silent() {
	w.t.Helper()
	select {
	case said := <-w.events.Events:
		w.t.Errorf("an Event too many: %q", said)
	default:
	}
}

// TestAddressesOfOthers: an address is refused as soon as it has another owner, and served
// as soon as it has none.
func TestAddressesOfOthers(t *testing.T) {
	w := newWorld(t)
	w.ips = egressipfake.NewSimpleClientset()
	a := asking("a", "10.96.0.1", 0, "5.5.5.5", "172.18.0.3", "172.18.0.33", "198.51.100.7")
	s := state{nodes: map[string]topology.GatewayMode{"n1": shared}, services: []*corev1.Service{a}, endpoints: map[string][]string{"a": {"10.244.1.3@n1"}}}
	w.set(s)
	w.start()
	w.serves("5.5.5.5=10.244.1.3", "172.18.0.3=10.244.1.3", "172.18.0.33=10.244.1.3", "198.51.100.7=10.244.1.3")
	w.silent()

	s.nodes["n2"] = shared // 172.18.0.3
	w.set(s)
	w.told("NodeAddress", "spec.externalIPs", "172.18.0.3", "node n2")
	w.serves("5.5.5.5=10.244.1.3", "172.18.0.33=10.244.1.3", "198.51.100.7=10.244.1.3")

	ip := &egressipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: egressipv1.EgressIPSpec{EgressIPs: []egressipv1.Address{"5.5.5.5"}}}
	ip.Status.Items = []egressipv1.EgressIPStatusItem{{EgressIP: "172.18.0.33", Node: "n1"}}
	ips := w.ips.EgressIPV1().EgressIPs()
	if _, err := ips.Create(t.Context(), ip, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.told("AddressTaken", "172.18.0.33", "EgressIP prod")
	// An EgressIP does not own an address that it only requests.
	w.serves("5.5.5.5=10.244.1.3", "198.51.100.7=10.244.1.3")

	api := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"198.51.100.7"}}},
		Ports: []discoveryv1.EndpointPort{{Port: new(int32(6443))}}}
	forged := api.DeepCopy()
	forged.Namespace, forged.Endpoints[0].Addresses = "ns", []string{"5.5.5.5"}
	for _, slice := range []*discoveryv1.EndpointSlice{forged, api} {
		if _, err := w.kube.DiscoveryV1().EndpointSlices(slice.Namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.told("APIServerAddress", "198.51.100.7")
	w.serves("5.5.5.5=10.244.1.3")

	// The nodes have a queue of their own.
	eventually.True(t, "the variables of n2", func() bool { return strings.Contains(w.nb.Dump(), "chassis-n2") }, eventually.Dump(w.nb.Dump))
	before := w.nb.Writes()
	w.start()
	if n := w.nb.Writes() - before; n != 0 {
		t.Errorf("%d writes at a restart", n)
	}

	delete(s.nodes, "n2")
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ips.Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.kube.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.serves("5.5.5.5=10.244.1.3", "172.18.0.3=10.244.1.3", "172.18.0.33=10.244.1.3", "198.51.100.7=10.244.1.3")
}

// TestSharedAddress: the older of two Services gets an address, in whatever order they are
// created, and the younger gets it when the older is gone.
func TestSharedAddress(t *testing.T) {
	older, younger := asking("old", "10.96.0.1", time.Hour, "5.5.5.5"), asking("new", "10.96.0.2", 0, "5.5.5.5", "5.5.5.6")
	endpoints := map[string][]string{"old": {"10.244.1.3@n1"}, "new": {"10.244.1.4@n1"}}
	nodes := map[string]topology.GatewayMode{"n1": shared}
	both := state{nodes: nodes, services: []*corev1.Service{older, younger}, endpoints: endpoints}
	w := newWorld(t)
	w.set(state{nodes: nodes, services: []*corev1.Service{younger}, endpoints: endpoints})
	w.start()
	w.serves("5.5.5.5=10.244.1.4", "5.5.5.6=10.244.1.4")
	for range 2 {
		w.set(both)
		w.told("AddressTaken", "spec.externalIPs", "5.5.5.5:80/TCP", "ns/old")
		w.serves("5.5.5.5=10.244.1.3", "5.5.5.6=10.244.1.4")
		w.set(state{nodes: nodes, services: []*corev1.Service{younger}, endpoints: endpoints})
		w.serves("5.5.5.5=10.244.1.4", "5.5.5.6=10.244.1.4")
	}
	w.set(both)
	w.told("AddressTaken")
	moved := asking("old", "10.96.0.1", time.Hour, "5.5.5.7") // the older requests another
	w.set(state{nodes: nodes, services: []*corev1.Service{moved, younger}, endpoints: endpoints})
	w.serves("5.5.5.5=10.244.1.4", "5.5.5.6=10.244.1.4", "5.5.5.7=10.244.1.3")
	// A cluster address belongs to its own Service, however young.
	w.set(state{nodes: nodes, services: []*corev1.Service{moved, younger, asking("newest", "5.5.5.6", -time.Hour)}, endpoints: endpoints})
	w.told("InternalAddress", "5.5.5.6", "ns/newest")
	w.silent()
}

// TestSharedHostAddress: an address of a node is not served as an external IP, but it is as a load balancer address: as soon
// as the older Service has it as such, too, the younger loses it.
func TestSharedHostAddress(t *testing.T) {
	balancer := func(s *corev1.Service, ips ...string) *corev1.Service {
		s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer, nil
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		return s
	}
	older, younger := balancer(asking("old", "10.96.0.1", time.Hour, "172.18.0.2"), "5.5.5.5"), balancer(asking("new", "10.96.0.2", 0), "172.18.0.2")
	s := state{nodes: map[string]topology.GatewayMode{"n1": shared}, services: []*corev1.Service{older, younger},
		endpoints: map[string][]string{"old": {"10.244.1.3@n1"}, "new": {"10.244.1.4@n1"}}}
	w := newWorld(t)
	w.set(s)
	w.start()
	for range 2 {
		w.told("NodeAddress", "172.18.0.2")
		w.serves("5.5.5.5=10.244.1.3", "172.18.0.2=10.244.1.4")
		s.services = []*corev1.Service{balancer(older.DeepCopy(), "5.5.5.5", "172.18.0.2"), younger}
		w.set(s)
		w.told("AddressTaken", "172.18.0.2:80/TCP", "ns/old")
		w.serves("5.5.5.5=10.244.1.3", "172.18.0.2=10.244.1.3")
		s.services = []*corev1.Service{older, younger}
		w.set(s)
	}
	w.told("NodeAddress", "172.18.0.2")
	w.serves("5.5.5.5=10.244.1.3", "172.18.0.2=10.244.1.4")
	w.silent()
}

// TestManyShareOneAddress: the cost is linear, as Services that share an address with
// different ports do not affect each other.
func TestManyShareOneAddress(t *testing.T) {
	w := newWorld(t)
	var s state
	for i := range 300 {
		o := asking(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i%250), 0, "5.5.5.5")
		o.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", 1+i/250, i%250)
		o.Spec.ClusterIPs, o.Spec.Ports[0].Port = []string{o.Spec.ClusterIP}, int32(1000+i)
		s.services = append(s.services, o)
	}
	w.set(s)
	w.start()
	w.reaches(s)
	w.silent()
}

// TestRecreated: the Events about a deleted Service do not belong to one that is created with the same name, even if the
// controller sees only the new one.
func TestRecreated(t *testing.T) {
	w := newWorld(t)
	a := asking("a", "10.96.0.1", 0, "127.0.0.1")
	a.UID, a.Spec.SessionAffinity = "1", corev1.ServiceAffinityClientIP
	w.set(state{services: []*corev1.Service{a}})
	w.start()
	for _, uid := range []types.UID{"1", "2", "3"} {
		again := a.DeepCopy()
		again.UID = uid
		if _, err := w.kube.CoreV1().Services("ns").Update(t.Context(), again, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.told("InvalidAddress", "127.0.0.1")
		w.told("SessionAffinityTimeout")
	}
	again := a.DeepCopy()
	again.UID, again.Labels = "3", map[string]string{"app": "a"}
	again.Spec.ExternalIPs = append(again.Spec.ExternalIPs, "127.0.0.2")
	if _, err := w.kube.CoreV1().Services("ns").Update(t.Context(), again, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.told("InvalidAddress", "127.0.0.2")
	w.silent()
}
