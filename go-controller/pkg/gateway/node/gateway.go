package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Gateway brings one node up and keeps it there.
type Gateway struct {
	Config
	Deps

	controller *queue.Controller
	unseen     kube.Unseen // the node, where its annotations were written
	ready      chan struct{}
	memory     gateway.Memory // what the state file has; of the pass that is under way
	unrecorded error          // why the state file has less

	mu       sync.Mutex // guards what follows
	waiting  string     // what the last pass could not go on without
	since    time.Time  // it was missing, or the first pass began
	reminded time.Time
	passed   bool // once at least
	isReady  bool // or was
}

// New returns a Gateway; it does nothing before Run or Reconcile. The node
// informer is started by the caller afterwards.
func New(cfg Config, deps Deps) *Gateway {
	deps.Nodes.Informer() // a factory starts only informers that were asked for
	deps.Written.Informer()
	g := &Gateway{Config: cfg, Deps: deps, ready: make(chan struct{})}
	g.controller = queue.New("gateway", g.Reconcile)
	g.controller.Seed(func() []string { return []string{cfg.Node} })
	return g
}

// Ready is closed once the node can serve pods: its management port is up and
// claimed by ovn-controller, and the external bridge has its flows.
func (g *Gateway) Ready() <-chan struct{} { return g.ready }

// Waiting says what the node's network lacks; "" when that is nothing.
// It is a health check: cheap, and no I/O.
func (g *Gateway) Waiting() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.passed {
		return "the first pass to end"
	}
	return g.waiting
}

// waits returns what is missing for the reports about the process.
func (g *Gateway) waits() []waits.Wait {
	what := g.Waiting()
	if what == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return []waits.Wait{{Part: "gateway", Object: g.Node, For: what, Reason: waits.ReasonNetwork, Since: g.since}}
}

// Run watches and reconciles until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	for _, nodes := range []coreinformers.NodeInformer{g.Nodes, g.Written} {
		if err := g.controller.Watch(nodes.Informer(), g.nodeKeys); err != nil {
			return err
		}
	}
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	if err := link.Watch(ctx, poke); err != nil {
		return err
	}
	g.OVS.OnReconnect(poke)
	// What else the flows wait for is no event here.
	for _, p := range g.physicalNetworks() {
		p.flows.OnComplete(func() {
			if g.Waiting() != "" {
				poke()
			}
		})
	}
	g.OVS.OnInterface(func(name string) {
		if name == topology.ManagementPort || name == topology.IntegrationBridge || g.isOurs(name) {
			poke()
		}
	})
	go g.collect(ctx, wake)
	g.mu.Lock()
	g.since = time.Now()
	g.mu.Unlock()
	defer waits.Report(g.waits)()
	return g.controller.Run(ctx, 1)
}

// isOurs reports whether an OVS interface is one of an external bridge's.
func (g *Gateway) isOurs(name string) bool {
	return slices.ContainsFunc(g.physicalNetworks(), func(p physicalNetwork) bool { return p.flows.Concerns(name) })
}

// collect turns a storm of events into one pass. While something is missing
// there is a pass now and then also without events, which reminds of why.
func (g *Gateway) collect(ctx context.Context, wake <-chan struct{}) {
	remind := time.NewTicker(remindInterval)
	defer remind.Stop()
	for {
		select {
		case <-wake:
		case <-remind.C:
			if g.Waiting() == "" {
				continue
			}
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(settleTime):
		case <-ctx.Done():
			return
		}
		g.controller.Enqueue(g.Node)
	}
}

// nodeKeys lets through what changes the plan: the node's status is written
// every few seconds.
func (g *Gateway) nodeKeys(old, new any) []string {
	a, _ := old.(*corev1.Node)
	b, _ := new.(*corev1.Node)
	switch {
	case b == nil || b.Name != g.Node:
		return nil
	case g.unseen.Follows(old, new):
	case a != nil && sameForUs(a, b):
		return nil
	}
	return []string{g.Node}
}

func sameForUs(a, b *corev1.Node) bool {
	for _, name := range []string{
		kube.AnnotationNodeSubnets, kube.AnnotationChassisID, kube.AnnotationL3Gateway,
		kube.AnnotationManagementMAC, kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses, kube.AnnotationGatewayMTU,
	} {
		if a.Annotations[name] != b.Annotations[name] {
			return false
		}
	}
	return a.UID == b.UID && fmt.Sprint(internalAddrs(a)) == fmt.Sprint(internalAddrs(b))
}

// Reconcile makes one pass. It returns nil also where the node has to wait for
// somebody else, who will cause the next pass.
func (g *Gateway) Reconcile(ctx context.Context, _ string) error {
	g.memory, g.unrecorded = recall(g.StateFile, g.Node), nil
	missing, err := g.pass(ctx)
	g.report(missing)
	return errors.Join(err, g.unrecorded)
}

// pass goes through all steps as far as possible. It returns what is missing,
// "" where the node is ready.
func (g *Gateway) pass(ctx context.Context) (missing string, err error) {
	n, err := g.Written.Lister().Get(g.Node)
	if apierrors.IsNotFound(err) { // the kubelet has not registered yet; its event will come
		return "the Node object", nil
	}
	if err != nil {
		return "the Node object", fmt.Errorf("read node %s: %w", g.Node, err)
	}
	node := g.inForce()
	system, err := g.ensureSystem(ctx)
	if err != nil {
		return "Open vSwitch", err
	}
	datapath := system[idDatapathType]
	if err := g.ensureIntegrationBridge(ctx, datapath); err != nil {
		return "bridge " + topology.IntegrationBridge, err
	}
	if err := g.keepAdvertisements(ctx); err != nil {
		return "the external bridge", err
	}
	if err := g.Settings.Apply(ctx, gateway.Contributor, g.hostSettings()); err != nil {
		return "kernel parameters", err
	}
	a, err := g.ensureAttachments(ctx, datapath, internalAddrs(n))
	if err != nil {
		return "the external bridge", err
	}
	// The API server may be reached through what comes next, so that goes on.
	annotated := g.annotate(ctx, n, node, system, a)
	missing, err = g.overlay(ctx, node, system, a)
	switch {
	case annotated != nil:
		return "the node's annotations", errors.Join(annotated, a.missing, err)
	case a.missing != nil:
		return "the bridge for external gateways", errors.Join(a.missing, err)
	}
	return missing, err
}

// inForce returns the node as far as it is known. The master's annotations are the
// master's to mend; ours are overwritten.
func (g *Gateway) inForce() topology.Node {
	n, err := g.Nodes.Lister().Get(g.Node)
	if err != nil { // not there yet: a lister has no other error
		return topology.Node{Name: g.Node}
	}
	node, _ := kube.Node(n) // what is not valid is not in force
	return node
}

// overlay is the part of a pass that connects the host with the pods.
func (g *Gateway) overlay(ctx context.Context, node topology.Node, system map[string]string, a attachments) (string, error) {
	if len(node.Subnets) == 0 {
		return "the master to assign pod subnets", g.ensureMapping(ctx, system, a)
	}
	if err := g.ensureManagement(ctx, node); err != nil {
		return "the management port", err
	}
	if err := g.ensureFlows(ctx, node, a); err != nil {
		return "the flows of the external bridge", err
	}
	if err := g.ensureMapping(ctx, system, a); err != nil {
		return "the bridge mapping", err
	}
	return g.lacking(ctx, a)
}

// lacking says what ovn-controller has still to do.
func (g *Gateway) lacking(ctx context.Context, a attachments) (string, error) {
	ports, err := g.OVS.Ports(ctx, topology.IntegrationBridge)
	if err != nil {
		return "the management port", err
	}
	for _, b := range a.all() {
		peer := topology.PatchPeer(b.bridge, g.Node)
		if !slices.ContainsFunc(ports, func(p ovs.Port) bool { return p.Name == peer }) {
			return "ovn-controller to connect the external bridge", nil
		}
	}
	installed := slices.ContainsFunc(ports, func(p ovs.Port) bool {
		return p.Name == topology.ManagementPort && p.ExternalIDs[ovs.Installed] == "true"
	})
	if !installed {
		return "ovn-controller to install the flows of " + topology.ManagementPort, nil
	}
	for _, b := range a.all() {
		if missing := b.flows.Missing(); missing != "" {
			return missing, nil
		}
	}
	return "", nil
}

// report remembers what is missing and closes Ready once nothing is: what is missing
// later on does not take back that pods are served, but is told just so. The log
// says so each time something else is missing and every ten seconds.
func (g *Gateway) report(missing string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if missing != g.waiting || !g.passed {
		g.since, g.reminded = time.Now(), time.Time{}
	}
	was := g.waiting
	g.waiting, g.passed = missing, true
	switch {
	case missing != "":
		if time.Since(g.reminded) >= remindInterval {
			g.reminded = time.Now()
			klog.InfoS("Network of the node is not complete", "node", g.Node, "waitingFor", missing)
		}
	case !g.isReady:
		g.isReady = true
		klog.InfoS("Network of the node is ready", "node", g.Node)
		close(g.ready)
	case was != "":
		klog.InfoS("Network of the node is complete again", "node", g.Node)
	}
}
