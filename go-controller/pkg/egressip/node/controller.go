package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// workers is the number of EgressIPs reconciled at the same time. They mostly wait for flows of
// the external bridge and iptables rules, which are written for all of them at once.
const workers = 64

// Deps are the dependencies of the controller.
type Deps struct {
	// Node is the name of this node.
	Node string
	// The caller starts EgressIPs and Nodes after New. Nodes only needs to include
	// this node.
	EgressIPs egressipinformers.EgressIPInformer
	Nodes     coreinformers.NodeInformer
	// Client writes status entries.
	Client versioned.Interface
	// Kube requests handovers, and reads the node that has an address assigned to this
	// node.
	Kube kubernetes.Interface
	// Flows manages the flows of the external bridge.
	Flows Flows
	// Left returns the addresses that an earlier run left on the external bridge as held and
	// as suppressed.
	Left func(ctx context.Context) (held, suppressed []netip.Addr, err error)
	// Forget deletes the connection tracking entries of kernel and datapath for connections that
	// used one of the addresses as their source or destination.
	Forget func(ctx context.Context, addrs []netip.Addr) error
	// VLAN of the external bridge; 0 for none.
	VLAN int
	// Kernel programs addresses on secondary networks.
	Kernel Kernel
	// Record keeps the egress addresses on the host's links.
	Record *Record
	// Pods creates the cluster-wide informers of pods and namespaces when they are
	// needed.
	Pods func() informers.SharedInformerFactory
	// Ports provides the addresses of pods. It is started when they are needed.
	Ports Ports
	// Cluster are the pod subnets of the cluster.
	Cluster []netip.Prefix
	// FollowTranslations calls changed with the source translations that OVN makes on this node,
	// initially and after each change, until ctx ends.
	FollowTranslations func(ctx context.Context, changed func([]host.Translation))
	// FlushTranslations waits until OVN's changes are in force, deletes the connections of the
	// gateway router for which what stale returns then is true, and returns their number.
	FlushTranslations func(ctx context.Context, stale func() func(src, dst, to netip.Addr) bool) (int, error)
	// OnApplied registers a function that is called whenever the master's changes to the
	// northbound database have taken effect on this node.
	OnApplied func(func())
	// Addresses knows the addresses of nodes and API servers; the caller starts its informers. NodeLocal are the
	// other ranges that pods reach through their own node.
	Addresses *reservedsnapshot.Addresses
	NodeLocal []netip.Prefix
	// Announcer announces that an address has moved to this node.
	Announcer Announcer
	// Ready is closed once the network of the node is set up. Before that, no address is
	// taken; held addresses stay.
	Ready <-chan struct{}
	// ReachabilityTimeout is how long the master tolerates a silent node before it gives the node's
	// addresses to others; 0: forever.
	ReachabilityTimeout time.Duration
}

// Flows is the flow manager of the external bridge.
type Flows interface {
	host.FlowWriter
	// Synced reports whether the flows of all contributors are installed.
	Synced() bool
	// Settle waits until no packet uses flows of Open vSwitch that were replaced before the call.
	Settle(ctx context.Context) error
}

// Ports provides the logical ports of the cluster's pods from a source that is not writable
// for users who may edit pods.
type Ports interface {
	Run(ctx context.Context) error
	// Port returns the addresses of a port; false if there is no such port.
	Port(name string) (topology.PodAddresses, bool)
	// OnChange registers a function that is called with the name of each port that
	// changes.
	OnChange(f func(port string))
	// Synced is closed once all ports that existed initially are known.
	Synced() <-chan struct{}
	// Err returns why ports are unknown or outdated; nil if they are not.
	Err() error
}

// Announcer announces addresses.
type Announcer interface {
	// Start announces the MAC address of a link for an address, repeatedly for
	// a while.
	Start(link string, addr netip.Addr) error
	// Stop ends the announcements of an address.
	Stop(addr netip.Addr)
	// Solicit resolves the MAC address of a neighbour for the host and the gateway router, which
	// share a MAC address.
	Solicit(link string, from, neighbour netip.Addr) error
}

// Controller holds the egress addresses of this node.
type Controller struct {
	deps        Deps
	queue       *queue.Controller
	suppression *arpSuppression
	pods        *pods
	stale       *staleConntrack
	translated  *translations
	changing    *changing
	// unconfirmed: the policies that lead pods here may not be in force on this node yet.
	unconfirmed queue.Unconfirmed
	// newlyLed are the pods that are led to this node since some report that is not confirmed yet, with their addresses.
	newlyLed map[netip.Addr]netip.Addr
	// previous are the previous holders of the addresses.
	previous *previousHolders
	// copies writes the rules that forward packets to them.
	copies host.Optional
	// stopped is closed when Run ends.
	stopped chan struct{}

	mu     sync.Mutex
	states map[string]state
	// holders counts, by address, the EgressIPs for which this node answers for it.
	holders map[netip.Addr]int
	// heldFor are the EgressIPs for which this node last held an address.
	heldFor map[netip.Addr]types.UID
	// touched are the keys whose kernel state may have been changed by others.
	touched map[string]bool
	// released are addresses on secondary networks that other nodes are about to take.
	released map[string]map[netip.Addr]released
	// leaving: other nodes were asked to take over; ending: the time for that is over.
	leaving, ending bool
}

// state is this node's state of an EgressIP.
type state struct {
	uid types.UID
	// held are the addresses that this node answers for.
	held map[netip.Addr]bool
	// announced are the held addresses that were announced to neighbours.
	announced map[netip.Addr]bool
	// unlinked are the given addresses on secondary networks without a link on this node.
	unlinked map[netip.Addr]bool
	// host is the state in the kernel.
	host egressip.HostState
	// known says that this run has written the kernel state; incomplete, that a write
	// succeeded only partially.
	known, incomplete bool
}

func (s state) clone() state {
	s.held, s.announced, s.unlinked = maps.Clone(s.held), maps.Clone(s.announced), maps.Clone(s.unlinked)
	return s
}

// onLinks returns the addresses on secondary networks whose pods are led to this node.
func (s state) onLinks() []netip.Addr {
	addrs := slices.Collect(maps.Keys(s.unlinked))
	for a, held := range s.held {
		if held && s.host.Has(a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	c := &Controller{deps: deps, stopped: make(chan struct{}), states: map[string]state{},
		holders: map[netip.Addr]int{}, heldFor: map[netip.Addr]types.UID{}, touched: map[string]bool{}, newlyLed: map[netip.Addr]netip.Addr{}, released: map[string]map[netip.Addr]released{}}
	c.suppression, c.pods, c.stale = newARPSuppression(c), newPods(c, deps.Pods), newStaleConntrack(deps.Forget)
	c.translated, c.changing = newTranslations(c), newChanging(deps.Kernel)
	c.previous = newPreviousHolders(deps, func(key string) { c.queue.EnqueueAfter(holderRetry, key) })
	c.queue = queue.New("egressip-node", c.reconcile)
	c.queue.Seed(c.seedStates)
	// The suppressed addresses must be applied even if there are no EgressIPs.
	c.queue.OnAttempted(c.suppression.apply)
	deps.OnApplied(c.applied)
	err := errors.Join(
		c.queue.Watch(deps.EgressIPs.Informer(), func(old, new any) []string {
			a, _ := old.(*v1.EgressIP)
			b, _ := new.(*v1.EgressIP)
			c.pods.changed(a, b)
			if b == nil {
				b = a
			}
			return []string{b.Name}
		}),
		c.queue.Watch(deps.Nodes.Informer(), c.nodeKeys),
		c.translated.waitForHosts(),
	)
	return c, err
}

// nodeKeys returns the keys affected by changes of this node that may change what it holds.
func (c *Controller) nodeKeys(old, new any) []string {
	a, _ := old.(*corev1.Node)
	b, _ := new.(*corev1.Node)
	if b == nil || b.Name != c.deps.Node {
		return nil
	}
	var keys []string
	// The comparison is with the record, not between old and new: after a lost watch, a list
	// may hide that somebody reverted what this node had just written.
	if !c.deps.Record.StandsIn(b) {
		keys = append(keys, recordKey)
	}
	// The request of an earlier run may be written after it was withdrawn, or be restored by others.
	if _, asks := b.Annotations[kube.AnnotationEgressHandover]; asks {
		keys = append(keys, withdrawKey)
	}
	if a == nil {
		return append(keys, c.keys()...)
	}
	same := true
	for _, name := range []string{kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses, kube.AnnotationL3Gateway} {
		same = same && a.Annotations[name] == b.Annotations[name]
	}
	if same {
		return keys
	}
	return append(keys, c.keys()...)
}

// keys returns the names of all EgressIPs that exist or have a state.
func (c *Controller) keys() []string {
	keys := map[string]bool{}
	for _, e := range c.objects() {
		keys[e.Name] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.states {
		keys[key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

func (c *Controller) objects() []*v1.EgressIP {
	all, err := c.deps.EgressIPs.Lister().List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list EgressIPs")
	}
	return all
}

// seedStates restores the addresses held by an earlier run: those in this node's status entries that
// the items still assign to it, or let it retain. It holds no others from the start.
func (c *Controller) seedStates() []string {
	for _, e := range c.objects() {
		c.remember(e.Name, c.restoreHeld(e))
	}
	return c.keys()
}

// restoreHeld returns this node's state of an EgressIP according to its own status entry.
func (c *Controller) restoreHeld(e *v1.EgressIP) state {
	s := state{uid: e.UID, held: map[netip.Addr]bool{}, announced: map[netip.Addr]bool{}}
	for _, item := range e.Status.Items {
		a, err := netip.ParseAddr(item.EgressIP)
		if err == nil && egressip.Answers(e.Status, c.deps.Node, a) && egressip.Next(true, e.Status, c.deps.Node, a).Answers() {
			s.held[a], s.announced[a] = true, true
		}
	}
	return s
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	defer close(c.stopped)
	if err := c.watchLinks(ctx); err != nil {
		return err
	}
	go func() {
		select {
		case <-c.deps.Ready:
			c.queue.Enqueue(append(c.keys(), withdrawKey)...)
		case <-ctx.Done():
		}
	}()
	c.waitForStatusTimeout(ctx)
	group, running := errgroup.WithContext(ctx) // goroutines started above keep the original ctx
	group.Go(func() error { return c.queue.Run(running, workers) })
	group.Go(func() error { return c.translated.Run(running) })
	return group.Wait()
}

// Attempted is closed when every EgressIP that existed at the start has been attempted once,
// and the suppressed addresses have been applied to the bridge.
func (c *Controller) Attempted() <-chan struct{} { return c.queue.Attempted() }

// Synced is closed when this node has written its kernel state for every
// EgressIP that existed at the start.
func (c *Controller) Synced() <-chan struct{} { return c.queue.Synced() }

// Answering returns the number of addresses that this node answers for or lists in its status
// entries: it is 0 only if neither is the case for any address.
func (c *Controller) Answering() int {
	held := c.allAnswering()
	for _, e := range c.objects() {
		status, _ := egressip.NodeStatusOf(e.Status, c.deps.Node)
		for _, text := range status.EgressIPs {
			if a, err := netip.ParseAddr(text); err == nil {
				held[a] = true
			}
		}
	}
	return len(held)
}

// self returns this node, as far as it is known.
func (c *Controller) self() (topology.Node, error) {
	n, err := c.deps.Nodes.Lister().Get(c.deps.Node)
	if apierrors.IsNotFound(err) {
		return topology.Node{Name: c.deps.Node}, nil
	}
	if err != nil {
		return topology.Node{}, fmt.Errorf("read node %s: %w", c.deps.Node, err)
	}
	node, err := kube.Node(n)
	if err != nil {
		klog.V(4).InfoS("Node has an annotation that cannot be read", "node", n.Name, "err", err)
	}
	return node, nil
}

// task returns what is to be done for a key that is not that of an EgressIP; nil if it is one.
func (c *Controller) task(key string) func(context.Context) error {
	switch key {
	case suppressionKey:
		return c.endSuppression
	case withdrawKey:
		return c.withdrawRequest
	case recordKey:
		return c.deps.Record.Restore
	case changingKey:
		return c.endHoldingBack
	case takeoversKey:
		return c.finishTakeovers
	}
	return nil
}

func (c *Controller) endSuppression(ctx context.Context) error {
	c.suppression.end()
	if err := c.suppression.apply(ctx); err != nil {
		return err
	}
	return c.suppression.forget(ctx)
}

// reconcile takes and releases the addresses of one EgressIP, and reports this in the status.
func (c *Controller) reconcile(ctx context.Context, key string) error {
	if do := c.task(key); do != nil {
		return do(ctx)
	}
	e, err := c.deps.EgressIPs.Lister().Get(key)
	if apierrors.IsNotFound(err) {
		e, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("read EgressIP %s: %w", key, err)
	}
	node, err := c.self()
	if err != nil {
		return err
	}
	before := c.state(key, e)
	after := state{held: map[netip.Addr]bool{}, announced: map[netip.Addr]bool{}, known: true}
	var assignment egressip.NodeAssignment
	may := func(netip.Addr) bool { return false }
	if e != nil {
		after.uid = e.UID
		if assignment, may, err = c.allowed(ctx, e, before, node); err != nil {
			return err
		}
	}
	c.previous.expect(ctx, key, e, assignment, node.Name)
	c.pods.refreshFor(key, e)
	next, held, err := c.assignLinks(ctx, key, assignment, c.planReleased(key, e, before), may)
	if err != nil {
		return err
	}
	for _, a := range assignment.Primary {
		if may(a) {
			held[a], next.links[a] = true, externalBridge(node)
		}
	}
	for a := range held {
		after.held[a], after.announced[a] = true, before.announced[a]
	}
	after.host, after.unlinked = next.host, next.unlinked
	covered := c.suppression.cover(key, e, node)
	if remote := len(assignment.Primary)+len(assignment.Secondary)+len(before.held)+len(after.held) == 0; remote && covered {
		next.gated = true
	}
	if ok, err := c.clear(ctx, e, before, after); err != nil || !ok {
		return err // if not ok, the key is enqueued again soon
	}
	if err := c.hold(ctx, key, before, after, next); err != nil {
		return err
	}
	if e == nil {
		c.forget(key)
		return nil
	}
	still, holder := c.holdsStill(e, after)
	if holder == "" {
		if err := c.dropLeft(ctx, key, c.leavingEntry(e, after)); err != nil {
			return err
		}
	}
	c.queue.MarkSynced(key) // not earlier: what is left is recognized by the record, which is trimmed afterwards
	if holder != "" {
		return fmt.Errorf("report %s as released: EgressIP %s still has it", still, holder)
	}
	if leaving := c.leavingEntry(e, after); len(leaving) > 0 {
		if err := c.suppression.released(ctx); err != nil {
			return fmt.Errorf("report %v as released: %w", leaving, err)
		}
	}
	next.awaiting = c.awaiting(e, assignment, next)
	return c.patchNodeStatus(ctx, e, c.nodeStatus(after, next))
}

// state returns this node's state of an EgressIP. An EgressIP recreated under the
// same name is a different one.
func (c *Controller) state(key string, e *v1.EgressIP) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known := c.states[key]
	if e != nil && (!known || s.uid != e.UID) {
		fresh := c.restoreHeld(e)
		// The kernel state of the previous object must be removed.
		fresh.host, fresh.known, fresh.incomplete = s.host, s.known, s.incomplete
		for a := range s.held {
			if !fresh.held[a] {
				fresh.held[a] = false // release it, and take it again if allowed
			}
		}
		return fresh
	}
	return s.clone()
}

// hold makes this node answer for exactly the held addresses: it releases
// first, and announces new addresses last.
func (c *Controller) hold(ctx context.Context, key string, before, after state, next linkState) error {
	for a := range before.held {
		if !after.held[a] {
			c.deps.Announcer.Stop(a)
		}
	}
	half := after.clone() // the known state if a step fails
	half.host, half.incomplete = before.host, true
	for a := range before.held {
		half.held[a] = after.held[a] // not released yet, see holdsStill
	}
	c.remember(key, half)
	if !next.gated {
		if err := c.suppression.apply(ctx); err != nil {
			return err
		}
	}
	if err := c.leave(ctx, key, before, next); err != nil {
		return err
	}
	if err := c.enter(ctx, key, before, next); err != nil {
		return err
	}
	for _, a := range slices.SortedFunc(maps.Keys(after.held), netip.Addr.Compare) {
		if after.announced[a] {
			continue
		}
		if !next.record[a] && !c.deps.Flows.Synced() {
			return fmt.Errorf("take %s: the external bridge does not have all its flows yet", a)
		}
		if err := c.deps.Announcer.Start(next.links[a], a); err != nil {
			return err
		}
		if !next.record[a] {
			c.resolveNextHops(next.links[a], topology.FamilyOf(a))
		}
		after.announced[a] = true
		klog.InfoS("Took egress address", "egressIP", key, "address", a, "link", next.links[a])
	}
	for a, was := range before.held {
		if was && !after.held[a] {
			klog.InfoS("Released egress address", "egressIP", key, "address", a)
		}
	}
	c.remember(key, after)
	c.awaitPods(before, after)
	return nil
}

// remember stores this node's state of an EgressIP.
func (c *Controller) remember(key string, s state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recount(c.states[key], -1)
	c.states[key] = s.clone()
	c.recount(s, 1)
	for a, held := range s.held {
		if held {
			c.heldFor[a] = s.uid
		}
	}
}

// recount adds n to the counts of holders for the held addresses of a state; mu is held.
func (c *Controller) recount(s state, n int) {
	for a, held := range s.held {
		if !held {
			continue
		}
		if c.holders[a] += n; c.holders[a] == 0 {
			delete(c.holders, a)
		}
	}
}

// forget removes the state of a deleted EgressIP.
func (c *Controller) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recount(c.states[key], -1)
	delete(c.states, key)
}

// lastHeldFor returns the EgressIP for which this node last held an address.
func (c *Controller) lastHeldFor(a netip.Addr) (types.UID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok := c.heldFor[a]
	return uid, ok
}

// forgetHolder forgets the EgressIP for which this node held an address, unless it holds the address again.
func (c *Controller) forgetHolder(a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders[a] == 0 {
		delete(c.heldFor, a)
	}
}

// allAnswering returns every address that this node answers for.
func (c *Controller) allAnswering() map[netip.Addr]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[netip.Addr]bool, len(c.holders))
	for a := range c.holders {
		all[a] = true
	}
	return all
}

// externalBridge returns the host's link on the primary network.
func externalBridge(node topology.Node) string {
	return strings.TrimSuffix(node.Gateway.InterfaceID, topology.ExternalInterface("", node.Name))
}
