package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	bridgenode "github.com/ovnkube/ovnkube/go-controller/pkg/bridge/node"
	cninode "github.com/ovnkube/ovnkube/go-controller/pkg/cni/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressipnode "github.com/ovnkube/ovnkube/go-controller/pkg/egressip/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	egressservicenode "github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	gatewaynode "github.com/ovnkube/ovnkube/go-controller/pkg/gateway/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/addr"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/snatguard"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/table"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/watch"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nodeinfo"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	noreroutenode "github.com/ovnkube/ovnkube/go-controller/pkg/noreroute/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/sb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// resyncInterval is how often actual and desired kernel objects are compared, for changes that are
// not notified.
const resyncInterval = 30 * time.Second

// stateFile keeps, on the host, state that the Open vSwitch database may lose.
const stateFile = "/var/lib/ovn-kubernetes/node.json"

// node wires the parts of a node.
type node struct {
	env     *Env
	name    string
	self    *nodeinfo.View // everybody except its writer reads the node here
	gateway *gatewaynode.Gateway
	chains  *iptables.Writer
	routes  *host.Set[host.Route, host.Hop]
	addrs   *host.Set[host.Address, host.AddressUse]
	ipRules *host.Set[host.IPRule, struct{}]
	record  *egressipnode.Record
	// switches is the client of Open vSwitch.
	switches ovs.Client
	// settings are the kernel parameters.
	settings *host.Set[string, string]
	guard    *snatguard.Guard
	// flows manages the external bridge, second the one for external gateways.
	flows, second *bridgenode.Manager

	kept    hostWriters // all of the above, from startup on
	runners map[string]runner
	ips     *egressIPInformers
	// addresses has the addresses that belong to the cluster itself.
	addresses *reservedsnapshot.Addresses
	recorder  record.EventRecorder
	// attempted are done when the contributors to the drivers have tried once everything that
	// existed at startup, synced are closed when they have contributed for all of it.
	attempted []attempt
	synced    []<-chan struct{}
	// rules is closed when all attempts are done: a pod that started before the rules of the egress
	// features are in place would at first use the wrong address.
	rules chan struct{}
	// handOver hands over to other nodes what they can take over, before this process ends.
	handOver func(context.Context) error
}

// attempt is a part of the startup that is over when done is closed.
type attempt struct {
	what string
	done <-chan struct{}
}

// addContributor registers a contributor to the drivers.
func (n *node) addContributor(what string, attempted <-chan struct{}, synced ...<-chan struct{}) {
	n.attempted, n.synced = append(n.attempted, attempt{what, attempted}), append(n.synced, synced...)
}

// runNode runs node name. It calls started once the node serves pods.
func runNode(ctx context.Context, env *Env, name string, started func()) error {
	n := newNode(env, name)
	ctx, end := n.gracePeriod(ctx)
	defer end()
	n.switches = ovs.New(ctx, ovs.DefaultEndpoint)
	recorder, stopEvents, err := newRecorder(env)
	if err != nil {
		return err
	}
	defer stopEvents()
	n.recorder = recorder
	start, err := n.build(ctx)
	if err != nil {
		return err
	}
	env.Ready.Add("gateway", func() error {
		if waiting := n.gateway.Waiting(); waiting != "" {
			return fmt.Errorf("waiting for %s", waiting)
		}
		return nil
	})
	for _, s := range start {
		s.Start(ctx.Done())
	}
	n.runners["daemons"] = loop(func(ctx context.Context) error { return watchDaemons(ctx, daemonChecks(runDirOVS, runDirOVN)) })
	n.runners["start-up"] = loop(func(ctx context.Context) error { return n.finishSetup(ctx, started) })
	return runAll(ctx, n.runners)
}

func newNode(env *Env, name string) *node {
	return &node{env: env, name: name, runners: map[string]runner{}, rules: make(chan struct{}),
		handOver: func(context.Context) error { return nil }}
}

// gracePeriod returns a context that ends after ctx, when this node has handed over what others can
// take over. A process that ends because a part of it failed is restarted immediately, and hands
// over nothing.
func (n *node) gracePeriod(ctx context.Context) (context.Context, func()) {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer end()
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			return
		}
		if err := n.handOver(work); err != nil && work.Err() == nil {
			klog.ErrorS(err, "Cannot hand over, stopping anyway")
		}
	})
	return work, end
}

// loop is a function that implements runner.
type loop func(ctx context.Context) error

// Run implements runner.
func (l loop) Run(ctx context.Context) error { return l(ctx) }

// build creates all parts and returns the informers to start afterwards.
func (n *node) build(ctx context.Context) ([]starter, error) {
	cfg, self := n.env.Config, nodeInformers(n.env, n.name)
	if err := n.viewSelf(self); err != nil {
		return nil, err
	}
	if err := n.hostWriters(ctx); err != nil {
		return nil, err
	}
	n.addGateway()
	n.runners["tunnel port"] = sb.EncapPort{
		Database: databaseConfig(cfg.OVNSouth),
		Chassis:  func(ctx context.Context) (string, error) { return chassis(ctx, n.switches) },
		Port:     cfg.Default.EncapPort,
	}

	pods := kube.NewNodePodInformers(n.env.Kube, n.name)
	core := kube.NewInformers(n.env.Kube)
	start := []starter{self, pods, core}
	var err error
	if n.ips, err = newEgressIPInformers(n.env); err != nil {
		return nil, err
	}
	all, err := n.viewNodes(core)
	if err != nil {
		return nil, err
	}
	if n.addresses, err = reservedAddresses(n.env, core, all, n.ips); err != nil {
		return nil, err
	}
	if err := n.services(core, n.switches); err != nil {
		return nil, err
	}
	if cfg.Features.EgressService {
		more, err := n.egressServices(core, pods, all)
		if err != nil {
			return nil, err
		}
		start = append(start, more)
	}
	if cfg.Features.EgressIP {
		more, err := n.egressIPs()
		if err != nil {
			return nil, err
		}
		start = append(start, more)
	}
	if cfg.Features.EgressService || cfg.Features.EgressIP {
		if err := n.marks(); err != nil {
			return nil, err
		}
	}
	if cfg.Features.MultiExternalGateway {
		if err := n.externalGateways(core, pods, n.switches); err != nil {
			return nil, err
		}
	}
	ports := sb.NewPorts(databaseConfig(cfg.OVNSouth), n.name)
	n.runners["addresses of pods"] = ports
	if cfg.Trace.BindAddress != "" {
		if n.runners["trace"], err = n.traces(all, pods); err != nil {
			return nil, err
		}
	}
	if cfg.Features.NodeHealthCheckPort != 0 {
		if n.runners["health"], err = healthServer(cfg); err != nil {
			return nil, err
		}
	}
	if n.runners["cni"], err = cninode.New(
		cninode.Config{MTU: cfg.Default.MTU, ConfDir: cfg.CNI.ConfDir, BinDir: cfg.CNI.BinDir, Plugin: cfg.CNI.Plugin},
		cninode.Deps{Kube: n.env.Kube, Pods: pods.Core().V1().Pods(), OVS: n.switches, Ready: n.rules,
			Ports: ports, Subnets: n.subnets},
	); err != nil {
		return nil, err
	}
	return start, nil
}

// addGateway adds the external bridge and the management port.
func (n *node) addGateway() {
	n.gateway = gatewaynode.New(gatewayConfig(n.env.Config, n.name), gatewaynode.Deps{
		Kube:        n.env.Kube,
		Nodes:       n.self,
		Written:     n.self.Written(),
		Decide:      n.self.Decide,
		OVS:         n.switches,
		Zones:       zonesOf(unixctl.Daemon{RunDir: runDirOVN, Name: "ovn-controller"}),
		Flows:       n.flows,
		SecondFlows: n.second,
		Release:     releaseFlows,
		Chains:      n.chains,
		Routes:      n.routes,
		Addrs:       n.addrs,
		Settings:    n.settings,
		Foreign:     n.record.Addresses,
	})
	n.runners["gateway"], n.runners["bridge flows"], n.runners[gwFlows] = n.gateway, n.flows, n.second
	n.addContributor("the network of the node", n.gateway.Ready(), n.gateway.Contributed())
}

// subnets returns the pod subnets of this node, or none if they are not known yet.
func (n *node) subnets() []netip.Prefix {
	obj, err := n.self.Lister().Get(n.name)
	if err != nil { // not there yet: a lister has no other error
		return nil
	}
	node, _ := kube.Node(obj) // invalid annotations are not used
	return node.Subnets
}

// releaseFlows removes our flows from a bridge that others have made.
func releaseFlows(ctx context.Context, bridge string) error {
	return openflow.New(bridge, openflow.DefaultRunDir).Release(ctx)
}

// hostWriters creates the drivers that read and write the host.
func (n *node) hostWriters(ctx context.Context) (err error) {
	cfg := n.env.Config
	if n.chains, err = iptables.New(chainsOf(cfg.Families())); err != nil {
		return err
	}
	n.routes = route.NewSet()
	n.record = egressipnode.NewRecord(n.name, n.env.Kube, n.self.Written())
	n.addrs = addr.NewSet(addr.New(n.record.Addresses, topology.ManagementPort))
	n.ipRules = iprule.NewSet()
	// No packet may leave before there are rules that translate it: the guard is installed before
	// the management port, and stays while this process does not run.
	n.guard = snatguard.New(cfg.Default.ClusterPrefixes(), topology.ManagementPort)
	n.ensureGuard()
	ended := &endedTranslations{read: translationsOf(cfg.Families()), flush: n.flushTranslated()}
	ended.note(ctx)
	required := []string{gateway.Contributor}
	if cfg.Features.EgressIP {
		// Without the flows for suppressed addresses, OVN would answer for addresses of other
		// nodes.
		required = append(required, egressipnode.Contributor)
	}
	n.settings = settings.NewSet(n.switches)
	openBridge := func(bridge string) bridgenode.Writer { return openflow.New(bridge, openflow.DefaultRunDir) }
	n.flows = bridgenode.New(required, n.switches, openBridge)
	n.second = bridgenode.New([]string{gateway.Contributor}, n.switches, openBridge)
	n.kept = hostWriters{
		guard: n.ensureGuard, events: watch.Watch,
		trim: n.record.Trim,
		swept: map[string]sweeper{
			chains:     translatingChains{n.chains, ended},
			routes:     n.routes,
			addresses:  n.addrs,
			flows:      n.flows,
			ipRules:    n.ipRules,
			parameters: n.settings,
		},
	}
	n.kept.swept[gwFlows] = n.second
	n.kept.looks = map[string]func() (string, error){parameters: func() (string, error) { return settings.State(n.settings.Wanted()) }}
	legacy, err := n.chains.Legacy()
	if err != nil {
		return err
	}
	if legacy {
		n.kept.looks[chains] = n.chains.LegacyState
	}
	n.env.Metrics.Dropped(map[string]func() (metrics.Drops, error){
		"host": n.hostDrops, "bridge": func() (metrics.Drops, error) { return n.bridgeDrops(ctx) },
	})
	n.env.Metrics.Repaired(func() map[string]uint64 {
		return map[string]uint64{
			chains: n.chains.Repaired(), routes: n.routes.Repaired(), addresses: n.addrs.Repaired(),
			ipRules: n.ipRules.Repaired(), parameters: n.settings.Repaired(),
		}
	})
	return nil
}

// hostDrops returns what the host's kernel has dropped.
func (n *node) hostDrops() (metrics.Drops, error) {
	unsnatted, err := n.guard.Dropped()
	if err != nil {
		return metrics.Drops{}, err
	}
	noReply, err := n.guard.NoReply()
	return metrics.Drops{Unsnatted: unsnatted, NoReply: noReply}, err
}

// bridgeDrops returns what flows of the external bridges have dropped.
func (n *node) bridgeDrops(ctx context.Context) (metrics.Drops, error) {
	var sum metrics.Drops
	for _, flows := range []*bridgenode.Manager{n.flows, n.second} {
		packets, err := flows.Packets(ctx)
		if err != nil {
			return metrics.Drops{}, err
		}
		sum.Unsnatted += packets[host.FlowLevel{Priority: bridge.PriorityUnsnatted}] +
			packets[host.FlowLevel{Table: bridge.TablePodReply, Priority: bridge.PriorityUnsnatted}]
		sum.NoReply += packets[host.FlowLevel{Table: bridge.TableServicePort, Priority: bridge.PriorityNoReply}]
	}
	return sum, nil
}

// chassis returns the name of this node's chassis.
func chassis(ctx context.Context, switches ovs.Client) (string, error) {
	ids, err := switches.System(ctx)
	if err != nil {
		return "", fmt.Errorf("read the system-id: %w", err)
	}
	if ids["system-id"] == "" {
		return "", errors.New("read the system-id: Open vSwitch has none yet")
	}
	return ids["system-id"], nil
}

// egressServices adds the node side of EgressServices and returns the informers of our own kinds.
// pods are the pods of this node, all are all nodes.
func (n *node) egressServices(core, pods informers.SharedInformerFactory, all *nodeinfo.View) (starter, error) {
	egress, err := versioned.NewForConfigAndClient(n.env.REST, n.env.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make the client of our own kinds: %w", err)
	}
	factory := externalversions.NewSharedInformerFactoryWithOptions(egress, 0, externalversions.WithTransform(kube.Trim))
	c, err := egressservicenode.New(egressservicenode.Deps{
		Node:  n.name,
		Nodes: n.self,
		Informers: snapshot.Informers{
			EgressServices: factory.EgressService().V1().EgressServices(),
			Services:       core.Core().V1().Services(),
			EndpointSlices: core.Discovery().V1().EndpointSlices(),
			Pods:           pods.Core().V1().Pods(),
			Namespace: func(namespace string) (cache.SharedIndexInformer, error) {
				return kube.NewNamespacePods(n.env.Kube, namespace)
			},
			Addresses: n.addresses,
		},
		Egress:         egress,
		Chains:         n.chains,
		IPRules:        n.ipRules,
		Tables:         table.Finder{Dirs: table.DefaultDirs},
		Flush:          n.flushTranslated(),
		FlushLed:       n.flushLed(),
		OnApplied:      n.switches.OnFlowsInstalled,
		Settle:         n.flows.Settle,
		ClusterSubnets: n.env.Config.Default.ClusterPrefixes(),
		Mode:           n.env.Config.Gateway.Mode,
		EgressIPs:      n.env.Config.Features.EgressIP,
		Neighbor:       func(name string) []netip.Addr { return nodeNeighbor(all.Lister(), n.name, name) },
		NodeLocal:      noreroute.NodeLocal(n.env.Config.Features.NodeLocalAddresses, nil),
	})
	if err != nil {
		return nil, err
	}
	n.runners["egress services"] = c
	n.addContributor("every EgressService to be tried once", c.Attempted(), c.Synced())
	return factory, nil
}

// marks adds the controller that marks traffic from pods to nodes which has no mark of OVN, or has lost it.
func (n *node) marks() error {
	cfg := n.env.Config
	// In shared gateway mode the kernel forwards packets to other nodes only from pods with external gateways.
	forwards := cfg.Gateway.Mode == topology.GatewayLocal || cfg.Features.MultiExternalGateway
	c, err := noreroutenode.New(noreroutenode.Deps{
		Node:      n.name,
		Addresses: n.addresses,
		Chains:    n.chains,
		MarksLost: func(ctx context.Context) (bool, error) {
			if !forwards {
				return false, nil
			}
			return isUserspace(ctx, n.switches)
		},
		NodeLocal: noreroute.NodeLocal(cfg.Features.NodeLocalAddresses, nil),
		Families:  cfg.Families(),
	})
	if err != nil {
		return err
	}
	n.runners["marks of pods"] = c
	n.addContributor("the marks of pods", c.Attempted(), c.Synced())
	return nil
}

// isUserspace reports whether Open vSwitch passes packets to the kernel through userspace, where
// their marks get lost.
func isUserspace(ctx context.Context, switches ovs.Client) (bool, error) {
	ids, err := switches.System(ctx)
	if err != nil {
		return false, fmt.Errorf("read the datapath type: %w", err)
	}
	return ovs.InUserspace(ids[ovs.DatapathTypeID]), nil
}

// ensureGuard puts the guard in place. A node whose kernel does not support it serves pods anyway.
func (n *node) ensureGuard() {
	if err := n.guard.Ensure(); err != nil {
		klog.ErrorS(err, "Packets that escape their translation are not dropped")
	}
}

// finishSetup starts repairing the drivers' objects, waits until all contributors have tried
// everything that existed at startup, and keeps the objects in the desired state from then on.
func (n *node) finishSetup(ctx context.Context, started func()) error {
	d := n.kept
	d.synced = n.synced
	if err := d.watch(ctx); err != nil { // a kernel without nftables, for instance
		klog.ErrorS(err, "Some changes by others will be repaired with a delay", "atMost", resyncInterval)
	}
	for _, a := range n.attempted {
		if !waits.Until(ctx, a.done, waits.Wait{Part: "node", For: a.what + ", before pods are served"}) {
			return nil
		}
	}
	klog.InfoS("Node serves pods", "node", n.name)
	close(n.rules)
	started()
	failed := func(err error) { klog.ErrorS(err, "Resync failed, will retry") }
	if err := panics.Catch("resync", func() error { return d.resync(ctx) }); err != nil && ctx.Err() == nil {
		failed(err)
	}
	host.Keep(ctx, resyncInterval, n.wake(ctx), d.resync, failed)
	return nil
}

// wake returns a channel that gets a value when everything is contributed and leftovers can be
// deleted.
func (n *node) wake(ctx context.Context) <-chan struct{} {
	wake := make(chan struct{}, 1)
	go func() {
		for _, synced := range n.synced {
			if !waits.Until(ctx, synced, waits.Wait{Part: "sweep", For: "all to say what they want, before leftovers on the host are deleted"}) {
				return
			}
		}
		wake <- struct{}{}
	}()
	return wake
}

// chainsOf returns the chains of all features; all chains exist, even if they are empty.
func chainsOf(families []topology.Family) []host.Chain {
	return slices.Concat(gateway.Chains(families), service.Chains(families), egressservice.Chains(families), egressip.Chains(families),
		noreroute.Chains(families))
}

// nodeInformers returns a factory whose node informer has only this node.
func nodeInformers(env *Env, name string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(env.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}))
}

// gatewayConfig returns the part of the configuration that a node's gateway needs.
func gatewayConfig(cfg config.Config, name string) gatewaynode.Config {
	c := gatewaynode.Config{
		Node:                     name,
		Families:                 cfg.Families(),
		Mode:                     cfg.Gateway.Mode,
		Interface:                cfg.Gateway.Interface,
		ExternalGatewayInterface: cfg.Gateway.ExternalGatewayInterface,
		NextHops:                 cfg.Gateway.NextHops,
		VLAN:                     cfg.Gateway.VLANID,
		NodePort:                 cfg.Gateway.NodePort,
		MTU:                      cfg.Default.MTU,
		ClusterSubnets:           cfg.Default.ClusterPrefixes(),
		ServiceCIDRs:             cfg.Kubernetes.ServiceCIDRs,
		ConntrackZone:            cfg.Default.ConntrackZone,
		Egress:                   cfg.Features.EgressIP || cfg.Features.EgressService,
		EncapIP:                  cfg.Default.EncapIP,
		EncapPort:                cfg.Default.EncapPort,
		ControllerIDs:            cfg.OVNControllerIDs(),
		StateFile:                stateFile,
	}
	if c.ExternalGatewayInterface != "" && !cfg.Features.MultiExternalGateway {
		klog.InfoS("External gateways are not enabled, the interface for them is left alone", "interface", c.ExternalGatewayInterface)
		c.ExternalGatewayInterface = ""
	}
	if db := cfg.OVNSouth; db.Secure() {
		c.TLS = ovs.TLS{PrivateKey: db.PrivKey, Certificate: db.Cert, CACert: db.CACert}
	}
	for _, f := range cfg.Families() {
		c.MasqueradeSubnets = append(c.MasqueradeSubnets, cfg.Gateway.MasqueradeSubnet(f))
	}
	return c
}
