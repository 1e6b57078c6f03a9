package node

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"

	bridgenode "github.com/ovnkube/ovnkube/go-controller/pkg/bridge/node"
)

// Config is the configuration of a node's gateway.
type Config struct {
	// Node is the node's name in Kubernetes.
	Node string
	// Families of the cluster, IPv4 first.
	Families []topology.Family
	Mode     topology.GatewayMode
	// Interface is the uplink or the bridge that contains it; empty: the interface
	// of the default route.
	Interface string
	// ExternalGatewayInterface is the uplink to the network of external gateways, or the
	// bridge that contains it; empty: they are reached through Interface.
	ExternalGatewayInterface string
	// NextHops replace the default gateways of the routing table, by family.
	NextHops []netip.Addr
	// VLAN of traffic to external networks; 0 for none.
	VLAN int
	// NodePort says that the gateway serves NodePort Services.
	NodePort bool
	// MTU of the management port, in bytes.
	MTU int
	// ClusterSubnets, ServiceCIDRs and MasqueradeSubnets contain both families.
	ClusterSubnets, ServiceCIDRs, MasqueradeSubnets []netip.Prefix
	// ConntrackZone of the external bridge.
	ConntrackZone int
	// Egress says that an egress feature is enabled, and hence that traffic from pods
	// to nodes is marked.
	Egress bool
	// EncapIP is the tunnel endpoint of this node; invalid: the node's address.
	EncapIP netip.Addr
	// EncapPort is the UDP port of tunnels.
	EncapPort int
	// ControllerIDs are the external_ids for ovn-controller that depend only on the
	// configuration; those with an empty value are deleted.
	ControllerIDs map[string]string
	// TLS contains the names of the files with which ovn-controller connects to the southbound
	// database; zero if the database does not use TLS.
	TLS ovs.TLS
	// StateFile stores the state that cannot be determined again if the Open vSwitch database
	// loses it.
	StateFile string
}

// Deps are the drivers and clients of a node's gateway.
type Deps struct {
	Kube kubernetes.Interface
	// Nodes has the annotations that are in force, Written those in the API.
	// Both may be restricted to this node.
	Nodes, Written coreinformers.NodeInformer
	// Decide receives the new annotations of the node before they are written.
	Decide func(node types.UID, annotations map[string]*string)
	OVS    ovs.Client
	// Zones returns the conntrack zones that ovn-controller uses, "name id" on each
	// line.
	Zones func(ctx context.Context) (string, error)
	// Flows manages the flows of the external bridge, SecondFlows those of the bridge for external
	// gateways.
	Flows, SecondFlows *bridgenode.Manager
	// Release removes our flows from a bridge that is no longer used and that others have made.
	Release func(ctx context.Context, bridge string) error

	Chains host.ChainWriter
	Routes host.Writer[host.Route, host.Hop]
	Addrs  host.Writer[host.Address, host.AddressUse] // manages all addresses of the management port
	// Settings manages kernel parameters.
	Settings host.Writer[string, string]
	// Foreign returns the addresses on the host's links that are not the host's own.
	Foreign func() []netip.Addr
}

const (
	// ovsTimeout limits the wait for ovs-vswitchd in one pass.
	ovsTimeout = 10 * time.Second
	// settleTime is how long events are collected before a pass.
	settleTime = 100 * time.Millisecond
	// remindInterval is the interval for logging what the node is waiting for.
	remindInterval = 10 * time.Second
)

// External_ids of Open_vSwitch and of the external bridge.
const (
	idSystem       = "system-id"
	idHostname     = "hostname"
	idEncapIP      = "ovn-encap-ip"
	idRemote       = "ovn-remote"
	idMappings     = gateway.IDMappings
	idBridge       = "bridge-id"
	idBridgeUplink = "bridge-uplink"
	idAttachment   = "ovnkube-host"
)
