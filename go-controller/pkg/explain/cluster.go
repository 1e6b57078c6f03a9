package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressipmaster "github.com/ovnkube/ovnkube/go-controller/pkg/egressip/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	servicesnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	routemaster "github.com/ovnkube/ovnkube/go-controller/pkg/externalroute/master"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	serviceinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Cluster is a Snapshot with the decisions of the planners.
type Cluster struct {
	snap       Snapshot
	nodes      map[string]place.Node
	ordered    []place.Node // sorted by name
	pods       map[string]*corev1.Pod
	namespaces map[string]*corev1.Namespace
	egressIPs  map[string]*egressipv1.EgressIP

	selection *egressip.Selection
	members   *egressip.Members
	placed    map[string]egressip.Decision
	decoded   []egressip.EgressIP
	network   egressip.Network

	services map[string]egressservice.Service
	hosted   map[string]egressservice.Decision
	objects  map[string]*egressservicev1.EgressService

	index index
	// labels are the labels of hosts that are not where they should be.
	labels []labelProblem

	routeConfig externalroute.Config
	routes      externalroute.Plan
	gateways    externalroute.Snapshot
	// announced are the pods that claim by annotation to be gateways, whether they can be now or not.
	announced []*corev1.Pod

	addresses *reservedsnapshot.Addresses
	nodeLocal []netip.Prefix

	// states are the rows of the EgressIPs' pods when everything is settled, by pod;
	// nil if the statuses are used instead.
	states map[string]egressip.State

	// once guards the computation of objectsInShort on first use.
	once           sync.Once
	objectsInShort []Object
}

// New runs the planners over a snapshot.
func New(snap Snapshot) (*Cluster, error) {
	if len(snap.Settings.Pods) == 0 {
		for _, n := range kube.KnownNodes(snap.Nodes) {
			snap.Settings.Pods = append(snap.Settings.Pods, n.Subnets...)
		}
	}
	c := &Cluster{
		snap: snap, nodes: map[string]place.Node{}, pods: map[string]*corev1.Pod{}, namespaces: map[string]*corev1.Namespace{},
		egressIPs: map[string]*egressipv1.EgressIP{}, selection: egressip.NewSelection(), members: egressip.NewMembers(),
		services: map[string]egressservice.Service{}, objects: map[string]*egressservicev1.EgressService{},
	}
	var nodes []place.Node
	for _, n := range kube.KnownNodes(snap.Nodes) {
		nodes = append(nodes, place.Node{Node: n, Reach: c.reach(n.Name)})
	}
	if c.probed() {
		nodes, _ = place.ReadyInOutage(snap.Taken, nodes)
	}
	for _, n := range nodes {
		c.nodes[n.Name] = n
	}
	for _, p := range snap.Pods {
		c.pods[kube.PodKey(p)] = p
	}
	for _, ns := range snap.Namespaces {
		c.namespaces[ns.Name] = ns
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		c.ordered = append(c.ordered, c.nodes[name])
	}
	c.nodeLocal = noreroute.NodeLocal(snap.Settings.NodeLocal, slices.Concat(snap.Settings.Pods, snap.Settings.Services,
		snap.Settings.Join, snap.Settings.Masquerade))
	c.placeEgressIPs()
	if err := c.hostEgressServices(); err != nil {
		return nil, err
	}
	c.routeGateways()
	c.index = c.newIndex()
	c.labels = c.labelProblems()
	return c, nil
}

// candidates returns the nodes, sorted by name.
func (c *Cluster) candidates() []place.Node { return c.ordered }

func (c *Cluster) placeEgressIPs() {
	if !c.snap.Settings.EgressIP {
		c.snap.EgressIPs = nil
	}
	for _, e := range c.snap.EgressIPs {
		c.egressIPs[e.Name] = e
		c.selection.Set(e)
		c.decoded = append(c.decoded, egressip.Decode(e))
	}
	for _, p := range c.snap.Pods {
		if kube.NeedsNetwork(p) {
			c.members.Set(kube.PodKey(p), c.selecting(p), podAddrs(p))
		}
	}
	s := c.snap.Settings
	c.network = egressip.Network{Cluster: s.Pods, Service: s.Services, Join: s.Join, Masquerade: s.Masquerade,
		Services: egressipmaster.ServiceAddrs(c.snap.Services),
		Hosts: egressipmaster.Hosts(c.snap.Nodes, func(n *corev1.Node) topology.Node { return c.nodes[n.Name].Node },
			reservedsnapshot.APIServersIn(append(c.configuredAPIServers(), c.snap.EndpointSlices...)))}
	c.placed = egressip.Decide(c.candidates(), c.decoded, c.network)
}

// ranges returns the ranges of the cluster.
func (c *Cluster) ranges() reserved.Ranges {
	s := c.snap.Settings
	return reserved.Ranges{Pods: s.Pods, Services: s.Services, Join: s.Join, Masquerade: s.Masquerade}
}

// configuredAPIServers returns the API servers of the settings.
func (c *Cluster) configuredAPIServers() []*discoveryv1.EndpointSlice {
	return []*discoveryv1.EndpointSlice{reservedsnapshot.APIServerSlice(c.snap.Settings.APIServers, c.ranges())}
}

// selecting returns the EgressIPs that select a pod, the one that has it first.
func (c *Cluster) selecting(p *corev1.Pod) []string {
	ns := c.namespaces[p.Namespace]
	if ns == nil {
		return nil
	}
	return c.selection.Matching(ns.Labels, p.Labels)
}

// podAddrs returns the addresses of a pod on the pod network, as reported by the kubelet or, before
// that, from the annotation that the master has written.
func podAddrs(p *corev1.Pod) []netip.Addr {
	if addrs := kube.PodAddresses(p); len(addrs) > 0 {
		return addrs
	}
	var addrs []netip.Addr
	if network, ok, err := kube.PodNetwork(p); ok && err == nil {
		for _, a := range network.Addrs {
			addrs = append(addrs, a.Addr())
		}
	}
	return addrs
}

// hostEgressServices decodes the EgressServices with the reader that the master and the
// nodes use, with the objects of the snapshot in its caches.
func (c *Cluster) hostEgressServices() error {
	core := informers.NewSharedInformerFactory(nil, 0)
	services, ips := serviceinformers.NewSharedInformerFactory(nil, 0), egressipinformers.NewSharedInformerFactory(nil, 0)
	in := servicesnapshot.Informers{
		EgressServices: services.EgressService().V1().EgressServices(), Services: core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(), Pods: core.Core().V1().Pods(),
	}
	s, nodes, addressed := c.snap.Settings, core.Core().V1().Nodes(), ips.EgressIP().V1().EgressIPs()
	servers := reservedsnapshot.NewAPIServers("", nil, reserved.Ranges{})
	var err error
	c.addresses, err = reservedsnapshot.New(c.ranges(),
		reservedsnapshot.Informers{Nodes: nodes, EndpointSlices: in.EndpointSlices, EgressIPs: addressed, APIServers: servers})
	if err != nil {
		return fmt.Errorf("index addresses: %w", err)
	}
	in.Addresses = c.addresses
	given := func(key string, uid types.UID) []netip.Addr {
		if p := c.pods[key]; p != nil && kube.PodUID(p) == uid {
			return podAddrs(p)
		}
		return nil
	}
	reader, err := servicesnapshot.NewReader(in, s.Pods, c.mode(), given)
	if err != nil {
		return fmt.Errorf("index EgressServices: %w", err)
	}
	if !s.EgressService {
		c.snap.EgressServices = nil
	}
	fill(nodes.Informer(), c.snap.Nodes)
	fill(in.EndpointSlices.Informer(), c.snap.EndpointSlices)
	fill(servers, c.configuredAPIServers())
	fill(addressed.Informer(), c.snap.EgressIPs)
	fill(in.Services.Informer(), c.snap.Services)
	fill(in.Pods.Informer(), c.snap.Pods)
	fill(in.EgressServices.Informer(), c.snap.EgressServices)
	if err := reader.Prime(); err != nil {
		return fmt.Errorf("read EgressServices: %w", err)
	}
	var all []egressservice.Service
	for _, eg := range c.snap.EgressServices {
		decoded, _, err := reader.Decode(eg)
		if err != nil {
			return fmt.Errorf("read EgressServices: %w", err)
		}
		c.services[decoded.Key], c.objects[decoded.Key] = decoded, eg
		all = append(all, decoded)
	}
	c.hosted = egressservice.Decide(c.candidates(), all)
	return nil
}

// fill adds objects to the cache of an informer that never runs.
func fill[T any](inf cache.SharedIndexInformer, objects []T) {
	for _, o := range objects {
		_ = inf.GetIndexer().Add(o) // cannot fail: API objects have a key
	}
}

// mode returns the gateway mode, according to the nodes.
func (c *Cluster) mode() topology.GatewayMode {
	for _, n := range c.candidates() {
		if n.Gateway.Mode != "" {
			return n.Gateway.Mode
		}
	}
	return ""
}

func (c *Cluster) routeGateways() {
	s := c.snap.Settings
	c.routeConfig = externalroute.Config{Cluster: s.Pods, Internal: slices.Concat(s.Services, s.Join, s.Masquerade), Join: s.Join,
		DisableSNATMultipleGWs: s.DisableSNATMultipleGWs, GatewayNamespaces: s.GatewayNamespaces}
	if !s.ExternalGateways {
		c.snap.Routes = nil
		c.routes = externalroute.Plan{}
		return
	}
	byNamespace := map[string][]*corev1.Pod{}
	for _, p := range c.snap.Pods {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
		if len(kube.RoutingNamespaces(p)) > 0 {
			c.announced = append(c.announced, p)
		}
	}
	nodes, _ := place.ReadyInOutage(c.snap.Taken, c.candidates()) // the same rule applies if nodes are not probed
	decoded := make([]topology.Node, 0, len(nodes))
	for _, n := range nodes {
		decoded = append(decoded, n.Node)
	}
	c.gateways = routemaster.Read(c.snap.Routes, c.snap.Namespaces, decoded, c.announced,
		func(ns string) []*corev1.Pod { return byNamespace[ns] }, routemaster.ReadyNodes(nodes))
	c.routes = externalroute.Decide(c.routeConfig, c.gateways)
}
