package externalroute

import (
	"net/netip"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Snapshot is everything that names gateways or is selected by what does.
type Snapshot struct {
	Policies   []*v1.AdminPolicyBasedExternalRoute
	Namespaces []Namespace
	// Announced are the pods that say by annotation that they are gateways.
	Announced []GatewayPod
	// Pods returns the pods of a namespace, for the policies' pod selectors.
	Pods func(namespace string) []GatewayPod
	// NodeAddrs are the addresses of the nodes, by node.
	NodeAddrs map[string][]netip.Addr
	// Networks are those that the gateway routers of the nodes are on.
	Networks []netip.Prefix
}

// Namespace is a namespace with its annotations decoded.
type Namespace struct {
	Name   string
	Labels map[string]string
	// Static and BFD are what its annotations say; Bad is what of them is no
	// address.
	Static []netip.Addr
	Bad    []string
	BFD    bool
}

// GatewayPod is a pod in its capacity as a gateway.
type GatewayPod struct {
	Key    string // "namespace/name"
	Labels map[string]string
	// Ready: it runs, is ready and is not being deleted.
	Ready bool
	// HostNetwork: it is on the host's network and has HostAddrs.
	HostNetwork bool
	HostAddrs   []netip.Addr
	// Networks are those it is attached to; NetworksErr says why they are unknown.
	Networks    []topology.Attachment
	NetworksErr string
	// Routing, RoutingNetwork and BFD are what its annotations say.
	Routing        []string
	RoutingNetwork string
	BFD            bool
}

// Config is what of the configuration the planner depends on.
type Config struct {
	// Cluster are the pod subnets; their families are the families of the cluster.
	Cluster []netip.Prefix
	// Internal are the other ranges that no gateway can be in: those of Services,
	// of the join switch and of masquerading.
	Internal []netip.Prefix
	// Join are the ranges of the join switch: routers call pods from there.
	Join []netip.Prefix
	// DisableSNATMultipleGWs translates pods one by one, and those with gateways
	// not at all.
	DisableSNATMultipleGWs bool
	// GatewayNamespaces are those whose pods may be gateways by annotation; nil
	// for all.
	GatewayNamespaces []string
}

// families returns the families of the cluster.
func (c Config) families() []topology.Family {
	var fams []topology.Family
	for _, f := range topology.Families {
		if _, ok := topology.PrefixOf(f, c.Cluster); ok {
			fams = append(fams, f)
		}
	}
	return fams
}

// Hop is a gateway of a namespace.
type Hop struct {
	Addr     netip.Addr
	BFD      bool
	Timers   Timers // of BFD
	SkipSNAT bool
}

// Timers are the timers of a BFD session, zero for OVN's defaults. MinRx and
// MinTx are in milliseconds.
type Timers struct{ MinRx, MinTx, Multiplier int }
