package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressipmaster "github.com/ovnkube/ovnkube/go-controller/pkg/egressip/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
)

// egressIPInformers has the informer of EgressIPs, shared by all its users. It is nil if EgressIPs
// are not enabled.
type egressIPInformers struct {
	client  versioned.Interface
	factory externalversions.SharedInformerFactory
}

func newEgressIPInformers(env *Env) (*egressIPInformers, error) {
	if !env.Config.Features.EgressIP {
		return nil, nil
	}
	client, err := versioned.NewForConfigAndClient(env.REST, env.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make the client of EgressIPs: %w", err)
	}
	return &egressIPInformers{client, externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithTransform(kube.Trim))}, nil
}

// informer returns the informer of EgressIPs, or nil if they are not enabled.
func (i *egressIPInformers) informer() egressipinformers.EgressIPInformer {
	if i == nil {
		return nil
	}
	return i.factory.EgressIP().V1().EgressIPs()
}

// egressIPs adds the master side of EgressIPs. It returns the controller that steers new pods, the
// informers to start, and the set of steered pods. If EgressIPs are not enabled, it removes their
// rows and returns nil for all of these.
func (m *master) egressIPs(core informers.SharedInformerFactory) (*egressipmaster.Controller, []starter, *noreroute.PodSet, error) {
	cfg := m.env.Config
	if !cfg.Features.EgressIP {
		client, err := versioned.NewForConfigAndClient(m.env.REST, m.env.HTTP)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("make the client of EgressIPs: %w", err)
		}
		m.runners["egress IPs"] = &featureCleanup{feature: egressip.Feature, writer: m.writer,
			retire: func(ctx context.Context) error { return egressipmaster.Retire(ctx, client) }}
		return nil, nil, nil, nil
	}
	tracker, err := m.health()
	if err != nil {
		return nil, nil, nil, err
	}
	var localSNATs func() <-chan struct{}
	if cfg.Gateway.DisableSNATMultipleGWs {
		localSNATs = func() <-chan struct{} { return m.localSNATs }
	}
	client, factory, pods := m.ips.client, m.ips.factory, noreroute.NewPodSet()
	c, err := egressipmaster.New(egressipmaster.Deps{
		Kube:            m.env.Kube,
		Egress:          client,
		EgressIPs:       factory.EgressIP().V1().EgressIPs(),
		Namespaces:      core.Core().V1().Namespaces(),
		Pods:            core.Core().V1().Pods(),
		Nodes:           m.nodes,
		Services:        core.Core().V1().Services(),
		Addresses:       m.addresses,
		Writer:          m.writer,
		Health:          tracker,
		Barrier:         m.progress(),
		Rerouted:        pods,
		Given:           m.given,
		Static:          func(key string) bool { return pod.Static(m.writer.Rows(pod.Owner(key))) },
		LocalSNATs:      localSNATs,
		Recorder:        m.recorder,
		Network:         egressIPNetwork(cfg),
		Acknowledge:     cfg.Features.AcknowledgeTimeout,
		AssumeReachable: cfg.Features.ReachabilityTotalTimeout == 0,
		Audit:           m.audit,
		Metrics:         m.env.Metrics.Leader(),
	})
	if err != nil {
		return nil, nil, nil, err
	}
	m.auditSynced = append(m.auditSynced, c.Synced()...)
	m.runners["egress IPs"] = c
	measureEgressIPs(m.env.Metrics.Leader(), factory.EgressIP().V1().EgressIPs())
	m.env.Metrics.Leader().PodsHeld(c.Held)
	return c, []starter{factory}, pods, nil
}

// egressIPNetwork returns the part of the configuration that egress addresses must not overlap.
func egressIPNetwork(cfg config.Config) egressip.Network {
	n := egressip.Network{
		Cluster: cfg.Default.ClusterPrefixes(),
		Service: cfg.Kubernetes.ServiceCIDRs,
		Join:    joinSubnets(cfg),
	}
	for _, f := range cfg.Families() {
		n.Masquerade = append(n.Masquerade, cfg.Gateway.MasqueradeSubnet(f))
	}
	return n
}
