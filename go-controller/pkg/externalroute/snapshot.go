package externalroute

import (
	"net/netip"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Snapshot is everything that names gateways, and the objects that policies select.
type Snapshot struct {
	Policies   []*v1.AdminPolicyBasedExternalRoute
	Namespaces []Namespace
	// Announced are the pods that claim by annotation to be gateways.
	Announced []GatewayPod
	// Pods returns the pods of a namespace, for the policies' pod selectors.
	Pods func(namespace string) []GatewayPod
	// NodeAddrs are the addresses of the nodes, by node.
	NodeAddrs map[string][]netip.Addr
	// Networks are the networks of the nodes' gateway routers.
	Networks []netip.Prefix
}

// Namespace is a namespace with its annotations decoded.
type Namespace struct {
	Name   string
	Labels map[string]string
	// Static and BFD are from its annotations; Bad are the entries that are not
	// addresses.
	Static []netip.Addr
	Bad    []string
	BFD    bool
}

// GatewayPod is a pod as a gateway.
type GatewayPod struct {
	Key    string // "namespace/name"
	Labels map[string]string
	// Ready: it is running, ready and not being deleted.
	Ready bool
	// HostNetwork: it uses the host's network and has HostAddrs.
	HostNetwork bool
	HostAddrs   []netip.Addr
	// Networks are its attached networks; NetworksErr says why they are unknown.
	Networks    []topology.Attachment
	NetworksErr string
	// Routing, RoutingNetwork and BFD are from its annotations.
	Routing        []string
	RoutingNetwork string
	BFD            bool
}

// Config is the part of the configuration that the planner depends on.
type Config struct {
	// Cluster are the pod subnets; their families are the families of the cluster.
	Cluster []netip.Prefix
	// Internal are the other ranges that cannot contain gateways: those of Services,
	// the join switch and masquerading.
	Internal []netip.Prefix
	// Join are the ranges of the join switch, from which routers connect to pods.
	Join []netip.Prefix
	// DisableSNATMultipleGWs translates pods individually, and pods with gateways
	// not at all.
	DisableSNATMultipleGWs bool
	// GatewayNamespaces are the namespaces whose pods may be gateways by annotation; nil
	// means all.
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
	Timers   Timers // of the BFD session
	SkipSNAT bool
}

// Timers are the timers of a BFD session; zero means OVN's default. MinRx and
// MinTx are in milliseconds.
type Timers struct{ MinRx, MinTx, Multiplier int }
