package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var config = service.Config{
	Cluster:    []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	Services:   []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	Masquerade: []netip.Prefix{netip.MustParsePrefix("169.254.169.0/29")},
	NodePorts:  true,
}

// world is an API server and a host that outlive the controller.
type world struct {
	t      *testing.T
	kube   *fake.Clientset
	chains *hostfake.Chains
	routes *hostfake.Kernel[host.Route, host.Hop]
	flows  *hostfake.Flows
	stop   func()
	events *record.FakeRecorder
	// applied tells the controller that changes have taken effect in OVN.
	applied func()

	mu      sync.Mutex
	entries map[[2]netip.AddrPort]bool // conntrack: destination, source of replies
	flushes int                        // how often stale entries were looked for
	slow    func()                     // waits until flows have taken effect
}

func newWorld(t *testing.T, mode topology.GatewayMode) *world {
	w := &world{t: t, kube: fakeapi.NewClientset(), flows: hostfake.NewFlows(), routes: hostfake.NewKernel[host.Route, host.Hop](nil), stop: func() {}, entries: map[[2]netip.AddrPort]bool{}}
	families := []topology.Family{topology.IPv4}
	w.chains = hostfake.NewChains(append(service.Chains(families), host.Chain{ChainKey: mgmt}))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
		kube.AnnotationNodeSubnets: `{"default":["10.244.1.0/24"]}`,
		kube.AnnotationL3Gateway: fmt.Sprintf(`{"default":{"mode":%q,"interface-id":"breth0_n1","mac-address":"02:42:ac:12:00:02",`+
			`"ip-addresses":["172.18.0.2/16"],"next-hops":["172.18.0.1"],"node-port-enable":"true","vlan-id":"0"}}`, mode),
	}}}
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.stop() })
	return w
}

var mgmt = host.ChainKey{Family: topology.IPv4, Table: "nat", Name: topology.ChainSNATMgmtPort}

// start replaces the running controller with a new one and waits until it has settled.
func (w *world) start() {
	w.t.Helper()
	w.stop()
	factory := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
	w.events = record.NewFakeRecorder(1000)
	c, err := node.New(node.Deps{
		Recorder:       w.events,
		Node:           "n1",
		Services:       factory.Core().V1().Services(),
		EndpointSlices: factory.Discovery().V1().EndpointSlices(),
		Nodes:          factory.Core().V1().Nodes(),
		Namespaces:     factory.Core().V1().Namespaces(),
		Chains:         w.chains,
		Routes:         host.NewSet("routes", w.routes, func(a, b host.Hop) bool { return a == b }),
		Flows:          w.flows,
		FlushUDP:       w.flush,
		OnApplied:      func(f func()) { w.applied = f },
		Config:         config,
		Marks:          bridge.DefaultMarks(topology.ConntrackZone),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	fakeapi.Start(ctx, w.t, w.kube, factory)
	go func() { done <- c.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		factory.Shutdown()
		w.stop = func() {}
	}
	for _, done := range append(c.Synced(), c.Attempted()) {
		eventually.Receive(w.t, "the controller to settle", done)
	}
}

// flush stands in for the kernel's connection tracking.
func (w *world) flush(_ context.Context, now func() func(service.Entry) bool) (int, error) {
	w.mu.Lock()
	slow := w.slow
	w.mu.Unlock()
	if slow != nil {
		slow()
	}
	stale := now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushes++
	n := 0
	for e := range w.entries {
		if stale(service.Entry{To: e[0], From: e[1], HostOwned: true}) {
			delete(w.entries, e)
			n++
		}
	}
	return n, nil
}

// track adds an entry to connection tracking.
func (w *world) track(to, from string) [2]netip.AddrPort {
	e := [2]netip.AddrPort{netip.MustParseAddrPort(to), netip.MustParseAddrPort(from)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries[e] = true
	return e
}

func (w *world) tracked(e [2]netip.AddrPort) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries[e]
}

func (w *world) until(what string, condition func() bool) {
	w.t.Helper()
	eventually.True(w.t, what, condition, eventually.Dump(func() string {
		return fmt.Sprintf("chains are\n%s\nflows are\n%s", w.chains.Dump(topology.IPv4), w.flows.Dump())
	}))
}

func (w *world) create(s *corev1.Service) {
	w.t.Helper()
	if _, err := w.kube.CoreV1().Services("ns").Create(w.t.Context(), s, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// serve sets the endpoints of a Service: "ADDRESS@NODE".
func (w *world) serve(name string, endpoints ...string) {
	w.t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: new(int32(8080)), Protocol: &p})
	}
	for _, e := range endpoints {
		addr, node, _ := strings.Cut(e, "@")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addr}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	api := w.kube.DiscoveryV1().EndpointSlices("ns")
	if _, err := api.Update(w.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		if _, err := api.Create(w.t.Context(), s, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func object(name, ip string, protocol corev1.Protocol, nodePort int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Protocol: protocol, Port: 80, NodePort: nodePort}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "5.5.5." + ip[len(ip)-1:]}}}},
	}
}

// TestRouteToNewRange: a cluster address outside the ranges that were known at startup is
// routed for as long as the Service exists.
func TestRouteToNewRange(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("a", "10.96.0.1", corev1.ProtocolTCP, 30001))
	w.start()
	if got := hostfake.DumpRoutes(w.routes.Objects()); got != "" {
		t.Errorf("routes to what the base network routes:\n%s", got)
	}
	w.create(object("b", "203.0.113.2", corev1.ProtocolTCP, 30002))
	want := map[host.Route]host.Hop{
		{Dst: netip.MustParsePrefix("203.0.113.2/32"), Link: topology.ManagementPort}: {Via: netip.MustParseAddr("10.244.1.1")},
	}
	w.until("the route", func() bool { return maps.Equal(w.routes.Objects(), want) })
	before := w.routes.Writes()
	w.start()
	if n := w.routes.Writes() - before; n != 0 {
		t.Errorf("%d writes at a restart", n)
	}
	if err := w.kube.CoreV1().Services("ns").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("no route", func() bool { return len(w.routes.Objects()) == 0 })
}

// TestNode: Services are programmed, and nothing is written again after a restart.
func TestNode(t *testing.T) {
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode)
			w.create(object("a", "10.96.0.1", corev1.ProtocolTCP, 30001))
			w.create(object("b", "10.96.0.2", corev1.ProtocolTCP, 30002))
			w.serve("a", "10.244.1.3@n1", "10.244.2.3@n2")
			w.serve("b", "172.18.0.2@n1", "172.18.0.3@n2")
			w.start()
			golden.Check(t, string(mode), w.chains.Dump(topology.IPv4)+w.flows.Dump())
			if n := w.chains.Writes() + w.flows.Writes(); n > 2 {
				t.Errorf("%d writes for everything at once", n)
			}

			before := w.chains.Writes() + w.flows.Writes()
			w.start()
			if n := w.chains.Writes() + w.flows.Writes() - before; n != 0 {
				t.Errorf("%d writes at a restart", n)
			}

			// Adding and removing pods changes no rule; the last one changes the flows.
			w.serve("a", "10.244.2.3@n2")
			w.create(object("c", "10.96.0.3", corev1.ProtocolTCP, 30003))
			w.until("Service c", func() bool { return strings.Contains(w.chains.Dump(topology.IPv4), "30003") })
			if n := w.chains.Writes() - before; n > 2 {
				t.Errorf("%d writes for one new Service", n)
			}
			for _, name := range []string{"a", "b", "c"} {
				if err := w.kube.CoreV1().Services("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.until("nothing to be left", func() bool {
				return !strings.Contains(w.chains.Dump(topology.IPv4), "DNAT --to") && w.flows.Dump() == ""
			})
		})
	}
}

// TestNodeChange: Services are planned again when the node's gateway changes.
func TestNodeChange(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("a", "10.96.0.1", corev1.ProtocolTCP, 30001))
	w.serve("a", "10.244.1.3@n1")
	w.start()
	if w.flows.Dump() == "" {
		t.Fatal("no flows")
	}
	n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Annotations[kube.AnnotationL3Gateway] = strings.Replace(n.Annotations[kube.AnnotationL3Gateway], `"shared"`, `"local"`, 1)
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the flows to go", func() bool { return w.flows.Dump() == "" })
}

// TestUDP: connections to an endpoint that is gone are deleted, and no others.
func TestUDP(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("a", "10.96.0.1", corev1.ProtocolUDP, 30001))
	w.serve("a", "172.18.0.3@n2", "172.18.0.4@n3")
	left := w.track("10.96.0.1:80", "172.18.0.9:8080")
	unborn := w.track("172.18.0.2:30001", "172.18.0.2:30001")
	other := w.track("10.96.0.7:80", "172.18.0.9:8080")
	w.start()
	if w.tracked(left) || w.tracked(unborn) {
		t.Error("an entry of an endpoint that went before the start, or that no rule made, is still there")
	}
	gone, stays := w.track("172.18.0.2:30001", "172.18.0.3:8080"), w.track("10.96.0.1:80", "172.18.0.4:8080")
	w.serve("a", "172.18.0.4@n3", "172.18.0.5@n3")
	w.until("the entry to go", func() bool { return !w.tracked(gone) })
	if !w.tracked(stays) || !w.tracked(other) {
		t.Error("an entry went that leads to somebody who serves")
	}
	anew := w.track("10.96.0.1:80", "172.18.0.3:8080") // by what OVN still has
	w.applied()
	w.until("the entry to go once OVN has followed", func() bool { return !w.tracked(anew) })
	if !w.tracked(stays) || !w.tracked(other) {
		t.Error("an entry went that leads to somebody who serves")
	}
}

// TestFailure: failed writes are retried.
func TestFailure(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("a", "10.96.0.1", corev1.ProtocolTCP, 30001))
	w.serve("a", "10.244.1.3@n1")
	var mu sync.Mutex
	failures := 3
	w.chains.Fail = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if failures--; failures >= 0 {
			return errors.New("the kernel is busy")
		}
		return nil
	}
	w.start()
	w.until("the rule", func() bool { return strings.Contains(w.chains.Dump(topology.IPv4), "--dport 30001") })
}

// TestSCTPRefused: a kernel without the module for SCTP refuses the rules of Services that use it, and takes those of others, also later
// ones. As soon as it has the module, it gets all.
func TestSCTPRefused(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("a", "10.96.0.1", corev1.ProtocolSCTP, 30001))
	w.create(object("b", "10.96.0.2", corev1.ProtocolUDP, 30002))
	for _, name := range []string{"a", "b", "c"} {
		w.serve(name, "10.244.1.3@n1")
	}
	var loaded atomic.Bool
	w.chains.Fail = func(contributor string) error {
		if contributor == service.Feature+"/sctp" && !loaded.Load() {
			return errors.New("missing kernel module")
		}
		return nil
	}
	w.start()
	served := func(port string) func() bool {
		return func() bool { return strings.Contains(w.chains.Dump(topology.IPv4), "--dport "+port+" ") }
	}
	w.until("the rules of another Service", served("30002"))
	w.create(object("c", "10.96.0.3", corev1.ProtocolTCP, 30003))
	w.until("the rules of a later Service", served("30003"))
	if served("30001")() {
		t.Error("the refused rules are there")
	}
	loaded.Store(true)
	w.until("all rules", served("30001"))
}

// TestHealth: the health port answers as load balancers expect.
func TestHealth(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	w := newWorld(t, topology.GatewayShared)
	s := object("a", "10.96.0.1", corev1.ProtocolTCP, 30001)
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, port
	w.create(s)
	w.serve("a", "10.244.1.3@n1", "10.244.2.3@n2")
	w.start()
	ask := func() (int, string) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	code, body := ask()
	if code != http.StatusOK || body != "{\n\t\"localEndpoints\": 1,\n\t\"service\": {\n\t\t\"name\": \"a\",\n\t\t\"namespace\": \"ns\"\n\t},\n\t\"serviceProxyHealthy\": true\n}\n" {
		t.Errorf("%d %s", code, body)
	}
	w.serve("a", "10.244.2.3@n2")
	w.until("no endpoint", func() bool { code, _ := ask(); return code == http.StatusServiceUnavailable })
	w.deleteNode()
	w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "anew"}})
	w.serve("a", "10.244.1.3@n1", "10.244.2.3@n2")
	w.until("an endpoint, on a node without annotations", func() bool { code, _ := ask(); return code == http.StatusOK })
	if err := w.kube.CoreV1().Services("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the port to close", func() bool { code, _ := ask(); return code == 0 })
}
