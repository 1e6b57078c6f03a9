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

// Gateway connects one node to the cluster network and keeps it connected.
type Gateway struct {
	Config
	Deps

	controller *queue.Controller
	unseen     kube.Unseen // records writes of the node's annotations
	ready      chan struct{}
	// contributed is closed once everything that the drivers keep for the gateway was contributed.
	contributed chan struct{}
	contribute  sync.Once
	memory      gateway.Memory // content of the state file during the current pass
	unrecorded  error          // why the state file is incomplete
	// failing is the time of the first failed pass since the last one that did not fail.
	failing     time.Time
	reportAfter time.Duration // how long passes fail before the node reports it

	mu       sync.Mutex // guards the following fields
	waiting  string     // what the last pass is waiting for
	since    time.Time  // since when it is missing; or the start of the first pass
	reminded time.Time
	passed   bool // at least one pass has finished
	isReady  bool // the node is ready, or was before
}

// New returns a Gateway; it does nothing before Run or Reconcile. The caller starts the node
// informers afterwards.
func New(cfg Config, deps Deps) *Gateway {
	deps.Nodes.Informer() // a factory only starts informers that were requested
	deps.Written.Informer()
	g := &Gateway{Config: cfg, Deps: deps, ready: make(chan struct{}), contributed: make(chan struct{}), reportAfter: waits.ReportAfter}
	g.controller = queue.New("gateway", g.Reconcile)
	g.controller.Seed(func() []string { return []string{cfg.Node} })
	return g
}

// Ready is closed once the node can serve pods: its management port is up and
// claimed by ovn-controller, and the external bridge has its flows.
func (g *Gateway) Ready() <-chan struct{} { return g.ready }

// Contributed is closed once the gateway has contributed everything that the drivers keep for it. Before that, what
// an earlier run has left may be its own: without it, pods would lose their network until it is contributed again.
func (g *Gateway) Contributed() <-chan struct{} { return g.contributed }

// Waiting returns what the node's network is waiting for, or "" if nothing is missing.
// It can be used as a health check: it is cheap and does no I/O.
func (g *Gateway) Waiting() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.passed {
		return "the first pass to end"
	}
	return g.waiting
}

// waits returns what is missing, for the reports about the process.
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
	g.OVS.OnSystem(poke)
	// The other conditions of the flows cause no events here.
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

// isOurs reports whether an OVS interface belongs to an external bridge.
func (g *Gateway) isOurs(name string) bool {
	return slices.ContainsFunc(g.physicalNetworks(), func(p physicalNetwork) bool { return p.flows.Concerns(name) })
}

// collect combines bursts of events into one pass. While something is missing,
// it also triggers regular passes without events, which log the reason.
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

// nodeKeys filters events for changes that affect the plan: the node's status is written
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
		kube.AnnotationNetworkFailure,
	} {
		if a.Annotations[name] != b.Annotations[name] {
			return false
		}
	}
	return a.UID == b.UID && fmt.Sprint(internalAddrs(a)) == fmt.Sprint(internalAddrs(b))
}

// Reconcile makes one pass. It also returns nil if the node has to wait for another
// component, whose change will trigger the next pass.
func (g *Gateway) Reconcile(ctx context.Context, _ string) error {
	g.memory, g.unrecorded = recall(g.StateFile, g.Node), nil
	missing, err := g.pass(ctx)
	g.report(missing)
	return errors.Join(err, g.unrecorded, g.publishFailure(ctx, missing, err))
}

// pass performs all steps as far as possible. It returns what is missing,
// or "" if the node is ready.
func (g *Gateway) pass(ctx context.Context) (missing string, err error) {
	n, err := g.Written.Lister().Get(g.Node)
	if apierrors.IsNotFound(err) { // the kubelet has not registered yet; its event will trigger a pass
		return "the Node object", nil
	}
	if err != nil {
		return "the Node object", fmt.Errorf("read node %s: %w", g.Node, err)
	}
	node := g.currentNode()
	if ctx, err = g.OVS.Pin(ctx); err != nil {
		return "Open vSwitch", err
	}
	system, err := g.ensureSystem(ctx)
	if err != nil {
		return "Open vSwitch", err
	}
	datapath := system[ovs.DatapathTypeID]
	if err := g.ensureIntegrationBridge(ctx, datapath); err != nil {
		return "bridge " + topology.IntegrationBridge, err
	}
	if err := g.keepAdvertisements(ctx, system); err != nil {
		return "the external bridge", err
	}
	if err := g.Settings.Apply(ctx, gateway.Contributor, g.hostSettings()); err != nil {
		return "kernel parameters", err
	}
	a, err := g.ensureAttachments(ctx, datapath, internalAddrs(n))
	if err != nil {
		return "the external bridge", err
	}
	// The API server may only be reachable through the following steps, so the pass continues.
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

// currentNode returns the node as far as it is known. The master corrects its own
// annotations; ours are overwritten.
func (g *Gateway) currentNode() topology.Node {
	n, err := g.Nodes.Lister().Get(g.Node)
	if err != nil { // not found: a lister returns no other error
		return topology.Node{Name: g.Node}
	}
	node, _ := kube.Node(n) // invalid annotations are not in force
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
	g.contribute.Do(func() { close(g.contributed) })
	if err := g.ensureMapping(ctx, system, a); err != nil {
		return "the bridge mapping", err
	}
	return g.lacking(ctx, a)
}

// lacking returns what ovn-controller still has to do.
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

// report stores what is missing and closes Ready once nothing is. If something is missing
// later, Ready stays closed, since pods are being served, and Waiting reports it. The log
// reports each change, and every ten seconds what is missing.
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
