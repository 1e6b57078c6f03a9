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
	// podBatch is how many pods are planned and written together: those of a node,
	// so that its loss takes few transactions.
	podBatch = 512
	// podWorkers is how many batches are under way at the same time, so that a pod
	// which comes alone need not wait for one.
	podWorkers = 4
	// statusWorkers is how many statuses are written at the same time, and
	// gateWorkers how many pods are let start.
	statusWorkers, gateWorkers = 16, 32
	// insidePatience bounds the wait for the policies that come before those of pods.
	insidePatience = 2 * time.Second
)

// Barrier waits until a chassis has in force what was written before.
type Barrier interface {
	Wait(ctx context.Context, chassis string) error
}

// Writer writes the rows and tells of those that others changed.
type Writer = nb.Database

// Deps is what the controller works with.
type Deps struct {
	Kube   kubernetes.Interface
	Egress versioned.Interface
	// The informers are started by the caller after New.
	EgressIPs  egressinformers.EgressIPInformer
	Namespaces coreinformers.NamespaceInformer
	Pods       coreinformers.PodInformer
	Nodes      coreinformers.NodeInformer
	Services   coreinformers.ServiceInformer
	// Addresses knows the API servers; nil: nobody does.
	Addresses *reservedsnapshot.Addresses
	Writer    Writer
	Health    place.Reachability
	Barrier   Barrier
	// Rerouted is told the addresses of the pods that EgressIPs have.
	Rerouted *noreroute.PodSet
	// Given returns the addresses that the port of a pod, "namespace/name", has in the
	// database; with a UID, none where the port is another one's of that name.
	Given func(pod string, uid types.UID) []netip.Addr
	// Static tells whether the port of a pod is that of a static pod.
	Static func(pod string) bool
	// LocalSNATs returns what is closed when the writer has been told the translations of
	// pods on their own nodes that yield to those of EgressIPs. It is nil where one rule
	// of the node translates all pods, to which that of an EgressIP is an exception.
	LocalSNATs func() <-chan struct{}
	// Recorder writes Events; its scheme knows EgressIP.
	Recorder record.EventRecorder
	// Network is what no egress address may be in.
	Network egressip.Network
	// Acknowledge is how long a node may take to acknowledge what it is given before
	// that is given to another; 0: for ever.
	Acknowledge time.Duration
	// AssumeReachable says that nobody probes nodes: one that is not ready is taken
	// for dead.
	AssumeReachable bool
	// Audit is told what is found and written; nil: nobody records it.
	Audit *audit.Recorder
	// Metrics measures moves, failovers and how long pods are held; nil: nobody does.
	Metrics *metrics.Leader
}

// Controller serves all EgressIPs of the cluster.
type Controller struct {
	deps Deps

	placement, statuses, pods, gates *queue.Controller

	decoded      *kube.Memo[v1.EgressIP, egressip.EgressIP]
	nodes        kube.Nodes
	members      *egressip.Members
	ackTimeouts  *health.AckTimeouts // of nodes that owe a status entry
	stuckChassis *health.AckTimeouts // of nodes whose ovn-controllers are behind
	draining     atomic.Bool         // some node hands over its addresses
	seeded       bool                // only the key of placement touches it
	unheard      place.Unheard       // as seeded

	// selection has what the lister shows while selecting is held.
	selection *egressip.Selection
	selecting sync.Mutex
	first     sync.Once   // selection was filled
	choosing  atomic.Bool // the queue of pods has its start-up keys, or is about to

	decisions *decisions // of placement
	written   *written   // of those that write statuses
	podStates *podStates // of those that work on pods
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
	c.placement = queue.New("egressip-placement", c.place)
	c.statuses = queue.New(egressip.Feature, c.report)
	c.pods = queue.NewBatch("egressip-pods", podBatch, c.reconcile)
	c.gates = queue.New("egressip-marks", c.removePendingAnnotation)
	return c, errors.Join(c.addIndexes(), c.watchPlacement(), c.watchServices(), c.watchStatuses(), c.watchPods())
}

// Run works until ctx is done.
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
			// Without the first placement nobody knows what to be.
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

// Attempted is closed when every pod that was there at the start, and every one that
// only has rows left, has been tried once.
func (c *Controller) Attempted() <-chan struct{} { return c.pods.Attempted() }

// Synced is closed when every status and every pod that was there at the start, and every
// one that only has rows left, has been reconciled successfully.
func (c *Controller) Synced() []<-chan struct{} {
	return []<-chan struct{}{c.statuses.Synced(), c.pods.Synced()}
}

// decode decodes an object, once.
func (c *Controller) decode(e *v1.EgressIP) egressip.EgressIP { return c.decoded.Of(e.Name, e) }
