package master

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakereach"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// maxEvents exceeds the number of Events in any test.
const maxEvents = 100

var config = externalroute.Config{Cluster: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}

// world is an API server and a database that outlive the master.
type world struct {
	t      testing.TB
	kube   *kubefake.Clientset
	routes *routefake.Clientset
	nb     Writer
	pods   *noreroute.PodSet
	routed *noreroute.PodSet // of the running master
	events *record.FakeRecorder
	config externalroute.Config
	faults *fakeapi.Faults // of the API, or nil
	stop   func()
	// barrier is the Barrier of the chassis, which confirm at once if it is empty.
	barrier chassis
	health  *fakereach.Nodes // nil: nodes are not probed

	mu      sync.Mutex
	patches []string
	without map[string]bool // pods without a port
}

func newWorld(t testing.TB, nb Writer, objs ...runtime.Object) *world {
	w := &world{t: t, kube: fakeapi.NewClientset(), routes: routefake.NewSimpleClientset(), nb: nb, pods: noreroute.NewPodSet(),
		events: record.NewFakeRecorder(maxEvents), config: config}
	fakeapi.Strict(w.kube)
	fakeapi.Strict(w.routes)
	w.pods.MarkSynced()
	for _, o := range objs {
		w.create(o)
	}
	note := func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.patches = append(w.patches, fmt.Sprintf("%s/%s %s", p.GetResource().Resource, p.GetName(), p.GetPatch()))
		return false, nil, nil
	}
	w.kube.PrependReactor("patch", "*", note)
	w.routes.PrependReactor("patch", "*", note)
	return w
}

// patchCount returns the number of patches so far.
func (w *world) patchCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.patches)
}

// start runs a master until stop, or the end of the test, and waits until it has
// processed the existing objects.
func (w *world) start() *Controller {
	w.t.Helper()
	core := kube.LateMirrors(informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync), nil)
	w.routed = noreroute.NewPodSet()
	own := externalversions.NewSharedInformerFactory(w.routes, fakeapi.NoResync)
	deps := Deps{
		Given: w.given,
		Kube:  w.kube, Routes: w.routes, Writer: publishing{w.nb, w}, Config: w.config, Recorder: w.events,
		Policies:   own.AdminPolicyBasedRoute().V1().AdminPolicyBasedExternalRoutes(),
		Namespaces: core.Core().V1().Namespaces(), Pods: core.Core().V1().Pods(), Nodes: core.Core().V1().Nodes(),
		Rerouted: []*noreroute.PodSet{nil, w.pods}, Barrier: w.barrier, Routed: w.routed,
	}
	if w.health != nil {
		w.health.Unsubscribe()
		deps.Health = w.health
	}
	c, err := New(deps)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, node := range nb.Objects(w.nb, externalroute.Feature) {
		w.published(node, w.nb.Rows(externalroute.Owner(node)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.faults.Start(ctx, w.t, w.kube, core)
	w.faults.Start(ctx, w.t, w.routes, own)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := eventually.Receive(w.t, "Run to return", done); err != nil {
			w.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
		own.Shutdown()
	})
	w.t.Cleanup(w.stop)
	for _, seeded := range []<-chan struct{}{c.Attempted(), c.statuses.Attempted(), c.annotations.Attempted()} {
		eventually.Receive(w.t, "the start to be over", seeded)
	}
	return c
}

// published checks that the published pods include those that the rows of a node route: other pods must not have their addresses.
func (w *world) published(node string, all ...[]nb.Row) {
	w.t.Helper()
	for _, rows := range all {
		for _, a := range externalroute.Routed(rows) {
			if !w.routed.Has(a) {
				w.t.Errorf("node %s has routes for %s, which is not published", node, a)
			}
		}
	}
}

// publishing is a Writer that calls published with all rows before and after each change.
type publishing struct {
	Writer
	w *world
}

func (p publishing) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	for o, rows := range want {
		p.w.published(o.Object, p.Rows(o), rows)
	}
	return p.Writer.ApplyAll(ctx, want)
}

func (w *world) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.patches, "\n")
}

// eventually waits until ok returns true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	eventually.True(w.t, what, ok, eventually.Dump(w.String))
}

func (w *world) create(obj runtime.Object) {
	w.t.Helper()
	tracker := w.kube.Tracker()
	if _, ok := obj.(*v1.AdminPolicyBasedExternalRoute); ok {
		tracker = w.routes.Tracker()
	}
	if err := tracker.Add(obj); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) policy(name string) *v1.AdminPolicyBasedExternalRoute {
	w.t.Helper()
	p, err := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// setHops changes a policy like a user, with a new generation.
func (w *world) setHops(name string, ips ...string) {
	w.t.Helper()
	// The master may write the status in between.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p := w.policy(name)
		p.Spec.NextHops = hops(ips...)
		p.Generation++
		_, err := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Update(context.Background(), p, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// reported waits for the status about the current generation of a policy.
func (w *world) reported(name string) *v1.AdminPolicyBasedExternalRoute {
	w.t.Helper()
	var p *v1.AdminPolicyBasedExternalRoute
	w.eventually("a status of "+name, func() bool {
		p = w.policy(name)
		c := meta.FindStatusCondition(p.Status.Conditions, v1.ConditionReady)
		return c != nil && c.ObservedGeneration == p.Generation
	})
	return p
}

func (w *world) inUse(namespace string) string {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(context.Background(), namespace, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ns.Annotations[kube.AnnotationGatewaysInUse]
}

func (w *world) annotatePod(namespace, name string, annotations map[string]any) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.kube.CoreV1().Pods(namespace).Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func node(i int) *corev1.Node {
	addr := netip.MustParsePrefix(fmt.Sprintf("172.18.0.%d/16", i+2))
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Annotations: map[string]string{
		kube.AnnotationNodeSubnets:      kube.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))}),
		kube.AnnotationGatewayLRPIfAddr: kube.FormatGatewayLRPIfAddr([]netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("100.64.0.%d/16", i+2))}),
		kube.AnnotationChassisID:        fmt.Sprintf("chassis%d", i),
		kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_n",
			MAC: "02:42:ac:12:00:03", Addrs: []netip.Prefix{addr}}),
	}}}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name, "gws": "true"}}}
}

// pod returns pod j of a namespace, on a node.
func pod(ns string, on, j int) *corev1.Pod {
	network := topology.PodNetwork{MAC: "0a:58:0a:f4:00:05",
		Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.%d/24", on, j+3))}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("p%d-%d", on, j), Labels: map[string]string{"app": "gw"},
			Annotations: map[string]string{kube.AnnotationPodNetworks: kube.FormatPodNetwork(network)}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", on)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func hops(ips ...string) v1.ExternalNextHops {
	var next v1.ExternalNextHops
	for _, ip := range ips {
		next.Static = append(next.Static, v1.StaticHop{IP: ip, HopOptions: v1.HopOptions{BFDEnabled: true}})
	}
	return next
}

func policy(name string, selects map[string]string, next v1.ExternalNextHops) *v1.AdminPolicyBasedExternalRoute {
	p := &v1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1}}
	p.Spec.From.NamespaceSelector.MatchLabels = selects
	p.Spec.NextHops = next
	return p
}

// given does the part of the pod controller: it assigns each pod the address that belongs to its
// name, except for pods without a port.
func (w *world) given(key string, _ types.UID) []netip.Addr {
	var on, j int
	_, name, _ := strings.Cut(key, "/")
	if _, err := fmt.Sscanf(name, "p%d-%d", &on, &j); err != nil || w.portless(key) {
		return nil
	}
	return []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", on, j+3))}
}

func (w *world) portless(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.without[key]
}

func (w *world) setPortless(keys ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.without = map[string]bool{}
	for _, key := range keys {
		w.without[key] = true
	}
}
