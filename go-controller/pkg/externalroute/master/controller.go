package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	routeinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/informers/externalversions/adminpolicybasedroute/v1"
	routelisters "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/listers/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// all is the key of the queue that has only one.
	all = "all"
	// reportWorkers is the number of statuses or annotations patched at the same time.
	reportWorkers = 4
	// countDelay batches changes of the number of pods into one patch.
	countDelay = time.Second
	// reroutedTimeout limits the wait for other features after the start. New pods wait for their gateways as well, for
	// longer than this, so that they have their routes even if one pod of another feature fails all the time.
	reroutedTimeout = 5 * time.Second
)

// announced is the index of the pods that claim to be gateways.
const announced = "externalroute-announced"

// Writer writes rows and reports rows changed by others.
type Writer interface {
	nb.Database
	// RestartBFD restarts the BFD session of a logical port with a destination unless it is up.
	RestartBFD(ctx context.Context, port, destination string) error
}

// Deps are the dependencies of the controller. The caller starts the informers
// after New.
type Deps struct {
	Kube       kubernetes.Interface
	Routes     versioned.Interface
	Policies   routeinformers.AdminPolicyBasedExternalRouteInformer
	Namespaces coreinformers.NamespaceInformer
	Pods       coreinformers.PodInformer // of all nodes
	Nodes      coreinformers.NodeInformer
	Writer     Writer
	Barrier    Barrier
	// Health reports which nodes are reachable; nil: nodes are not probed.
	Health place.Reachability
	// Given returns the addresses assigned to the pod "namespace/name" with a
	// UID. LookAtPod must be called when they change.
	Given    func(pod string, uid types.UID) []netip.Addr
	Config   externalroute.Config
	Recorder record.EventRecorder
	// Rerouted are the pods that EgressIPs and EgressServices steer; nil for
	// features that are not enabled.
	Rerouted []*noreroute.PodSet
	// Routed receives, by node, the addresses of the pods that have routes to gateways, or are about to have them.
	Routed *noreroute.PodSet
}

// Controller handles the external gateways of the cluster.
type Controller struct {
	deps       Deps
	policies   routelisters.AdminPolicyBasedExternalRouteLister
	namespaces corelisters.NamespaceLister
	nodeLister corelisters.NodeLister
	decoded    kube.Nodes
	pods       cache.Indexer

	decide, nodes, statuses, annotations *queue.Controller

	// unheard are the nodes that Kubernetes has lost contact with; only accessed by decide.
	unheard place.Readiness

	mu sync.Mutex
	// plan is the last decision; byNamespace are the policies that select a namespace.
	plan        externalroute.Plan
	byNamespace map[string][]string
	// pending are the nodes in the queue; the first one processes all of them.
	// planning are the nodes whose rows are being planned.
	pending, planning map[string]bool
	// plannedWith are, by node, the namespaces with gateways whose pods were part of the plan of its rows.
	plannedWith map[string]map[string]bool
	// dirty are the nodes that must be written before anything is reported,
	// with an increasing number.
	dirty map[string]uint64
	// deciding: it is not known yet which nodes a new plan makes dirty.
	deciding bool
	turn     uint64
	// failed are the nodes whose last write failed.
	failed map[string]bool
	// Reports are sent when no node is dirty.
	reportPolicies, reportNamespaces map[string]bool
	patched                          kube.Patches[*v1.AdminPolicyBasedExternalRoute]
	// unseen are the namespaces with annotation writes that the lister may not show yet.
	unseen kube.Unseen

	steered  *steered
	sessions *sessions
	// down are the BFD sessions that are down, by node and destination; only accessed by nodes.
	down  map[string]map[netip.Addr]*downSession
	waits sync.WaitGroup // of the goroutines that wait for chassis
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	decoded, err := kube.NewNodes(deps.Nodes.Informer())
	if err != nil {
		return nil, err
	}
	c := &Controller{
		deps:             deps,
		policies:         deps.Policies.Lister(),
		namespaces:       deps.Namespaces.Lister(),
		nodeLister:       deps.Nodes.Lister(),
		decoded:          decoded,
		pods:             deps.Pods.Informer().GetIndexer(),
		pending:          map[string]bool{},
		down:             map[string]map[netip.Addr]*downSession{},
		plannedWith:      map[string]map[string]bool{},
		dirty:            map[string]uint64{},
		failed:           map[string]bool{},
		reportPolicies:   map[string]bool{},
		reportNamespaces: map[string]bool{},
		sessions:         newSessions(),
		steered:          newSteered(deps.Rerouted),
	}
	err = errors.Join(kube.IndexPodNodes(deps.Pods.Informer()), kube.AddIndex(deps.Pods.Informer(), announced, func(p *corev1.Pod) []string {
		if len(kube.RoutingNamespaces(p)) == 0 {
			return nil
		}
		return []string{all}
	}))
	if err != nil {
		return nil, err
	}
	for _, node := range nb.Objects(deps.Writer, externalroute.Feature) { // of the previous leader
		deps.Routed.Set(node, externalroute.Routed(deps.Writer.Rows(externalroute.Owner(node))))
	}
	c.decide = queue.New("externalroute-decide", c.reconcileAll)
	c.nodes = queue.New(externalroute.Feature, c.reconcileNodes)
	c.statuses = queue.New("externalroute-status", c.reconcileStatus)
	c.annotations = queue.New("externalroute-namespace", c.reconcileNamespace)
	return c, errors.Join(c.watchDecide(), c.watchNodes(), c.watchReports())
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	defer c.waits.Wait()
	group.Go(func() error { return c.decide.Run(ctx, 1) })
	group.Go(func() error {
		// Rows planned without a decision would be empty.
		if !waits.Until(ctx, c.decide.Synced(), waits.Wait{Part: externalroute.Feature, For: "the first decision about all policies", Reason: waits.ReasonStart}) || !c.awaitRerouted(ctx) {
			return nil
		}
		return c.nodes.Run(ctx, 1) // one worker, which processes all pending nodes
	})
	group.Go(func() error {
		if !waits.Until(ctx, c.nodes.Attempted(), waits.Wait{Part: "externalroute-status", For: "the rows of every node to be tried once"}) {
			return nil
		}
		return c.statuses.Run(ctx, reportWorkers)
	})
	group.Go(func() error {
		if !waits.Until(ctx, c.nodes.Attempted(), waits.Wait{Part: "externalroute-namespace", For: "the rows of every node to be tried once"}) {
			return nil
		}
		return c.annotations.Run(ctx, reportWorkers)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run external gateways: %w", err)
	}
	return nil
}

// Look plans the rows of a node again.
func (c *Controller) Look(node string) { c.nodes.Enqueue(c.pend(node)...) }

// LookAtPod plans everything again that depends on the addresses of a pod, "namespace/name".
// The node is "" if the pod was deleted, since its own event covers that.
func (c *Controller) LookAtPod(pod, node string) {
	namespace, _, _ := strings.Cut(pod, "/")
	c.countLater(namespace)
	if node != "" && c.concerns(namespace) {
		c.Look(node)
	}
}

// Attempted is closed when everything that existed at the start has been attempted once.
func (c *Controller) Attempted() <-chan struct{} { return c.nodes.Attempted() }

// awaitRerouted waits until the other features have named their pods, so that no
// policy is removed after a restart and then written again. A feature that
// never does so must not block the gateways forever.
func (c *Controller) awaitRerouted(ctx context.Context) bool {
	timeout := time.NewTimer(reroutedTimeout)
	defer waits.Begin(waits.Wait{Part: externalroute.Feature, For: "the other egress features to name their pods", Limit: reroutedTimeout}).End()
	defer timeout.Stop()
	for _, set := range c.steered.sets {
		changed := make(chan struct{}, 1)
		set.Subscribe(func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		for {
			if set.Complete() {
				break
			}
			select {
			case <-changed:
			case <-timeout.C:
				klog.InfoS("Other egress features have not named their pods yet, external gateways continue without them")
				return true
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}
