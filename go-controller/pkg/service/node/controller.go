package node

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// contributor is the name of the contribution of all Services.
	contributor = service.Feature
	// sctpContributor is that of their rules for SCTP, which a kernel without xt_sctp refuses.
	sctpContributor = service.Feature + "/sctp"
)

// Deps are the dependencies of the controller. The caller starts the informers after New.
type Deps struct {
	// Node is the name of this node.
	Node           string
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	// Nodes contains at least this node.
	Nodes coreinformers.NodeInformer
	// Namespaces provide the external gateways that pods are routed to; nil: none.
	Namespaces coreinformers.NamespaceInformer
	// Addresses provides the addresses of the cluster itself; nil: those from Nodes and
	// EndpointSlices.
	Addresses *reservedsnapshot.Addresses
	// Recorder writes Events about Services.
	Recorder record.EventRecorder
	// Chains owns the chains that service.Chains declares.
	Chains host.ChainWriter
	// Routes owns the routes of the host.
	Routes host.Writer[host.Route, host.Hop]
	// Flows owns the flows of the external bridge, with the symbols of package
	// bridge.
	Flows host.FlowWriter
	// FlushUDP deletes the UDP conntrack entries for which the function returns true that now returns
	// when flows have taken effect; see service.Bindings. It returns their number.
	FlushUDP func(ctx context.Context, now func() (stale func(service.Entry) bool)) (int, error)
	// OnApplied registers a function that is called whenever the master's changes to the
	// northbound database have taken effect on this node.
	OnApplied func(func())
	Config    service.Config
	Marks     bridge.Marks
}

// Controller serves Services on one node.
type Controller struct {
	Deps
	reader *snapshot.Reader
	nodes  corelisters.NodeLister
	health *healthServer
	// healthReported is what the last Events reported about health ports; only the key
	// writeHealth uses it.
	healthReported map[string]bool
	rendered       rendered // only the key writeFlows uses it

	plans, writes *queue.Controller
	// unconfirmed are changes of UDP Services that OVN may not have followed yet.
	unconfirmed queue.Unconfirmed

	mu     sync.Mutex // guards the fields below
	states map[string]service.NodeState
	// known is this node when all that plans need was last known of it.
	known topology.Node
}

// The keys of the writes.
const (
	writeChains = "chains"
	writeRoutes = "routes"
	writeFlows  = "flows"
	writeHealth = "health ports"
	writeUDP    = "UDP connections"
)

// latePace is the most that the deletion of outdated UDP connections is delayed after a report of the chassis, which is by how late
// it comes after the first one that may include the change: few chassis take long.
const latePace = 30 * time.Second

// writers allows every kind to be written while others wait.
const writers = 5

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	reader, err := snapshot.NewReader(snapshot.Informers{
		Services: deps.Services, EndpointSlices: deps.EndpointSlices, Nodes: deps.Nodes, Namespaces: deps.Namespaces, Addresses: deps.Addresses,
	}, deps.Config)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		Deps:   deps,
		reader: reader,
		nodes:  deps.Nodes.Lister(),
		health: newHealthServer(),
		states: map[string]service.NodeState{},
	}
	c.plans = queue.New("service-node", c.plan)
	c.plans.Seed(reader.Keys)
	c.writes = queue.New("service-node-write", c.write)
	c.writes.Seed(func() []string { return []string{writeChains, writeRoutes, writeFlows, writeHealth, writeUDP} })
	c.unconfirmed.Changed() // OVN may be behind at the start
	deps.OnApplied(func() {
		if late, matters := c.unconfirmed.Reported(); matters {
			c.writes.EnqueueAfter(min(late, latePace), writeUDP) // each time, all connections of the node are read
		}
	})
	if err := reader.Watch(c.plans); err != nil {
		return nil, err
	}
	return c, c.plans.Watch(deps.Nodes.Informer(), c.nodeKeys)
}

// nodeKeys returns the keys of all Services if this node has changed in a way that plans
// depend on. Flows also depend on its VLAN, which is not part of plans.
func (c *Controller) nodeKeys(old, new any) []string {
	a, _ := old.(*corev1.Node)
	b, _ := new.(*corev1.Node)
	if b == nil || b.Name != c.Node {
		return nil
	}
	if a != nil {
		same := true
		for _, name := range []string{kube.AnnotationNodeSubnets, kube.AnnotationL3Gateway, kube.AnnotationHostAddresses} {
			same = same && a.Annotations[name] == b.Annotations[name]
		}
		if same {
			return nil
		}
	}
	c.writes.Enqueue(writeFlows)
	return c.reader.Keys()
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	defer c.health.close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.plans.Run(ctx, 1) })
	group.Go(func() error {
		if !waits.Until(ctx, c.plans.Attempted(), waits.Wait{Part: "service-node-write", For: "every Service to be planned once"}) {
			return nil
		}
		return c.writes.Run(ctx, writers)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("run Services of the node: %w", err)
	}
	return nil
}

// Attempted is closed when planning and writing of all Services that existed at startup has
// been attempted.
func (c *Controller) Attempted() <-chan struct{} { return c.writes.Attempted() }

// Synced returns channels that are closed when the drivers have received the configuration
// of all Services that existed at startup: from then on chains, routes and flows may be
// swept. Health ports do not matter for this.
func (c *Controller) Synced() []<-chan struct{} {
	return []<-chan struct{}{c.plans.Synced(), c.writes.Synced()}
}

// plan plans one Service and enqueues writes of what has changed.
func (c *Controller) plan(_ context.Context, key string) error {
	next, err := c.stateOf(key)
	if err != nil {
		return err
	}
	c.mu.Lock()
	before := c.states[key]
	if next == nil {
		delete(c.states, key)
		next = &service.NodeState{}
	} else {
		c.states[key] = *next
	}
	c.mu.Unlock()
	if !sameRules(before.Rules, next.Rules) {
		c.writes.Enqueue(writeChains)
	}
	if !maps.Equal(before.Routes, next.Routes) {
		c.writes.Enqueue(writeRoutes)
	}
	if !reflect.DeepEqual(before.Ingress, next.Ingress) {
		c.writes.Enqueue(writeFlows)
	}
	if !reflect.DeepEqual(before.Health, next.Health) {
		c.writes.Enqueue(writeHealth)
	}
	if before.UDP.Removed(next.UDP) {
		c.unconfirmed.Changed() // until OVN has followed, it recreates stale entries
		c.writes.Enqueue(writeUDP)
	}
	return nil
}

func sameRules(a, b host.Rules) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// stateOf plans a Service; nil if there is nothing to serve.
func (c *Controller) stateOf(key string) (*service.NodeState, error) {
	s, _, ok, err := c.reader.Decode(key, nil)
	if err != nil || !ok {
		return nil, err
	}
	n, err := c.node()
	if err != nil {
		return nil, err
	}
	state := service.NodeStateOf(s, c.Config, n)
	return &state, nil
}

// node returns this node. Its object lacks annotations while it is deleted, and for some time after it was created
// again, but nothing has changed on the host: until then the node is what it was last.
func (c *Controller) node() (topology.Node, error) {
	n, err := c.nodes.Get(c.Node)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		node, invalid := kube.Node(n)
		if invalid != nil {
			// Invalid annotations are ignored; their owners will repair them.
			klog.V(4).InfoS("Node has an annotation that cannot be read", "node", c.Node, "reason", invalid.Error())
		}
		if service.Known(node) || !service.Known(c.known) {
			c.known = node
		}
	}
	if c.known.Name == "" {
		return topology.Node{}, fmt.Errorf("get node %s: %w", c.Node, err)
	}
	return c.known, nil
}
