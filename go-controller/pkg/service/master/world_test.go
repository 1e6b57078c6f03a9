package master_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	egressipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var config = service.Config{
	Cluster:    []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	Masquerade: []netip.Prefix{netip.MustParsePrefix("169.254.169.0/29")},
	NodePorts:  true,
}

// state is the content of the API: nodes by gateway mode, Services, and the addresses of
// their endpoints.
type state struct {
	nodes     map[string]topology.GatewayMode
	services  []*corev1.Service
	endpoints map[string][]string // by Service; "ADDRESS@NODE"
}

func object(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeNodePort,
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func externalLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func at(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip} }
}

func nodeObject(name string, mode topology.GatewayMode) *corev1.Node {
	i := int(name[len(name)-1] - '0')
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		kube.AnnotationNodeSubnets:      fmt.Sprintf(`{"default":["10.244.%d.0/24"]}`, i),
		kube.AnnotationChassisID:        "chassis-" + name,
		kube.AnnotationGatewayLRPIfAddr: fmt.Sprintf(`{"ipv4":"100.64.0.%d/16"}`, i+1),
		kube.AnnotationL3Gateway: fmt.Sprintf(`{"default":{"mode":%q,"interface-id":"breth0_%s","mac-address":"02:42:ac:12:00:0%d",`+
			`"ip-addresses":["172.18.0.%d/16"],"next-hops":["172.18.0.1"],"node-port-enable":"true","vlan-id":"0"}}`, mode, name, i, i+1),
	}}}
}

func sliceObject(name string, endpoints []string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name + "-slice", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, e := range endpoints {
		addr, node, _ := strings.Cut(e, "@")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addr}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return s
}

// world is an API server and a database that outlive the controller.
type world struct {
	t    *testing.T
	kube *fake.Clientset
	nb   *nbfake.Writer
	conf service.Config
	stop func()
	// ips holds EgressIPs; nil: they are not enabled.
	ips    *egressipfake.Clientset
	events *record.FakeRecorder
	// egress are the pods that the egress features reroute.
	egress []*noreroute.PodSet
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, kube: fakeapi.NewClientset(), nb: nbfake.New(), conf: config, stop: func() {}}
	w.nb.AnyParent = true
	t.Cleanup(func() { w.stop() })
	return w
}

// start replaces the running controller with a new one and waits until it has settled.
func (w *world) start() {
	w.t.Helper()
	w.stop()
	factory := informers.NewSharedInformerFactory(w.kube, 0)
	w.events = record.NewFakeRecorder(1000)
	addresses, startIPs := w.addresses(factory)
	c, err := master.New(master.Deps{
		Addresses:      addresses,
		Recorder:       w.events,
		Services:       factory.Core().V1().Services(),
		EndpointSlices: factory.Discovery().V1().EndpointSlices(),
		Nodes:          factory.Core().V1().Nodes(),
		Pods:           factory.Core().V1().Pods(),
		Namespaces:     factory.Core().V1().Namespaces(),
		Writer:         w.nb,
		Egress:         w.egress,
		Config:         w.conf,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	fakeapi.Start(ctx, w.t, w.kube, factory)
	startIPs(ctx)
	go func() { done <- c.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
	eventually.Receive(w.t, "the controller to settle", c.Attempted())
}

// addresses returns the controller's Addresses with those of EgressIPs, and a function that
// starts their informer.
func (w *world) addresses(factory informers.SharedInformerFactory) (*reservedsnapshot.Addresses, func(context.Context)) {
	if w.ips == nil {
		return nil, func(context.Context) {}
	}
	ips := externalversions.NewSharedInformerFactory(w.ips, 0)
	a, err := reservedsnapshot.New(w.conf.Ranges(), reservedsnapshot.Informers{
		Nodes: factory.Core().V1().Nodes(), EndpointSlices: factory.Discovery().V1().EndpointSlices(), EgressIPs: ips.EgressIP().V1().EgressIPs(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return a, func(ctx context.Context) { fakeapi.Start(ctx, w.t, w.ips, ips) }
}

// set changes the content of the API to exactly a state.
func (w *world) set(s state) {
	w.t.Helper()
	ctx, core, discovery := w.t.Context(), w.kube.CoreV1(), w.kube.DiscoveryV1()
	nodes := map[string]*corev1.Node{}
	for name, mode := range s.nodes {
		nodes[name] = nodeObject(name, mode)
	}
	services := map[string]*corev1.Service{}
	for _, o := range s.services {
		services[o.Name] = o
	}
	slices := map[string]*discoveryv1.EndpointSlice{}
	for name, endpoints := range s.endpoints {
		o := sliceObject(name, endpoints)
		slices[o.Name] = o
	}
	haveNodes, err1 := core.Nodes().List(ctx, metav1.ListOptions{})
	haveServices, err2 := core.Services("ns").List(ctx, metav1.ListOptions{})
	haveSlices, err3 := discovery.EndpointSlices("ns").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		w.t.Fatal(err)
	}
	sync(w.t, nodes, haveNodes.Items, core.Nodes())
	sync(w.t, services, haveServices.Items, core.Services("ns"))
	sync(w.t, slices, haveSlices.Items, discovery.EndpointSlices("ns"))
}

// api is the part that all typed clients have in common.
type api[T any] interface {
	Create(context.Context, *T, metav1.CreateOptions) (*T, error)
	Update(context.Context, *T, metav1.UpdateOptions) (*T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// sync changes the objects of one kind to those wanted.
func sync[T any](t *testing.T, want map[string]*T, have []T, client api[T]) {
	t.Helper()
	left := map[string]*T{}
	for name, o := range want {
		left[name] = o
	}
	for i := range have {
		name := any(&have[i]).(metav1.Object).GetName()
		o, ok := left[name]
		delete(left, name)
		var err error
		switch {
		case !ok:
			err = client.Delete(t.Context(), name, metav1.DeleteOptions{})
		case !equality.Semantic.DeepEqual(o, &have[i]):
			_, err = client.Update(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range left {
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// want returns what the planner plans for a state, as a dump of the database.
func (s state) want(t *testing.T) string {
	t.Helper()
	db := nbfake.New()
	db.AnyParent = true
	apply := func(o nb.Owner, rows []nb.Row) {
		if _, err := db.Apply(t.Context(), o, rows); err != nil {
			t.Fatal(err)
		}
	}
	apply(service.NodeOwner(""), service.ClusterRows(config))
	var nodes service.Nodes
	for name, mode := range s.nodes {
		n, err := kube.Node(nodeObject(name, mode))
		if err != nil {
			t.Fatal(err)
		}
		apply(service.NodeOwner(name), service.NodeRows(n, config))
		facts := service.FactsOf(n)
		nodes, _ = nodes.With(name, &facts)
	}
	for _, o := range s.services {
		snap := service.Snapshot{Service: o}
		if e, ok := s.endpoints[o.Name]; ok {
			snap.Slices = append(snap.Slices, sliceObject(o.Name, e))
		}
		if d, ok := service.Decode(snap, config); ok {
			apply(service.Owner("ns/"+o.Name), service.MasterRows(d, config, nodes))
		}
	}
	return db.Dump()
}

// reaches waits until the database has what the planner plans for a state.
func (w *world) reaches(s state) {
	w.t.Helper()
	want := s.want(w.t)
	eventually.True(w.t, "the database to be\n"+want, func() bool { return w.nb.Dump() == want }, eventually.Dump(func() string { return "it is\n" + w.nb.Dump() }))
}
