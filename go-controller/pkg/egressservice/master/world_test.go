package master

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakereach"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	worker   = "node-role.kubernetes.io/worker"
	demo     = "default/demo-svc"
	demoHost = kube.LabelEgressServicePrefix + "default-demo-svc"
)

var (
	cluster     = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}
	demoIngress = []string{"5.5.5.5", "5555:5555:5555:5555:5555:5555:5555:5555"}
	demoPods    = []string{"10.244.0.5", "10.244.2.7", "fd00:10:244:1::5", "fd00:10:244:3::7"}
)

// world is an API server and a database that outlive the master.
type world struct {
	t      *testing.T
	kube   *kubefake.Clientset
	egress *egressfake.Clientset
	nb     *nbfake.Writer
	db     Writer // nb, or a real one
	health *fakereach.Nodes
	events *record.FakeRecorder
	pods   *noreroute.PodSet
	master *Controller
	stop   func()
	// silent keeps a host from acknowledging if it returns true.
	silent  func(key, host string) bool
	problem string        // what hosts report
	limit   time.Duration // for acknowledgements; 0: forever
	// given returns the addresses that the master considers assigned to pods.
	given  func(key string, uid types.UID) []netip.Addr
	shared bool
	audit  *audit.Recorder // nil: nothing is recorded
	faults *fakeapi.Faults // of the API, or nil
	gate   *fakeapi.Gate   // for the events of EgressServices, or nil

	measured *metrics.Leader // nil: nothing is measured

	mu  sync.Mutex
	log []string // the writes to the API and the database, in order
}

func newWorld(t *testing.T, objs ...runtime.Object) *world {
	w := &world{t: t, kube: fakeapi.NewClientset(), egress: egressfake.NewSimpleClientset(), nb: nbfake.New(),
		given:  func(string, types.UID) []netip.Addr { return nil },
		health: fakereach.New()}
	fakeapi.Strict(w.kube)
	fakeapi.Strict(w.egress)
	w.nb.AnyParent = true
	w.db = w.nb
	for i, name := range []string{"ovn-worker", "ovn-worker2", "ovn-control-plane"} {
		w.create(node(name, i))
		w.health.Set(name, place.Alive)
	}
	for _, o := range objs {
		w.create(o)
	}
	note := func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p, ok := a.(clienttesting.PatchAction); ok {
			w.mu.Lock()
			defer w.mu.Unlock()
			patch := p.GetPatch()
			if p.GetPatchType() == types.JSONPatchType {
				patch = asMerge(w.t, patch)
			}
			if patch != nil {
				w.log = append(w.log, fmt.Sprintf("%s/%s %s", p.GetResource().Resource, p.GetName(), timeless(patch)))
			}
		}
		return false, nil, nil
	}
	w.kube.PrependReactor("patch", "*", note)
	w.egress.PrependReactor("patch", "*", note)
	return w
}

// start runs a master until stop, or the end of the test.
func (w *world) start() {
	w.t.Helper()
	core := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
	own := externalversions.NewSharedInformerFactory(w.egress, fakeapi.NoResync)
	guard(w.gate, own)
	w.events = record.NewFakeRecorder(1000)
	w.pods = noreroute.NewPodSet()
	w.health.Unsubscribe()
	in := snapshot.Informers{
		EgressServices: own.EgressService().V1().EgressServices(),
		Services:       core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(),
		Pods:           core.Core().V1().Pods(),
	}
	var err error
	if in.Addresses, err = reservedsnapshot.New(reserved.Ranges{Pods: cluster}, reservedsnapshot.Informers{
		Nodes: core.Core().V1().Nodes(), EndpointSlices: core.Discovery().V1().EndpointSlices(),
	}); err != nil {
		w.t.Fatal(err)
	}
	mode := topology.GatewayLocal
	if w.shared {
		mode = topology.GatewayShared
	}
	c, err := New(Deps{
		Kube: w.kube, Egress: w.egress, Writer: writer{w.db, w}, Health: w.health, Pods: w.pods, Recorder: w.events,
		Informers: in, Nodes: core.Core().V1().Nodes(), ClusterSubnets: cluster, Mode: mode,
		Given: w.given, Acknowledge: w.limit, Audit: w.audit, Metrics: w.measured,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, key := range nb.Objects(w.db, egressservice.Feature) {
		w.published(key, w.db.Rows(egressservice.Owner(key)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	nodes, err := w.acknowledge(ctx, in)
	if err != nil {
		w.t.Fatal(err)
	}
	w.faults.Start(ctx, w.t, w.kube, core)
	w.faults.Start(ctx, w.t, w.egress, own)
	done, acked := make(chan error, 1), make(chan struct{})
	go func() { done <- c.Run(ctx) }()
	go func() {
		defer close(acked)
		_ = nodes.Run(ctx, 1) // if stopped early, its caches may not have synced
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-acked
		if err := eventually.Receive(w.t, "Run to return", done); err != nil {
			w.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
		own.Shutdown()
	})
	w.master, w.stop = c, stop
	w.t.Cleanup(stop)
	for _, seeded := range []<-chan struct{}{c.Attempted(), c.placement.Attempted(), c.labels.Attempted()} {
		eventually.Receive(w.t, "the start to be over", seeded)
	}
}

// asMerge returns a JSON patch of the master, which has tests, as the merge patch with the same effect, and nil for one of a node.
func asMerge(t testing.TB, patch []byte) []byte {
	t.Helper()
	var ops []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Error(err)
	}
	metadata, status := map[string]any{}, map[string]any{}
	for _, op := range ops {
		switch field, ok := strings.CutPrefix(op.Path, "/status/"); {
		case op.Path == "/metadata/uid":
			metadata["uid"] = op.Value
		case ok && op.Op != "test":
			status[field] = op.Value // none if it is removed
		}
	}
	if len(metadata) == 0 {
		return nil
	}
	out, err := json.Marshal(map[string]any{"metadata": metadata, "status": status})
	if err != nil {
		t.Error(err)
	}
	return out
}

// timeless reduces a merge patch to what is the same in each run.
func timeless(patch []byte) string {
	var p map[string]any
	if err := json.Unmarshal(patch, &p); err != nil {
		return err.Error()
	}
	if metadata, ok := p["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
	}
	if status, ok := p["status"].(map[string]any); ok {
		if conditions, ok := status["conditions"].([]any); ok {
			delete(status, "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == v1.ConditionProgrammed {
					status["is"] = c["reason"]
				}
			}
		}
	}
	out, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// acknowledge does the part of all nodes: they program at once and report it.
func (w *world) acknowledge(ctx context.Context, in snapshot.Informers) (*queue.Controller, error) {
	reader, err := snapshot.NewReader(in, cluster, topology.GatewayLocal, nil)
	if err != nil {
		return nil, err
	}
	var q *queue.Controller
	q = queue.New("acknowledge", func(ctx context.Context, key string) error {
		eg, err := reader.Object(key)
		if err != nil {
			return err
		}
		if eg == nil {
			q.Enqueue(reader.Forget(key)...)
			return nil
		}
		s, others, err := reader.Decode(eg)
		q.Enqueue(others...)
		word := egressservice.Acknowledgement(s, s.Host)
		word.Problem = w.problem
		if err != nil || s.Refused != (egressservice.Refusal{}) || s.Host == "" || s.Host == v1.HostAll || egressservice.SameAcknowledgement(s.Ack, word) ||
			w.silent != nil && w.silent(key, s.Host) {
			return err
		}
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status/programmed", "value": word}})
		if err != nil {
			return err
		}
		_, err = w.egress.EgressServiceV1().EgressServices(eg.Namespace).Patch(ctx, eg.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return q, reader.Watch(q, func(_ snapshot.Kind, key string) []string { return []string{key} })
}

// eventually waits until ok returns true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	eventually.True(w.t, what, ok, eventually.Dump(w.String))
}

// writer records the transactions.
type writer struct {
	Writer
	w *world
}

func (n writer) Apply(ctx context.Context, o nb.Owner, rows []nb.Row) (nb.Stats, error) {
	n.w.published(o.Object, n.Rows(o), rows)
	stats, err := n.Writer.Apply(ctx, o, rows)
	if !stats.Zero() {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		n.w.log = append(n.w.log, fmt.Sprintf("policies of %s +%d ~%d -%d", o.Object, stats.Inserted, stats.Updated, stats.Deleted))
	}
	return stats, err
}

// published checks that the published pods include those of rows: other pods must not have their addresses.
func (w *world) published(key string, all ...[]nb.Row) {
	w.t.Helper()
	for _, rows := range all {
		for _, a := range egressservice.SteeringOf(rows).Addrs() {
			if !w.pods.Has(a) {
				w.t.Errorf("%s has policies for %s, which is not published", key, a)
			}
		}
	}
}

// hosts returns the host of an EgressService according to the status, the policies (with the
// pods published as served), and the labels.
func (w *world) hosts(key string) (status, policies, labels string) {
	namespace, name, _ := strings.Cut(key, "/")
	if eg, err := w.egress.EgressServiceV1().EgressServices(namespace).Get(context.Background(), name, metav1.GetOptions{}); err == nil {
		status = eg.Status.Host
	}
	hops := map[string]bool{}
	for line := range strings.Lines(w.nb.DumpFeature(egressservice.Feature)) {
		if strings.Contains(line, "["+egressservice.Feature+"/"+key+" ") {
			_, rest, _ := strings.Cut(line, "nexthops=[")
			hop, _, _ := strings.Cut(rest, "]")
			hops[hop] = true
		}
	}
	policies = strings.Join(slices.Sorted(maps.Keys(hops)), " ")
	nodes, err := w.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var labelled []string
	for _, n := range nodes.Items {
		if _, ok := n.Labels[kube.LabelEgressServicePrefix+namespace+"-"+name]; ok {
			labelled = append(labelled, n.Name)
		}
	}
	return status, policies, strings.Join(labelled, " ")
}

func (w *world) String() string {
	status, policies, labels := w.hosts(demo)
	return fmt.Sprintf("status %q policies %q labels %q\n%swrites:\n%s", status, policies, labels, w.nb.Dump(), strings.Join(w.writes(), "\n"))
}

// hopsOf are the management addresses of a node, in the format of hosts.
var hopsOf = map[string]string{
	"": "", "ovn-worker": "10.244.0.2 fd00:10:244:1::2", "ovn-worker2": "10.244.1.2 fd00:10:244:2::2",
	"ovn-control-plane": "10.244.2.2 fd00:10:244:3::2",
}

// served waits until only node serves key; "" means that no node does.
func (w *world) served(key, node string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%q to serve %s", node, key), func() bool {
		status, policies, labels := w.hosts(key)
		return status == node && policies == hopsOf[node] && labels == node
	})
}

// anyHost waits until some node serves key, and returns it.
func (w *world) anyHost(key string) string {
	w.t.Helper()
	var host string
	w.eventually("a host for "+key, func() bool {
		var policies, labels string
		host, policies, labels = w.hosts(key)
		return host != "" && policies == hopsOf[host] && labels == host && w.programmed(key)
	})
	return host
}

// programmed reports whether the status of an EgressService says that it is served.
func (w *world) programmed(key string) bool {
	namespace, name, _ := strings.Cut(key, "/")
	eg, err := w.egress.EgressServiceV1().EgressServices(namespace).Get(context.Background(), name, metav1.GetOptions{})
	return err == nil && meta.IsStatusConditionTrue(eg.Status.Conditions, v1.ConditionProgrammed)
}

// writes returns the writes so far.
func (w *world) writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

func (w *world) forgetWrites() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = nil
}

// event waits for an Event that contains text.
func (w *world) event(text string) {
	w.t.Helper()
	for !strings.Contains(eventually.Receive(w.t, fmt.Sprintf("an Event %q", text), w.events.Events, eventually.Dump(w.String)), text) {
	}
}

func (w *world) create(obj runtime.Object) { w.do(obj, "create") }
func (w *world) update(obj runtime.Object) { w.do(obj, "update") }
func (w *world) remove(obj runtime.Object) { w.do(obj, "delete") }

func (w *world) do(obj runtime.Object, verb string) {
	w.t.Helper()
	if err := w.try(obj, verb); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) try(obj runtime.Object, verb string) error {
	ctx := context.Background()
	var err error
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok && verb != "delete" {
		w.makePods(s)
	}
	switch o := obj.(type) {
	case *corev1.Node:
		err = do(ctx, w.kube.CoreV1().Nodes(), o, verb)
	case *corev1.Service:
		err = do(ctx, w.kube.CoreV1().Services(o.Namespace), o, verb)
	case *discoveryv1.EndpointSlice:
		err = do(ctx, w.kube.DiscoveryV1().EndpointSlices(o.Namespace), o, verb)
	case *corev1.Pod:
		err = do(ctx, w.kube.CoreV1().Pods(o.Namespace), o, verb)
	case *v1.EgressService:
		err = do(ctx, w.egress.EgressServiceV1().EgressServices(o.Namespace), o, verb)
	default:
		err = fmt.Errorf("no client for a %T", obj)
	}
	return err
}

// makePods creates the pods that a slice lists, on the nodes it names.
func (w *world) makePods(s *discoveryv1.EndpointSlice) {
	for _, e := range s.Endpoints {
		if netip.MustParseAddr(e.Addresses[0]).Is4() && strings.HasPrefix(e.Addresses[0], "172.") {
			continue // on its host's network
		}
		p := pod(s.Namespace, e.Addresses[0], "ovn-worker")
		if e.NodeName != nil {
			p.Spec.NodeName = *e.NodeName
		}
		have, err := w.kube.CoreV1().Pods(s.Namespace).Get(context.Background(), p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			w.create(p)
		case err != nil:
			w.t.Fatal(err)
		case have.Spec.NodeName != p.Spec.NodeName:
			w.update(p)
		}
	}
}

// pod returns a running pod.
func pod(namespace, addr, node string) *corev1.Pod {
	name := "pod-" + strings.NewReplacer(".", "-", ":", "-").Replace(addr)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: addr}}}}
}

// client contains the common methods of the typed clients.
type client[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

func do[T metav1.Object](ctx context.Context, c client[T], o T, verb string) error {
	var err error
	switch verb {
	case "create":
		_, err = c.Create(ctx, o, metav1.CreateOptions{})
	case "update":
		_, err = c.Update(ctx, o, metav1.UpdateOptions{})
	case "delete":
		err = c.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	return err
}

func node(name string, number int, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{},
		Annotations: map[string]string{kube.AnnotationNodeSubnets: kube.FormatNodeSubnets([]netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", number)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", number+1)),
		})}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if name != "ovn-control-plane" {
		n.Labels[worker] = ""
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// changeNode reads, changes and updates a node.
func (w *world) changeNode(name string, change func(*corev1.Node)) {
	w.t.Helper()
	// Others may write the node in between.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := w.kube.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		return w.try(n, "update")
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func egress(name string, change ...func(*v1.EgressService)) *v1.EgressService {
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	eg.Spec.NodeSelector.MatchLabels = map[string]string{worker: ""}
	for _, f := range change {
		f(eg)
	}
	return eg
}

func service(name string, ingress ...string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, ip := range ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return svc
}

func slice(name string, pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{p}})
	}
	return s
}

// demoObjects returns the objects of the walk-through.
func demoObjects() []runtime.Object {
	return []runtime.Object{egress("demo-svc"), service("demo-svc", demoIngress...), slice("demo-svc", demoPods...)}
}

// setPrimary sets the addresses of the i-th node on the primary network.
func setPrimary(i int) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[kube.AnnotationPrimaryIfAddr] = kube.FormatPrimaryIfAddr([]netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("172.18.0.%d/16", i+2)),
			netip.MustParsePrefix(fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+2)),
		})
	}
}
