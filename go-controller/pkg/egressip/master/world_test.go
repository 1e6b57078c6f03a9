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
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakereach"
)

// portFeature owns the ports of pods in these tests.
const portFeature = "pod"

var network = egressip.Network{
	Cluster: prefixes("10.244.0.0/16", "fd00:10:244::/48"), Service: prefixes("10.96.0.0/16", "fd00:10:96::/112"),
	Join: prefixes("100.64.0.0/16", "fd98::/64"), Masquerade: prefixes("169.254.169.0/29", "fd69::/125"),
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// database is the fake one with additional methods for tests.
type database interface {
	Writer
	Owners(feature string) []nb.Owner
}

// world is an API server, a database and nodes that outlive the master.
type world struct {
	panics  atomic.Int32 // number of panics still to come when planning odd
	listed  atomic.Int64 // EgressIPs and pods listed by the master's listers
	t       testing.TB
	kube    *kubefake.Clientset
	egress  *egressfake.Clientset
	nb      *nbfake.Writer
	db      database // nb, or a real one
	health  *fakereach.Nodes
	barrier *barrier
	events  *record.FakeRecorder
	pods    *noreroute.PodSet
	master  *Controller
	agents  *queue.Controller // acts for the nodes
	stop    func()
	assume  bool
	audit   *audit.Recorder // nil: nothing is recorded
	limit   time.Duration   // acknowledgement timeout of nodes; 0: none
	pace    time.Duration   // how long it takes nodes to act on an EgressIP
	faults  *fakeapi.Faults // of the API, or nil
	gate    *fakeapi.Gate   // for the events of EgressIPs, or nil

	localSNATs func() <-chan struct{}          // as in Deps
	onPass     func(c *Controller, pod string) // or nil
	measured   *metrics.Leader                 // nil: nothing is measured

	mu     sync.Mutex
	frozen map[string]bool // nodes that do not act
	log    []string        // the writes to the API and the database, in order
}

func newWorld(t testing.TB, objs ...runtime.Object) *world {
	w := &world{t: t, kube: fakeapi.NewClientset(), egress: egressfake.NewSimpleClientset(), nb: nbfake.New(),
		health:  fakereach.New(),
		barrier: &barrier{stopped: map[string]bool{}, asked: map[string]int{}, changed: make(chan struct{})}, frozen: map[string]bool{}}
	fakeapi.Strict(w.kube)
	fakeapi.Strict(w.egress)
	w.nb.AnyParent = true
	w.db = w.nb
	w.create(namespace("prod", map[string]string{"environment": "production"}))
	w.create(namespace("dev", map[string]string{"environment": "development"}))
	for i, name := range []string{"ovn-control-plane", "ovn-worker", "ovn-worker2"} {
		w.create(node(name, i))
		w.health.Set(name, place.Alive)
	}
	for _, o := range objs {
		w.create(o)
	}
	note := func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p, ok := a.(clienttesting.PatchAction); ok && !strings.Contains(string(p.GetPatch()), "by-a-node") {
			w.note("%s/%s %s", p.GetResource().Resource, p.GetName(), p.GetPatch())
		}
		return false, nil, nil
	}
	w.kube.PrependReactor("patch", "*", note)
	w.egress.PrependReactor("patch", "*", note)
	return w
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// writes returns the writes of the master since the last call.
func (w *world) writes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

// noting records the transactions.
type noting struct {
	database
	w *world
}

func (n noting) Apply(ctx context.Context, o nb.Owner, rows []nb.Row) (nb.Stats, error) {
	stats, errs := n.ApplyAll(ctx, map[nb.Owner][]nb.Row{o: rows})
	return stats, errs[o]
}

func (n noting) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	stats, errs := n.database.ApplyAll(ctx, want)
	if !stats.Zero() {
		n.w.note("rows of %v +%d ~%d -%d", slices.Collect(maps.Keys(want)), stats.Inserted, stats.Updated, stats.Deleted)
	}
	return stats, errs
}

// start runs a master and the acting nodes, until stop or the end of the test.
func (w *world) start() {
	w.t.Helper()
	core := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
	own := externalversions.NewSharedInformerFactory(w.egress, fakeapi.NoResync)
	w.guard(own)
	w.health.Unsubscribe()
	addresses, err := reservedsnapshot.New(reserved.Ranges{}, reservedsnapshot.Informers{
		Nodes: core.Core().V1().Nodes(), EndpointSlices: core.Discovery().V1().EndpointSlices(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := New(w.deps(core, own, addresses))
	if err != nil {
		w.t.Fatal(err)
	}
	if w.onPass != nil {
		c.OnPass(func(pod string) { w.onPass(c, pod) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	nodes := queue.New("nodes", func(ctx context.Context, key string) error { return w.act(ctx, c, key) })
	if err := nodes.Watch(own.EgressIP().V1().EgressIPs().Informer(), func(_, new any) []string {
		if e, ok := new.(*v1.EgressIP); ok {
			return []string{e.Name}
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	w.agents = nodes
	w.faults.Start(ctx, w.t, w.kube, core)
	w.faults.Start(ctx, w.t, w.egress, own)
	done, acted := make(chan error, 1), make(chan struct{})
	go func() { done <- c.Run(ctx) }()
	go func() {
		defer close(acted)
		_ = nodes.Run(ctx, 1) // if stopped early, its caches may not have synced
	}()
	w.master, w.stop = c, sync.OnceFunc(func() {
		cancel()
		<-acted
		if err := eventually.Receive(w.t, "Run to return", done); err != nil {
			w.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
		own.Shutdown()
	})
	w.t.Cleanup(w.stop)
	for _, seeded := range []<-chan struct{}{c.Attempted(), c.statuses.Attempted(), c.gates.Attempted()} {
		eventually.Receive(w.t, "the start to be over", seeded)
	}
}

// deps returns the dependencies of a master.
func (w *world) deps(core informers.SharedInformerFactory, own externalversions.SharedInformerFactory, addresses *reservedsnapshot.Addresses) Deps {
	w.events, w.pods = record.NewFakeRecorder(1000), noreroute.NewPodSet()
	return Deps{
		Addresses: addresses,
		Kube:      w.kube, Egress: w.egress, EgressIPs: countedEgressIPs{own.EgressIP().V1().EgressIPs(), &w.listed},
		Namespaces: core.Core().V1().Namespaces(), Pods: countedPods{core.Core().V1().Pods(), &w.listed}, Nodes: core.Core().V1().Nodes(),
		Services: core.Core().V1().Services(),
		Writer:   noting{w.db, w}, Health: w.health, Barrier: w.barrier, Rerouted: w.pods, Recorder: w.events,
		Given: w.given, Static: w.static, Network: network, AssumeReachable: w.assume,
		Acknowledge: w.limit, Audit: w.audit, Metrics: w.measured, LocalSNATs: w.localSNATs,
	}
}

// given returns the addresses of a port in the database.
func (w *world) given(key string, uid types.UID) []netip.Addr {
	if key == odd && w.panics.Add(-1) >= 0 {
		panic("nobody thought of this pod")
	}
	var out []netip.Addr
	for _, r := range w.db.Rows(nb.Owner{Feature: portFeature, Object: key}) {
		of := func(port *nbdb.LogicalSwitchPort) bool {
			return uid == "" || port.Options["iface-id-ver"] == "" || port.Options["iface-id-ver"] == string(uid)
		}
		if port, ok := r.Model.(*nbdb.LogicalSwitchPort); ok && of(port) {
			for _, text := range strings.Fields(port.Addresses[0])[1:] {
				out = append(out, netip.MustParseAddr(text))
			}
		}
	}
	return out
}

// static reports whether a port in the database belongs to a static pod.
func (w *world) static(key string) bool {
	return slices.ContainsFunc(w.db.Rows(nb.Owner{Feature: portFeature, Object: key}), func(r nb.Row) bool {
		port, ok := r.Model.(*nbdb.LogicalSwitchPort)
		return ok && port.ExternalIDs["static"] == "true"
	})
}

// act does the part of all nodes: each takes what it may and releases the rest.
func (w *world) act(ctx context.Context, c *Controller, key string) error {
	if w.pace > 0 {
		<-time.After(w.pace)
	}
	// Not from the lister: a node knows its own latest status entry.
	e, err := w.egress.EgressIPV1().EgressIPs().Get(ctx, key, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	status := e.Status
	all, err := c.deps.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	for _, n := range all {
		name := n.Name
		w.mu.Lock()
		frozen := w.frozen[name]
		w.mu.Unlock()
		if frozen {
			continue
		}
		nodeStatus := v1.ProgrammedStatus{Node: name}
		var secondary []netip.Addr
		for _, item := range egressip.ItemsOf(status, name) {
			a := netip.MustParseAddr(item.EgressIP)
			if item.Node == name && item.From != "" {
				nodeStatus.Awaiting = append(nodeStatus.Awaiting, item.EgressIP)
			}
			if item.Network != "172.18.0.0/16" && item.Network != "fc00:f853:ccd:e793::/64" {
				secondary = append(secondary, a)
				nodeStatus.Digest = c.members.Digest(key, secondary)
				w.agents.EnqueueAfter(time.Second, key) // nodes watch the pods of such addresses
			}
			if !egressip.Next(egressip.Answers(status, name, a), status, name, a).Answers() {
				continue
			}
			nodeStatus.EgressIPs = append(nodeStatus.EgressIPs, item.EgressIP)
		}
		i := slices.IndexFunc(status.Programmed, func(x v1.ProgrammedStatus) bool { return x.Node == name })
		var ops []map[string]any
		switch {
		case i < 0 && len(nodeStatus.EgressIPs)+len(nodeStatus.Awaiting) == 0 && nodeStatus.Digest == "":
			continue
		case i < 0 && len(status.Programmed) == 0:
			ops = []map[string]any{{"op": "add", "path": "/status/programmed", "value": []any{nodeStatus}}}
		case i < 0:
			ops = []map[string]any{{"op": "add", "path": "/status/programmed/-", "value": nodeStatus}}
		case egressip.SameNodeStatus(status.Programmed[i], nodeStatus):
			continue
		case len(nodeStatus.EgressIPs)+len(nodeStatus.Awaiting) == 0 && nodeStatus.Digest == "":
			ops = []map[string]any{{"op": "remove", "path": fmt.Sprintf("/status/programmed/%d", i)}}
		default:
			ops = []map[string]any{{"op": "replace", "path": fmt.Sprintf("/status/programmed/%d", i), "value": nodeStatus}}
		}
		first := []map[string]any{{"op": "test", "path": "/metadata/uid", "value": e.UID, "by-a-node": true}}
		if i >= 0 {
			first = append(first, map[string]any{"op": "test", "path": fmt.Sprintf("/status/programmed/%d/node", i), "value": name})
		}
		ops = append(first, ops...)
		data, err := json.Marshal(ops)
		if err != nil {
			return err
		}
		_, err = w.egress.EgressIPV1().EgressIPs().Patch(ctx, key, types.JSONPatchType, data, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err // the resulting event triggers the others
	}
	return nil
}

// freeze stops a node from acting, or lets it act again.
func (w *world) freeze(node string, frozen bool) {
	w.mu.Lock()
	w.frozen[node] = frozen
	w.mu.Unlock()
	if w.master != nil {
		w.agents.Enqueue(w.master.deps.EgressIPs.Informer().GetIndexer().ListKeys()...)
	}
}

// eventually waits until ok returns true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	eventually.True(w.t, what, ok, eventually.Dump(w.String))
}

func (w *world) String() string {
	var out strings.Builder
	list, _ := w.egress.EgressIPV1().EgressIPs().List(context.Background(), metav1.ListOptions{})
	for _, e := range list.Items {
		fmt.Fprintf(&out, "%s: items %v words %v\n", e.Name, e.Status.Items, e.Status.Programmed)
		for _, c := range e.Status.Conditions {
			fmt.Fprintf(&out, "  %s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	out.WriteString(w.nb.DumpFeature(egressip.Feature))
	w.mu.Lock()
	defer w.mu.Unlock()
	return out.String() + strings.Join(w.log, "\n")
}

func (w *world) get(name string) *v1.EgressIP {
	w.t.Helper()
	e, err := w.egress.EgressIPV1().EgressIPs().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// holder returns the node that is to hold an address, or "" if there is none.
func (w *world) holder(name, addr string) string {
	for _, item := range w.get(name).Status.Items {
		if item.EgressIP == addr {
			return item.Node
		}
	}
	return ""
}

// is reports whether a condition of an EgressIP is true.
func (w *world) is(name, condition string) bool {
	return meta.IsStatusConditionTrue(w.get(name).Status.Conditions, condition)
}

// reason returns the reason of a condition.
func (w *world) reason(name, condition string) string {
	if c := meta.FindStatusCondition(w.get(name).Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// hops returns the next hops of an address of a pod: "none" without a policy,
// "drop" if it drops.
func (w *world) hops(pod, addr string) string {
	p, ok := w.stateOf(pod).Policies[netip.MustParseAddr(addr)]
	switch {
	case !ok:
		return "none"
	case len(p.Hops) == 0:
		return "drop"
	}
	var out []string
	for _, h := range p.Hops {
		out = append(out, h.String())
	}
	return strings.Join(out, " ")
}

func (w *world) stateOf(pod string) egressip.State {
	return egressip.StateOf(w.db.Rows(egressip.Owner(pod)))
}

// nats returns the translations of a pod as "node:address", sorted.
func (w *world) nats(pod string) string {
	var out []string
	for site, a := range w.stateOf(pod).NATs {
		out = append(out, site.Node+":"+a.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// event waits for an Event that contains text.
func (w *world) event(text string) {
	w.t.Helper()
	var seen []string
	dump := eventually.Dump(func() string { return fmt.Sprintf("seen %q\n%s", seen, w) })
	for len(seen) == 0 || !strings.Contains(seen[len(seen)-1], text) {
		seen = append(seen, eventually.Receive(w.t, fmt.Sprintf("an Event %q", text), w.events.Events, dump))
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

func (w *world) try(obj runtime.Object, verb string) (err error) {
	w.faults.Do(func() { err = w.ask(obj, verb) })
	return err
}

func (w *world) ask(obj runtime.Object, verb string) error {
	ctx := context.Background()
	var err error
	switch o := obj.(type) {
	case *corev1.Node:
		err = do(ctx, w.kube.CoreV1().Nodes(), o, verb)
	case *corev1.Namespace:
		err = do(ctx, w.kube.CoreV1().Namespaces(), o, verb)
	case *corev1.Pod:
		err = do(ctx, w.kube.CoreV1().Pods(o.Namespace), o, verb)
	case *corev1.Service:
		err = do(ctx, w.kube.CoreV1().Services(o.Namespace), o, verb)
	case *v1.EgressIP:
		err = do(ctx, w.egress.EgressIPV1().EgressIPs(), o, verb)
	default:
		err = fmt.Errorf("no client for a %T", obj)
	}
	return err
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

// changeEgressIP does the same for an EgressIP, with a patch that leaves the rest alone.
func (w *world) changeEgressIP(name string, change func(*v1.EgressIP)) {
	w.t.Helper()
	e := &v1.EgressIP{}
	before := w.get(name)
	before.DeepCopyInto(e)
	change(e)
	patch := map[string]any{"metadata": map[string]any{"annotations": e.Annotations, "by-a-node": true}, "spec": e.Spec}
	data, err := json.Marshal(patch)
	if err != nil {
		w.t.Fatal(err)
	}
	w.faults.Do(func() {
		_, err = w.egress.EgressIPV1().EgressIPs().Patch(context.Background(), name, types.MergePatchType, data, metav1.PatchOptions{})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) changePod(key string, change func(*corev1.Pod)) {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	// The master may remove the pending annotation in between.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p, err := w.kube.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(p)
		return w.try(p, "update")
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
