package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	healthmaster "github.com/ovnkube/ovnkube/go-controller/pkg/health/master"
	healthnode "github.com/ovnkube/ovnkube/go-controller/pkg/health/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/sb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// runDirOVS and runDirOVN are the directories of the control sockets of Open vSwitch's and OVN's
// daemons.
const (
	runDirOVS = "/var/run/openvswitch"
	runDirOVN = "/var/run/ovn"
)

// prober returns how to probe nodes: at the configured health port, or else at a port on which
// nobody listens and connections are refused.
func prober(cfg config.Config) (health.Prober, error) {
	port := cfg.Features.NodeHealthCheckPort
	if port == 0 {
		return health.Discard{}, nil
	}
	// Nodes require TLS if they use it for the southbound database. A master beside the databases may
	// use a socket for the northbound one.
	database := cfg.OVNNorth
	if !database.Secure() {
		database = cfg.OVNSouth
	}
	// The certificate that a node got by a signing request is only a client certificate, so that the
	// node cannot pose as the database with it. Hence any key usage is accepted.
	t, err := sessionTLS(database, x509.ExtKeyUsageAny)
	if err != nil {
		return nil, err
	}
	return health.NewGRPC(uint16(port), t), nil
}

// health returns the tracker of the nodes' reachability, which the egress features share; it only
// runs if one of them calls this.
func (m *master) health() (*health.Tracker, error) {
	if m.tracker != nil {
		return m.tracker, nil
	}
	probes, err := prober(m.env.Config)
	if err != nil {
		return nil, err
	}
	tracker := health.NewTracker(probes, m.env.Config.Features.ReachabilityTotalTimeout)
	tracker.SecondOpinion(m.node, opinion(m.nodes.Lister(), m.node).Dead)
	tracker.Observe(m.env.Metrics.Leader())
	m.env.Metrics.Leader().Reachability(tracker.Each)
	targets, err := healthmaster.New(m.nodes, tracker)
	if err != nil {
		return nil, err
	}
	m.runners["health"], m.runners["health targets"], m.tracker = tracker, targets, tracker
	m.runners["reachability"] = healthmaster.NewPublisher(m.env.Kube, m.env.Config.Kubernetes.ConfigNamespace, tracker,
		m.env.Config.Features.ReachabilityTotalTimeout)
	return tracker, nil
}

// progress returns the barrier of the chassis, which features share; it only runs if one of them
// calls this.
func (m *master) progress() *sb.Barrier {
	if m.barrier == nil {
		m.barrier = sb.NewBarrier(databaseConfig(m.env.Config.OVNSouth), m.writer)
		m.runners["barrier"] = m.barrier
	}
	return m.barrier
}

// kubeletPort is the port on which kubelets listen for the API server; few networks filter it.
const kubeletPort = 10250

// opinion decides from the network of the hosts and from Kubernetes whether a node other than own
// is dead.
func opinion(nodes corelisters.NodeLister, own string) health.Opinion {
	return health.Opinion{
		Probers: []health.Prober{health.Discard{}, health.Discard{Port: kubeletPort}},
		Hosts:   func() map[string][]netip.Addr { return hosts(nodes, own) },
		NextHops: func() []netip.Addr {
			hops, err := route.NextHops()
			if err != nil {
				klog.ErrorS(err, "Cannot probe the next hops to find out whether this host is isolated")
			}
			return hops
		},
		Lost: func(name string) bool {
			node, err := nodes.Get(name)
			return err == nil && kube.NodeReadyUnknown(node)
		},
	}
}

// hosts returns the internal addresses of all other nodes by node name.
func hosts(nodes corelisters.NodeLister, own string) map[string][]netip.Addr {
	all, _ := nodes.List(labels.Everything()) // a lister never fails
	hosts := map[string][]netip.Addr{}
	for _, node := range all {
		if node.Name == own {
			continue
		}
		for _, a := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil {
				hosts[node.Name] = append(hosts[node.Name], addr)
			}
		}
	}
	return hosts
}

// healthServer returns the server that answers health probes of this node.
func healthServer(cfg config.Config) (runner, error) {
	t, err := sessionTLS(cfg.OVNSouth, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	server := &healthnode.Server{
		Port:   cfg.Features.NodeHealthCheckPort,
		TLS:    t,
		Checks: daemonChecks(runDirOVS, runDirOVN),
	}
	return loop(func(ctx context.Context) error { return server.Run(ctx, nil) }), nil
}

// daemonChecks returns checks of the daemons without which a node forwards nothing.
func daemonChecks(runOVS, runOVN string) map[string]func(context.Context) error {
	alive := func(d unixctl.Daemon) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := d.Call(ctx, "version")
			return err
		}
	}
	return map[string]func(context.Context) error{
		"ovs-vswitchd":   alive(unixctl.Daemon{RunDir: runOVS, Name: "ovs-vswitchd"}),
		"ovn-controller": alive(unixctl.Daemon{RunDir: runOVN, Name: "ovn-controller"}),
	}
}

// daemonInterval is how often the daemons are checked.
const daemonInterval = 5 * time.Second

// watchDaemons reports which daemon does not answer, until ctx is done: if one hangs, the node
// stays as it was, and gets no changes.
func watchDaemons(ctx context.Context, checks map[string]func(context.Context) error) error {
	unanswered := map[string]*waits.Lost{}
	for name := range checks {
		unanswered[name] = &waits.Lost{}
		defer unanswered[name].Set(waits.Wait{}, nil)
	}
	ticker := time.NewTicker(daemonInterval)
	defer ticker.Stop()
	for {
		for name, check := range checks {
			limited, cancel := context.WithTimeout(ctx, daemonInterval)
			err := check(limited)
			cancel()
			if ctx.Err() == nil {
				unanswered[name].Set(waits.Wait{Part: "node", Object: name, For: "an answer", Reason: waits.ReasonDaemon}, err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// sessionTLS returns the TLS configuration of health sessions with the certificates of a database,
// or nil if it has none. Each side requires a certificate from the other that is signed by the same
// authority, and for the given use; names are not checked, because they are the names of OVN's
// components, not of nodes.
func sessionTLS(d config.Database, use x509.ExtKeyUsage) (*tls.Config, error) {
	if !d.Secure() {
		return nil, nil
	}
	return pki.Files{Key: d.PrivKey, Cert: d.Cert, CA: d.CACert}.Session(use, "")
}

// zonesOf returns a function that asks ovn-controller for the conntrack zones that it uses.
func zonesOf(controller unixctl.Daemon) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return controller.Call(ctx, "ct-zone-list") }
}
