package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	egressinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// podBatch is the maximum number of pods that are planned and written together,
	// so that the loss of a node takes few transactions.
	podBatch = 512
	// podWorkers is the number of batches in progress at the same time, so that a new pod
	// seldom waits for a large batch.
	podWorkers = 4
	// statusWorkers is the number of statuses written at the same time, and
	// gateWorkers the number of pods whose start is allowed at the same time.
	statusWorkers, gateWorkers = 16, 32
	// noRerouteTimeout bounds the wait for the policies that must precede those of pods.
	noRerouteTimeout = 2 * time.Second
)

// Barrier tells what chassis have applied.
type Barrier interface {
	// Written returns a function that waits until a chassis has applied everything written before the
	// call of Written. It may be called for several chassis, and again after its ctx has ended.
	Written() func(ctx context.Context, chassis string) error
	// Counted is like Written, but only for policies and translations of EgressIPs.
	Counted() func(ctx context.Context, chassis string) error
}

// Writer writes rows and reports rows changed by others.
type Writer = nb.Database

// Deps are the dependencies of the controller.
type Deps struct {
	Kube   kubernetes.Interface
	Egress versioned.Interface
	// The caller starts the informers after New.
	EgressIPs  egressinformers.EgressIPInformer
	Namespaces coreinformers.NamespaceInformer
	Pods       coreinformers.PodInformer
	Nodes      coreinformers.NodeInformer
	Services   coreinformers.ServiceInformer
	// Addresses returns the addresses of the API servers; nil: they are unknown.
	Addresses *reservedsnapshot.Addresses
	Writer    Writer
	Health    place.Reachability
	Barrier   Barrier
	// Rerouted receives the addresses of the pods that EgressIPs have, until their rows are removed.
	Rerouted *noreroute.PodSet
	// Given returns the addresses that the port of a pod, "namespace/name", has in the
	// database. With a UID it returns none if the port belongs to another pod of that name.
	Given func(pod string, uid types.UID) []netip.Addr
	// Static reports whether the port of a pod belongs to a static pod.
	Static func(pod string) bool
	// LocalSNATs returns a channel that is closed once the writer knows the translations of
	// pods on their own nodes that yield to those of EgressIPs. It is nil if one translation
	// per node covers all pods, which EgressIPs' translations override.
	LocalSNATs func() <-chan struct{}
	// Recorder emits Events; its scheme includes EgressIP.
	Recorder record.EventRecorder
	// Network describes the networks that may not contain egress addresses.
	Network egressip.Network
	// Acknowledge is how long a node may take to acknowledge an assignment before
	// it is given to another node; 0: forever.
	Acknowledge time.Duration
	// AssumeReachable says that nodes are not probed: a node that is not ready is considered
	// dead.
	AssumeReachable bool
	// Audit records what is found and written; nil: nothing is recorded.
	Audit *audit.Recorder
	// Metrics measures moves, failovers and how long pods are held; nil: nothing is measured.
	Metrics *metrics.Leader
}

// Controller handles all EgressIPs of the cluster.
type Controller struct {
	deps Deps

	placement, statuses, pods, gates *queue.Controller

	decoded      *kube.Memo[v1.EgressIP, egressip.EgressIP]
	nodes        kube.Nodes
	members      *egressip.Members
	ackTimeouts  *health.AckTimeouts // of nodes that owe an acknowledgement
	stuckChassis *health.AckTimeouts // of nodes whose ovn-controller lags behind
	draining     atomic.Bool         // some node hands over its addresses
	seeded       bool                // only accessed by the key of placement
	readiness    place.Readiness     // accessed like seeded

	// selection is updated from the lister while selecting is held.
	selection *egressip.Selection
	selecting sync.Mutex
	first     sync.Once   // guards the initial fill of selection
	choosing  atomic.Bool // the queue of pods has its start-up keys, or is about to

	decisions *decisions // state of placement
	written   *written   // state of the status workers
	podStates *podStates // state of the pod workers
	unknown   unknown    // what Pending waits for
	onPass    []func(pod string)
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	c := &Controller{
		deps:         deps,
		members:      egressip.NewMembers(),
		ackTimeouts:  health.NewAckTimeouts(deps.Acknowledge),
		stuckChassis: health.NewAckTimeouts(deps.Acknowledge),
		selection:    egressip.NewSelection(),
		decisions:    newDecisions(),
		written:      newWritten(),
		podStates:    newPodStates(),
	}
	var err error
	if c.decoded, err = kube.NewMemo(deps.EgressIPs.Informer(), egressip.Decode); err != nil {
		return nil, err
	}
	if c.nodes, err = kube.NewNodes(deps.Nodes.Informer()); err != nil {
		return nil, err
	}
	for _, pod := range nb.Objects(deps.Writer, egressip.Feature) { // of the previous leader
		c.keepRerouted(pod)
	}
	c.placement = queue.New("egressip-placement", c.place)
	c.statuses = queue.New(egressip.Feature, c.report)
	c.pods = queue.NewBatch("egressip-pods", podBatch, c.reconcile)
	c.pods.Prefer(c.podStates.hasPort) // the workers of pod/master wait for them
	c.gates = queue.New("egressip-marks", c.removePendingAnnotation)
	return c, errors.Join(c.addIndexes(), c.watchPlacement(), c.watchServices(), c.watchStatuses(), c.watchPods())
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	c.podStates.run(ctx)
	defer waits.Report(c.held)()
	group.Go(func() error {
		if !waits.Until(ctx, c.deps.Health.Probed(), waits.Wait{Part: "egressip-placement", For: "every node to answer a probe or to be silent"}) {
			return nil
		}
		return c.placement.Run(ctx, 1)
	})
	after := func(part string, q *queue.Controller, workers int) {
		group.Go(func() error {
			// Before the first placement the assignments are unknown.
			if !waits.Until(ctx, c.placement.Synced(), waits.Wait{Part: part, For: "the first placement", Reason: waits.ReasonStart}) {
				return nil
			}
			return q.Run(ctx, workers)
		})
	}
	after(egressip.Feature, c.statuses, statusWorkers)
	after("egressip-pods", c.pods, podWorkers)
	after("egressip-marks", c.gates, gateWorkers)
	group.Go(func() error {
		if waits.Until(ctx, c.pods.Synced(), waits.Wait{Part: "noreroute", For: "every pod of an EgressIP to succeed once, before leftovers are deleted"}) {
			c.deps.Rerouted.MarkSynced()
		}
		return nil
	})
	group.Go(func() error {
		c.returnLocalSNATs(ctx)
		return nil
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run EgressIPs: %w", err)
	}
	return nil
}

// Attempted is closed when every pod that existed at the start, and every pod that
// only has rows left, has been attempted once.
func (c *Controller) Attempted() <-chan struct{} { return c.pods.Attempted() }

// Synced returns channels that are closed when every status and every pod that existed at the start,
// and every pod that only has rows left, has been reconciled successfully.
func (c *Controller) Synced() []<-chan struct{} {
	return []<-chan struct{}{c.statuses.Synced(), c.pods.Synced()}
}

// decode decodes an object, caching the result.
func (c *Controller) decode(e *v1.EgressIP) egressip.EgressIP { return c.decoded.Of(e.Name, e) }
