package app

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	egressservicemaster "github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	egressscheme "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/scheme"
	egressipscheme "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/scheme"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	networkmaster "github.com/ovnkube/ovnkube/go-controller/pkg/network/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nodeinfo"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	noreroutemaster "github.com/ovnkube/ovnkube/go-controller/pkg/noreroute/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	podmaster "github.com/ovnkube/ovnkube/go-controller/pkg/pod/master"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/sb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// eventSource is the source component of our Events.
const eventSource = "ovnkube"

// runner is a controller or another loop that runs until its context is done.
type runner interface {
	Run(ctx context.Context) error
}

// runAll runs all until ctx is done or one fails, which ends the others. Runners whose input may
// cause a panic catch it themselves; a panic that reaches runAll ends the process in an orderly
// way.
func runAll(ctx context.Context, all map[string]runner) error {
	group, ctx := errgroup.WithContext(ctx)
	for name, r := range all {
		group.Go(func() error {
			if err := panics.Catch(name, func() error { return r.Run(ctx) }); err != nil && ctx.Err() == nil {
				return fmt.Errorf("run %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// runMaster runs the master on a node while it leads with an identity.
func runMaster(ctx context.Context, env *Env, node, identity string) error {
	cfg := env.Config
	klog.InfoS("Connecting to the northbound database", "address", cfg.OVNNorth.Remote())
	database := databaseConfig(cfg.OVNNorth)
	database.Fence = &ovsdb.Fence{
		Writer:  identity,
		Confirm: func(ctx context.Context) error { return confirmLeader(ctx, env, identity) },
	}
	database.Observe = transactionObserver(env.Metrics.Leader())
	client, err := ovsdb.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer client.Close()
	env.Ready.Add("northbound", func() error {
		if !client.Connected() {
			return fmt.Errorf("not connected to %s", cfg.OVNNorth.Remote())
		}
		return nil
	})
	recorder, stopEvents, err := newRecorder(env)
	if err != nil {
		return err
	}
	defer stopEvents()

	m := &master{
		env:      env,
		node:     node,
		writer:   ovsdb.NewWriter(client),
		recorder: recorder,
		runners:  map[string]runner{},
	}
	if env.Audit != nil {
		recorder, end := startAudit(env.Audit, node)
		defer end()
		m.audit = recorder
	}
	measureNorthbound(env.Metrics, m.writer)
	start, err := m.build()
	if err != nil {
		return err
	}
	if m.audit != nil {
		go m.audit.CompleteAfter(ctx, m.auditSynced...)
	}
	for _, s := range start {
		s.Start(ctx.Done())
	}
	return runAll(ctx, m.runners)
}

// databaseConfig returns how to connect to a database. The TLS files have defaults, which are
// ignored for other schemes.
func databaseConfig(d config.Database) ovsdb.Config {
	c := ovsdb.Config{Address: d.Remote()}
	if d.Secure() {
		c.PrivateKey, c.Certificate, c.CACert, c.ServerName = d.PrivKey, d.Cert, d.CACert, d.CommonName
	}
	return c
}

// newRecorder returns a recorder of Events about the built-in kinds and our own.
func newRecorder(env *Env) (record.EventRecorder, func(), error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, egressscheme.AddToScheme, egressipscheme.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, nil, fmt.Errorf("register kinds for events: %w", err)
		}
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: env.Kube.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(kinds, corev1.EventSource{Component: eventSource})
	return kube.BriefRecorder{EventRecorder: recorder}, broadcaster.Shutdown, nil
}

// master wires the controllers of the leader.
type master struct {
	env         *Env
	node        string // on which it runs
	writer      *ovsdb.Writer
	recorder    record.EventRecorder
	nodes       *nodeinfo.View // shared by all readers of nodes
	runners     map[string]runner
	tracker     *health.Tracker // nil until a feature needs it
	barrier     *sb.Barrier     // nil until a feature needs it
	ips         *egressIPInformers
	audit       *audit.Recorder   // nil: audit is disabled
	auditSynced []<-chan struct{} // closed when the features have recorded their initial state in it
	// localSNATs is closed when the controller that translates pods on their own nodes has tried
	// once to write all translations.
	localSNATs <-chan struct{}
	// beforePods are closed when the features that new pods depend on have tried everything once.
	beforePods []<-chan struct{}
	// addresses has the addresses that belong to the cluster itself.
	addresses *reservedsnapshot.Addresses
}

// starter is an informer factory.
type starter interface{ Start(stop <-chan struct{}) }

// build creates all controllers and returns the informers to start afterwards.
func (m *master) build() ([]starter, error) {
	cfg := m.env.Config
	core := kube.NewInformers(m.env.Kube)
	start := []starter{core}

	err := m.viewNodes(core)
	if err != nil {
		return nil, err
	}
	if err := m.network(); err != nil {
		return nil, err
	}
	if m.ips, err = newEgressIPInformers(m.env); err != nil {
		return nil, err
	}
	if m.addresses, err = reservedAddresses(m.env, core, m.nodes, m.ips); err != nil {
		return nil, err
	}
	ips, own, ipPods, err := m.egressIPs(core)
	if err != nil {
		return nil, err
	}
	var egress podmaster.Egress // nil if EgressIPs are not enabled
	if ips != nil {
		egress = ips
	}
	start = append(start, own...)
	var servicePods *noreroute.PodSet
	routed := noreroute.NewPodSet()
	matched := []podmaster.Matched{routed}
	if cfg.Features.EgressService {
		servicePods = noreroute.NewPodSet()
		matched = append(matched, servicePods)
	}
	pods, err := podmaster.New(podmaster.Deps{
		Client:   m.env.Kube,
		Pods:     core.Core().V1().Pods(),
		Nodes:    m.nodes,
		Writer:   m.writer,
		Recorder: m.recorder,
		// With external gateways, their controller decides which pods are translated.
		Config:  pod.Config{DisableSNATMultipleGWs: cfg.Gateway.DisableSNATMultipleGWs && !cfg.Features.MultiExternalGateway},
		Egress:  egress,
		Matched: matched,
	})
	if err != nil {
		return nil, err
	}
	if ips != nil {
		pods.OnAddressesChanged(func(key, _ string) { ips.Look(key) })
	}
	m.localSNATs = pods.Attempted()

	if cfg.Features.EgressService {
		own, c, err := m.egressServices(core, servicePods)
		if err != nil {
			return nil, err
		}
		pods.OnAddressesChanged(func(key, _ string) { c.Look(key) })
		start = append(start, own)
	} else if err := m.withoutEgressServices(); err != nil {
		return nil, err
	}
	if err := m.services(core, ipPods, servicePods); err != nil {
		return nil, err
	}
	more, err := m.externalGateways(core, pods, routed, ipPods, servicePods)
	if err != nil {
		return nil, err
	}
	m.runners["pods"] = startAfter(m.beforePods, pods)
	start = append(start, more...)
	m.runners["no-reroute policies"], err = noreroutemaster.New(noreroutemaster.Deps{
		Addresses:         m.addresses,
		Writer:            m.writer,
		Network:           noreroute.Network{Cluster: cfg.Default.ClusterPrefixes(), Join: joinSubnets(cfg), NodeLocal: nodeLocal(cfg)},
		EgressIPPods:      ipPods,
		EgressServicePods: servicePods,
		NodeIPs:           cfg.Features.MultiExternalGateway,
	})
	return start, err
}

// network adds the base network.
func (m *master) network() error {
	c, err := networkmaster.New(networkmaster.Deps{
		Client:    m.env.Kube,
		Nodes:     m.nodes,
		Written:   m.nodes.Written(),
		Decide:    m.nodes.Decide,
		Writer:    m.writer,
		Recorder:  m.recorder,
		Config:    networkConfig(m.env.Config),
		SetGlobal: m.writer.SetGlobal,
		DeleteChassis: func(ctx context.Context, gone func(name, hostname string) bool) error {
			return sb.DeleteChassis(ctx, databaseConfig(m.env.Config.OVNSouth), gone)
		},
		Refusal: m.nodes.Refusal,
	})
	if err != nil {
		return err
	}
	m.nodes.OnRefusal(c.Look)
	m.runners["network"] = c
	bindings := sb.NewBindings(databaseConfig(m.env.Config.OVNNorth), databaseConfig(m.env.Config.OVNSouth))
	m.writer.OnDrift(func(o nb.Owner) {
		if o.Feature == network.Feature { // the routers'
			bindings.Look()
		}
	})
	m.runners["static MAC bindings"] = bindings
	return nil
}

// given returns the addresses that a pod has been given: those of its port in the database, from
// which all features read them, whatever its annotation says. With a UID it only returns the
// addresses of that pod, not of another one with the same name.
func (m *master) given(key string, uid types.UID) []netip.Addr {
	return pod.AddressesFor(m.writer.Rows(pod.Owner(key)), string(uid))
}

// podStartDelay is how long pods wait at most for the egress features at startup.
const podStartDelay = 10 * time.Second

// startAfter runs r once all of done are closed, or after podStartDelay: a pod that gets its address before
// the egress features know of it would at first use the wrong address outside, or the wrong gateway.
func startAfter(done []<-chan struct{}, r runner) runner {
	return loop(func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, podStartDelay)
		defer cancel()
		wait := waits.Wait{Part: "pod", For: "every EgressService and external gateway to be tried once", Limit: podStartDelay}
		for _, d := range done {
			switch {
			case waits.Until(limited, d, wait):
			case ctx.Err() == nil:
				klog.InfoS("Serving pods before all EgressServices and external gateways are programmed")
				return r.Run(ctx)
			default:
				return nil
			}
		}
		return r.Run(ctx)
	})
}

// withoutEgressServices removes what is left of EgressServices.
func (m *master) withoutEgressServices() error {
	egress, err := versioned.NewForConfigAndClient(m.env.REST, m.env.HTTP)
	if err != nil {
		return fmt.Errorf("make the client of our own kinds: %w", err)
	}
	m.runners["egress services"] = &featureCleanup{feature: egressservice.Feature, writer: m.writer,
		retire: func(ctx context.Context) error { return egressservicemaster.Retire(ctx, m.env.Kube, egress) }}
	return nil
}

// egressServices adds EgressServices and returns the informers of our own kinds, and the
// controller. pods gets the endpoints that are served.
func (m *master) egressServices(core informers.SharedInformerFactory, pods *noreroute.PodSet) (starter, *egressservicemaster.Controller, error) {
	cfg := m.env.Config
	tracker, err := m.health()
	if err != nil {
		return nil, nil, err
	}
	egress, err := versioned.NewForConfigAndClient(m.env.REST, m.env.HTTP)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of our own kinds: %w", err)
	}
	factory := externalversions.NewSharedInformerFactoryWithOptions(egress, 0, externalversions.WithTransform(kube.Trim))
	c, err := egressservicemaster.New(egressservicemaster.Deps{
		Kube:   m.env.Kube,
		Egress: egress,
		Informers: snapshot.Informers{
			EgressServices: factory.EgressService().V1().EgressServices(),
			Services:       core.Core().V1().Services(),
			EndpointSlices: core.Discovery().V1().EndpointSlices(),
			Pods:           core.Core().V1().Pods(),
			Addresses:      m.addresses,
		},
		Nodes:           m.nodes,
		Writer:          m.writer,
		Health:          tracker,
		Pods:            pods,
		Recorder:        m.recorder,
		ClusterSubnets:  cfg.Default.ClusterPrefixes(),
		Mode:            cfg.Gateway.Mode,
		Acknowledge:     cfg.Features.AcknowledgeTimeout,
		AssumeReachable: cfg.Features.ReachabilityTotalTimeout == 0,
		Given:           m.given,
		Audit:           m.audit,
		Metrics:         m.env.Metrics.Leader(),
	})
	if err != nil {
		return nil, nil, err
	}
	m.auditSynced = append(m.auditSynced, c.Synced())
	m.beforePods = append(m.beforePods, c.Attempted())
	m.runners["egress services"] = c
	measureEgressServices(m.env.Metrics.Leader(), factory.EgressService().V1().EgressServices())
	return factory, c, nil
}

// networkConfig returns the part of the configuration that the base network needs.
func networkConfig(cfg config.Config) network.Config {
	n := network.Config{
		JoinSubnets:            joinSubnets(cfg),
		ServiceCIDRs:           cfg.Kubernetes.ServiceCIDRs,
		GatewayMTU:             cfg.Default.MTU,
		DisableSNATMultipleGWs: cfg.Gateway.DisableSNATMultipleGWs,
	}
	for _, s := range cfg.Default.ClusterSubnets {
		n.ClusterSubnets = append(n.ClusterSubnets, network.ClusterSubnet{CIDR: s.CIDR, HostPrefixLen: s.HostPrefixLen})
	}
	return n
}

// nodeLocal returns the ranges that pods reach through their own node, without those that the
// cluster itself uses.
func nodeLocal(cfg config.Config) []netip.Prefix {
	used := slices.Concat(cfg.Default.ClusterPrefixes(), cfg.Kubernetes.ServiceCIDRs, joinSubnets(cfg))
	for _, f := range cfg.Families() {
		used = append(used, cfg.Gateway.MasqueradeSubnet(f))
	}
	return noreroute.NodeLocal(cfg.Features.NodeLocalAddresses, used)
}

// joinSubnets returns the join subnet of each family of the cluster.
func joinSubnets(cfg config.Config) []netip.Prefix {
	var subnets []netip.Prefix
	for _, f := range cfg.Families() {
		subnets = append(subnets, cfg.Gateway.JoinSubnet(f))
	}
	return subnets
}
