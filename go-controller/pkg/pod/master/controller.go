package master

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// workers is the number of pods reconciled at once. They mostly wait for the API server and
// the database, and the writer combines all waiting changes into one transaction: with few
// workers, a start takes thousands of transactions, each of which triggers a pass of ovn-northd.
const workers = 64

// Egress writes its own rows for pods whose egress traffic it steers.
type Egress interface {
	// Pending returns the value of the pending annotation for a pod that is about to get its
	// addresses; empty for none. CNI ADD waits until the annotation is removed. Pending fails while the answer
	// is not known yet.
	Pending(p *corev1.Pod) (string, error)
	// Attach applies the rows of a pod's port, whose owner is given, together with its own if it
	// has any, and returns when they are written. The statistics may include other pods.
	Attach(ctx context.Context, p *corev1.Pod, network topology.PodNetwork, owner nb.Owner, rows []nb.Row) (nb.Stats, error)
	// Used returns, by pod, the addresses in its own rows, including those of deleted pods.
	Used() map[string][]netip.Addr
	// Uses reports whether any of the addresses is, or may be about to be, in its rows of a pod, "namespace/name", or of
	// an earlier one of that name.
	Uses(pod string, addrs []netip.Addr) bool
	// OnPass registers a function that is called with a pod when Uses may have changed for it.
	OnPass(f func(pod string))
}

// Matched are the addresses by which the rows of an egress feature match packets, or are about to. It is safe
// for concurrent use.
type Matched interface {
	Has(a netip.Addr) bool
	// Addrs returns all addresses.
	Addrs() (addrs []netip.Addr, complete bool)
	// SubscribeAddrs registers a function that is called with added and removed addresses.
	SubscribeAddrs(f func(addrs []netip.Addr))
}

// Writer writes rows and reports rows changed by others.
type Writer = nb.Database

// Deps are the dependencies of the controller; all fields except Egress and Matched are required.
type Deps struct {
	Client   kubernetes.Interface
	Pods     coreinformers.PodInformer // of all nodes
	Nodes    coreinformers.NodeInformer
	Writer   Writer
	Recorder record.EventRecorder
	Config   pod.Config
	// Egress is nil if pods always leave with the addresses of their nodes.
	Egress Egress
	// Matched are the addresses in the rows of features other than Egress. Those of an earlier leader's rows must be
	// in it before Run is called.
	Matched []Matched
}

// Controller runs the pods' part of the network.
type Controller struct {
	Deps
	queue *queue.Controller
	nodes corelisters.NodeLister
	pods  cache.Indexer
	alloc *pod.Allocator
	// decoded caches the decoded nodes.
	decoded            kube.Nodes
	onAddressesChanged []func(pod, node string) // the functions of OnAddressesChanged
	// mirrorless are static pods that had a port but no mirror pod when this master started,
	// with the time until which they count as existing: kube.MirrorGrace only covers mirror pods
	// whose deletion it sees. It does not change once the workers run.
	mirrorless map[string]time.Time
	// unseen are the pods whose annotations were written and that had no event since.
	unseen kube.Unseen

	mu sync.Mutex
	// replaced are, by key, the pods whose annotation was written but which the
	// lister may not show yet.
	replaced map[string]replaced
	// used are the holders whose ports are removed but whose addresses egress features may still use.
	used map[pod.Holder]bool
	// usedAt are these holders by their addresses.
	usedAt map[netip.Addr]pod.Holder
}

// New returns the controller. The caller starts the informers.
func New(d Deps) (*Controller, error) {
	decoded, err := kube.NewNodes(d.Nodes.Informer())
	if err != nil {
		return nil, err
	}
	c := &Controller{
		Deps:     d,
		nodes:    d.Nodes.Lister(),
		pods:     d.Pods.Informer().GetIndexer(),
		alloc:    pod.NewAllocator(),
		decoded:  decoded,
		replaced: map[string]replaced{}, mirrorless: map[string]time.Time{}, used: map[pod.Holder]bool{}, usedAt: map[netip.Addr]pod.Holder{},
	}
	if d.Egress != nil {
		d.Egress.OnPass(c.unused)
	}
	for _, m := range d.Matched {
		m.SubscribeAddrs(c.unmatched)
	}
	c.queue = queue.New("pod", c.reconcile)
	if err := kube.IndexPodNodes(d.Pods.Informer()); err != nil {
		return nil, err
	}
	if err := c.queue.Watch(d.Nodes.Informer(), nodeKeys); err != nil {
		return nil, err
	}
	err = c.queue.Watch(d.Pods.Informer(), func(old, new any) []string {
		c.arrived(old, new)
		if c.unseen.Follows(old, new) {
			return []string{kube.PodKey(new.(*corev1.Pod))}
		}
		return podKeys(old, new)
	})
	if err != nil {
		return nil, err
	}
	nb.EnqueueDrift(c.queue, d.Writer, pod.Feature)
	c.queue.Seed(c.seeds)
	return c, nil
}

// OnAddressesChanged registers a function that is called when the addresses in the rows of a
// pod, "namespace/name", on a node may have changed. It must be called before Run, and the
// function must not block.
func (c *Controller) OnAddressesChanged(f func(pod, node string)) {
	c.onAddressesChanged = append(c.onAddressesChanged, f)
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx, workers) }

// Attempted is closed when everything found at start-up has been reconciled once.
func (c *Controller) Attempted() <-chan struct{} { return c.queue.Attempted() }

// seeds fills the allocator before any worker runs, and returns all pods that
// need a network and all owners of rows.
func (c *Controller) seeds() []string {
	owners := nb.Objects(c.Writer, pod.Feature)
	nodes, _ := c.nodes.List(labels.Everything()) // reads memory and cannot fail
	for _, n := range nodes {
		c.adopt(n.Name)
	}
	keys := c.reserveFormer(owners)
	for _, obj := range c.pods.List() {
		if p, ok := obj.(*corev1.Pod); ok && kube.NeedsNetwork(p) {
			keys = append(keys, kube.PodKey(p))
		}
	}
	return append(keys, owners...)
}

// podKeys returns the keys affected by an event of a pod.
func podKeys(old, new any) []string {
	before, _ := old.(*corev1.Pod)
	after, _ := new.(*corev1.Pod)
	switch {
	case before == nil || after == nil:
		if p := first(before, after); kube.NeedsNetwork(p) {
			return []string{kube.PodKey(p)}
		}
	case before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
		kube.NeedsNetwork(before) != kube.NeedsNetwork(after) ||
		kube.NeedsNetwork(after) && before.Annotations[kube.AnnotationPodNetworks] != after.Annotations[kube.AnnotationPodNetworks]:
		return []string{kube.PodKey(after)}
	}
	return nil
}

func first(pods ...*corev1.Pod) *corev1.Pod {
	return pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p != nil })]
}

// nodeKeys returns the keys affected by an event of a node.
func nodeKeys(old, new any) []string {
	before, _ := old.(*corev1.Node)
	after, _ := new.(*corev1.Node)
	switch {
	case before == nil:
		return []string{after.Name}
	case after == nil:
		return []string{before.Name}
	}
	for _, k := range []string{
		kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr, kube.AnnotationChassisID, kube.AnnotationL3Gateway,
	} {
		if before.Annotations[k] != after.Annotations[k] {
			return []string{after.Name}
		}
	}
	return nil
}

func (c *Controller) reconcile(ctx context.Context, key string) error {
	if strings.Contains(key, "/") {
		return c.reconcilePod(ctx, key)
	}
	c.queue.Enqueue(c.adopt(key)...)
	for _, p := range kube.PodsOn(c.pods, key) {
		c.queue.Enqueue(kube.PodKey(p))
	}
	return nil
}

// adopt passes a node's subnets and the addresses of its pods to the allocator. It returns the keys of pods that should be tried again.
func (c *Controller) adopt(name string) []string {
	n, err := c.nodes.Get(name)
	if err != nil { // not found: a lister returns no other error
		return c.alloc.SetNode(name, nil, nil)
	}
	node, _ := c.decoded.Node(n) // the network controller reports parse errors
	var claims []pod.Claim
	keep := map[pod.Holder]string{}
	for _, p := range kube.PodsOn(c.pods, name) {
		if c.alloc.IsReserved(holder(p)) {
			continue // its reservation takes precedence over other sources
		}
		if network, ok := c.known(p, node); ok {
			claims = append(claims, pod.Claim{
				Holder: holder(p), Addrs: network.Addrs, Running: running(p), Created: p.CreationTimestamp.Time,
			})
			keep[holder(p)] = network.MAC
		}
	}
	wake := c.alloc.SetNode(name, node.Subnets, claims)
	for _, claim := range claims {
		c.keepMAC(claim.Holder, claim.Addrs, keep[claim.Holder], node)
	}
	return wake
}

// lookup returns a pod that needs a network, or nil if there is none.
func (c *Controller) lookup(key string) (*corev1.Pod, error) {
	namespace, name, _ := strings.Cut(key, "/")
	p, err := c.Pods.Lister().Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !kube.NeedsNetwork(p) {
		return nil, nil
	}
	return p, err
}

// exists reports whether a pod exists, whether or not it needs a network.
func (c *Controller) exists(key string) bool {
	_, ok, _ := c.pods.GetByKey(key) // reads memory and cannot fail
	return ok
}

func holder(p *corev1.Pod) pod.Holder {
	return pod.Holder{Key: kube.PodKey(p), UID: string(kube.PodUID(p))}
}

// running reports whether the pod's addresses are in use, that is, reported by the
// runtime.
func running(p *corev1.Pod) bool { return len(p.Status.PodIPs) > 0 }
