package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// pods tracks which pods each EgressIP has, and their addresses, which it takes from Ports and not
// from the pods. It is only needed for addresses on secondary networks, and watches nothing
// before there is one: most nodes never need to know the pods of other nodes.
type pods struct {
	c       *Controller
	open    func() informers.SharedInformerFactory
	members *egressip.Members

	once    sync.Once
	started chan struct{}
	synced  []cache.InformerSynced
	pods    corelisters.PodLister
	spaces  corelisters.NamespaceLister

	refreshing sync.Mutex // held while all pods are looked up

	mu        sync.Mutex // serializes lookups of a pod, so that the last one has the latest state
	selection *egressip.Selection
	stale     bool
}

func newPods(c *Controller, open func() informers.SharedInformerFactory) *pods {
	return &pods{c: c, open: open, members: egressip.NewMembers(), selection: egressip.NewSelection(), started: make(chan struct{}), stale: true}
}

// changed records that an EgressIP may select different pods than before.
func (p *pods) changed(old, new *v1.EgressIP) {
	if old != nil && new != nil && old.UID == new.UID && equality.Semantic.DeepEqual(old.Spec, new.Spec) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale = true
}

// need makes sure that pods are watched, and waits until they are known, and so are the addresses of nodes and API servers, to
// which connections of pods keep their address.
func (p *pods) need(ctx context.Context) error {
	p.once.Do(func() {
		factory := p.open()
		p.synced = append(p.synced, p.c.deps.Addresses.HostsSynced)
		pods, spaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
		p.pods, p.spaces = pods.Lister(), spaces.Lister()
		for _, watch := range []struct {
			informer cache.SharedIndexInformer
			look     func(obj any)
		}{{pods.Informer(), p.podEvent}, {spaces.Informer(), p.spaceEvent}} {
			h, err := watch.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    watch.look,
				UpdateFunc: func(_, obj any) { watch.look(obj) },
				DeleteFunc: func(obj any) {
					if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
						obj = t.Obj
					}
					watch.look(obj)
				},
			})
			if err != nil { // only if the informer was stopped
				klog.ErrorS(err, "Cannot watch the pods of EgressIPs")
				continue
			}
			p.synced = append(p.synced, watch.informer.HasSynced, h.HasSynced)
		}
		factory.Start(p.c.stopped)
		p.follow()
		klog.InfoS("Watching pods for egress addresses on secondary networks")
		close(p.started)
	})
	limited, cancel := context.WithTimeout(ctx, portsTimeout)
	defer cancel()
	if !queue.Informed(limited, "egressip-node", p.synced...) {
		return fmt.Errorf("wait for the pods of EgressIPs, nodes and API servers: %w", limited.Err())
	}
	select {
	case <-p.c.deps.Ports.Synced():
	case <-ctx.Done():
		return fmt.Errorf("wait for the addresses of the pods of EgressIPs: %w", ctx.Err())
	case <-time.After(portsTimeout):
		return fmt.Errorf("the addresses of the pods of EgressIPs are not known: %w", p.c.deps.Ports.Err())
	}
	p.refresh()
	return nil
}

// portsTimeout is how long a key waits for the pods, and for their addresses, before it yields its
// worker to others. It is retried.
var portsTimeout = 3 * time.Second // shortened by tests

// follow triggers a lookup of pods whose addresses change, until the controller stops.
func (p *pods) follow() {
	ports := p.c.deps.Ports
	ports.OnChange(func(port string) {
		// Names of namespaces and pods do not contain "_".
		if namespace, name, ok := strings.Cut(port, "_"); ok {
			p.look(namespace, name)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-ports.Synced(): // for the keys that waited for the ports
			p.c.queue.Enqueue(p.c.keys()...)
		case <-p.c.stopped:
			return
		}
		<-p.c.stopped
	}()
	go func() { // for the keys that waited for the pods
		if cache.WaitForCacheSync(p.c.stopped, p.synced...) {
			p.c.queue.Enqueue(p.c.keys()...)
		}
	}()
	go func() {
		if err := ports.Run(ctx); err != nil {
			klog.ErrorS(err, "Cannot watch the addresses of pods")
		}
	}()
}

// watching reports whether pods are watched.
func (p *pods) watching() bool {
	select {
	case <-p.started:
		return true
	default:
		return false
	}
}

// refresh looks up all pods again if selectors of EgressIPs have changed. It returns when that is done, whoever does it: with the
// former members a key would let pods go that another EgressIP has.
func (p *pods) refresh() {
	if !p.watching() {
		return
	}
	p.refreshing.Lock()
	defer p.refreshing.Unlock()
	if !p.reselect() {
		return
	}
	all, err := p.pods.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list pods") // cannot happen: listing from memory does not fail
	}
	for _, pod := range all {
		p.look(pod.Namespace, pod.Name)
	}
}

// refreshFor is refresh for the key of an EgressIP, which is nil if it has been deleted.
func (p *pods) refreshFor(key string, e *v1.EgressIP) {
	if p.refresh(); e == nil {
		p.removed(key)
	}
}

// removed lets the pods of an EgressIP go to others if it has been deleted: that can be seen before the event that has all
// pods looked up again.
func (p *pods) removed(key string) {
	if !p.watching() {
		return
	}
	p.mu.Lock()
	if _, err := p.c.deps.EgressIPs.Lister().Get(key); apierrors.IsNotFound(err) { // not if it was created again, and selected
		p.selection.Delete(key)
	}
	p.mu.Unlock()
	for _, pod := range p.members.Selected(key) {
		if namespace, name, ok := strings.Cut(pod, "/"); ok {
			p.look(namespace, name)
		}
	}
}

// reselect rebuilds the selection; it returns false if nothing has changed.
func (p *pods) reselect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stale {
		return false
	}
	p.selection = egressip.NewSelection()
	for _, e := range p.c.objects() {
		p.selection.Set(e)
	}
	p.stale = false
	return true
}

func (p *pods) podEvent(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		p.look(pod.Namespace, pod.Name)
	}
}

func (p *pods) spaceEvent(obj any) {
	space, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	all, err := p.pods.Pods(space.Name).List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list pods")
	}
	for _, pod := range all {
		p.look(pod.Namespace, pod.Name)
	}
}

// look finds the EgressIPs that select a pod, and enqueues those whose state
// on this node this changes.
func (p *pods) look(namespace, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	var addrs []netip.Addr
	pod, err := p.pods.Pods(namespace).Get(name)
	space, e := p.spaces.Get(namespace)
	if err == nil && e == nil {
		if addrs = p.addresses(pod); len(addrs) > 0 {
			keys = p.selection.Matching(space.Labels, pod.Labels)
		}
	}
	p.c.queue.Enqueue(p.members.Set(namespace+"/"+name, keys, addrs)...)
}

// addresses returns the addresses assigned to a pod.
func (p *pods) addresses(pod *corev1.Pod) (addrs []netip.Addr) {
	port, ok := p.c.deps.Ports.Port(topology.PodPort(pod.Namespace, pod.Name))
	if !ok || port.UID != string(kube.PodUID(pod)) || !kube.NeedsNetwork(pod) {
		return nil
	}
	for _, a := range port.Addrs {
		// Whatever is in that database, no rule may match packets from outside the pod subnets.
		if slices.ContainsFunc(p.c.deps.Cluster, func(c netip.Prefix) bool { return c.Contains(a) }) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
