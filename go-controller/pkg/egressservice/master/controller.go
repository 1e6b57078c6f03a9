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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// workers is the number of EgressServices written at the same time. They mostly wait: the writer of
// the database combines waiting changes into one transaction.
const workers = 256

// Writer writes rows and reports rows changed by others.
type Writer = nb.Database

// Deps are the dependencies of the controller.
type Deps struct {
	Kube   kubernetes.Interface
	Egress versioned.Interface
	// The caller starts Informers and Nodes after New.
	Informers snapshot.Informers
	Nodes     coreinformers.NodeInformer
	Writer    Writer
	Health    place.Reachability
	// Pods receives the endpoints that are served.
	Pods *noreroute.PodSet
	// Recorder emits Events; its scheme includes EgressService.
	Recorder record.EventRecorder
	// ClusterSubnets are the pod subnets of the cluster.
	ClusterSubnets []netip.Prefix
	// Mode is the gateway mode of the cluster.
	Mode topology.GatewayMode
	// Acknowledge is how long a reachable host may take to acknowledge its rules
	// before another node becomes the host; 0: forever.
	Acknowledge time.Duration
	// AssumeReachable says that nodes are not probed.
	AssumeReachable bool
	// Given returns the addresses assigned to the pod "namespace/name" with a UID.
	Given func(pod string, uid types.UID) []netip.Addr
	// Audit records what is found and written; nil: nothing is recorded.
	Audit *audit.Recorder
	// Metrics measures moves and failovers; nil: nothing is measured.
	Metrics *metrics.Leader
}

// Controller handles all EgressServices of the cluster.
type Controller struct {
	deps   Deps
	reader *snapshot.Reader
	nodes  corelisters.NodeLister
	// decoded caches the decoded nodes.
	decoded kube.Nodes

	placement, services, labels *queue.Controller

	// readiness remembers the nodes that Kubernetes has lost contact with; only accessed by placement.
	readiness place.Readiness
	// byHost reports whether an EgressService selects nodes by the labels that this controller writes.
	byHost atomic.Bool
	// assumed is by node; only accessed by the key of the labels queue.
	assumed map[string]assumed
	// unseen are the nodes with label writes that the lister may not show yet.
	unseen kube.Unseen
	// patched are the patches of statuses.
	patched kube.Patches[*v1.EgressService]

	mu                sync.Mutex
	decisions         map[string]egressservice.Decision // of the last placement
	lastEvents        map[string]lastEvent              // the last state reported by Events
	unprogrammedSince map[string]time.Time              // by programmed EgressService, since when it waits for its host
	acks              map[string]v1.ProgrammedStatus    // the last acknowledgements of hosts
	// ackTimeouts tracks the nodes that do not acknowledge their rules.
	ackTimeouts *health.AckTimeouts
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	reader, err := snapshot.NewReader(deps.Informers, deps.ClusterSubnets, deps.Mode, deps.Given)
	if err != nil {
		return nil, err
	}
	decoded, err := kube.NewNodes(deps.Nodes.Informer())
	if err != nil {
		return nil, err
	}
	c := &Controller{
		deps:              deps,
		reader:            reader,
		nodes:             deps.Nodes.Lister(),
		decoded:           decoded,
		assumed:           map[string]assumed{},
		decisions:         map[string]egressservice.Decision{},
		lastEvents:        map[string]lastEvent{},
		unprogrammedSince: map[string]time.Time{},
		acks:              map[string]v1.ProgrammedStatus{},
		ackTimeouts:       health.NewAckTimeouts(deps.Acknowledge),
	}
	for _, key := range nb.Objects(deps.Writer, egressservice.Feature) { // of the previous leader
		deps.Pods.Set(key, egressservice.SteeringOf(deps.Writer.Rows(egressservice.Owner(key))).Addrs())
	}
	c.placement = queue.New("egressservice-placement", c.place)
	c.services = queue.New(egressservice.Feature, c.reconcile)
	c.labels = queue.New("egressservice-labels", c.label)
	return c, errors.Join(c.watchPlacement(), c.watchServices(), c.watchLabels())
}

func (c *Controller) watchServices() error {
	c.services.Seed(c.reader.Keys)
	nb.Bind(c.services, c.deps.Writer, egressservice.Feature)
	return errors.Join(
		c.reader.Watch(c.services, func(_ snapshot.Kind, key string) []string { return []string{key} }),
		c.services.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
			if o, ok := old.(*corev1.Node); ok && new == nil {
				return c.statusOf(o.Name)
			}
			return nil
		}),
	)
}

// statusOf returns the EgressServices that every node serves and whose status has the
// status entry of a node.
func (c *Controller) statusOf(node string) []string {
	objs, _ := c.reader.Objects() // reads memory and cannot fail
	var keys []string
	for _, eg := range objs {
		if word := c.known(eg).Programmed; word != nil && word.Host == node {
			keys = append(keys, eg.Namespace+"/"+eg.Name)
		}
	}
	return keys
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if !waits.Until(ctx, c.deps.Health.Probed(), waits.Wait{Part: "egressservice-placement", For: "every node to answer a probe or to be silent"}) {
			return nil
		}
		return c.placement.Run(ctx, 1)
	})
	group.Go(func() error {
		// Before the first placement the hosts are unknown.
		if !waits.Until(ctx, c.placement.Synced(), waits.Wait{Part: egressservice.Feature, For: "the first placement", Reason: waits.ReasonStart}) {
			return nil
		}
		return c.services.Run(ctx, workers)
	})
	group.Go(func() error {
		if !waits.Until(ctx, c.services.Attempted(), waits.Wait{Part: "egressservice-labels", For: "every EgressService to be tried once"}) {
			return nil
		}
		return c.labels.Run(ctx, 1)
	})
	group.Go(func() error {
		if waits.Until(ctx, c.services.Synced(), waits.Wait{Part: "noreroute", For: "every EgressService to succeed once, before leftovers are deleted"}) {
			c.deps.Pods.MarkSynced()
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run EgressServices: %w", err)
	}
	return nil
}

// Look plans the EgressServices that select a pod, "namespace/name", again: it was
// assigned addresses.
func (c *Controller) Look(pod string) { c.services.Enqueue(c.reader.Selecting(pod)...) }

// Attempted is closed when every EgressService that existed at the start, and
// every one that only has rows left, has been attempted once.
func (c *Controller) Attempted() <-chan struct{} { return c.services.Attempted() }

// Synced is closed when every EgressService that existed at the start, and every one
// that only has rows left, has been reconciled successfully.
func (c *Controller) Synced() <-chan struct{} { return c.services.Synced() }

// decision returns the last decision of placement; false before placement has seen key.
func (c *Controller) decision(key string) (egressservice.Decision, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.decisions[key]
	return d, ok
}
