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

// Config is what a node's gateway is told.
type Config struct {
	// Node is the node's name in Kubernetes.
	Node string
	// Families of the cluster, IPv4 first.
	Families []topology.Family
	Mode     topology.GatewayMode
	// Interface is the uplink or the bridge that holds it; empty: the interface
	// of the default route.
	Interface string
	// ExternalGatewayInterface is the uplink to the network of external gateways, or the
	// bridge that holds it; empty: they are reached by Interface.
	ExternalGatewayInterface string
	// NextHops replace the default gateways of the routing table, by family.
	NextHops []netip.Addr
	// VLAN of traffic to the outside; 0 for none.
	VLAN int
	// NodePort says that the gateway serves NodePort services.
	NodePort bool
	// MTU of the management port, in bytes.
	MTU int
	// ClusterSubnets, ServiceCIDRs and MasqueradeSubnets are those of both families.
	ClusterSubnets, ServiceCIDRs, MasqueradeSubnets []netip.Prefix
	// ConntrackZone of the external bridge.
	ConntrackZone int
	// Egress says that an egress feature is enabled, hence that traffic from pods
	// to nodes is marked.
	Egress bool
	// EncapIP is where tunnels to this node end; invalid: the node's address.
	EncapIP netip.Addr
	// EncapPort is the UDP port of tunnels.
	EncapPort int
	// ControllerIDs are the external_ids for ovn-controller that follow from the
	// configuration alone.
	ControllerIDs map[string]string
	// TLS names the files with which ovn-controller reaches the southbound
	// database; zero where that does not speak TLS.
	TLS ovs.TLS
	// StateFile keeps what cannot be found out again where the Open vSwitch database
	// loses it.
	StateFile string
}

// Deps are the drivers and clients of a node's gateway.
type Deps struct {
	Kube kubernetes.Interface
	// Nodes have the annotations that are in force, Written those that the API has.
	// Both may be restricted to this node.
	Nodes, Written coreinformers.NodeInformer
	// Decide is told what the annotations of the node are to be, before they are written.
	Decide func(node types.UID, annotations map[string]*string)
	OVS    ovs.Client
	// Zones asks ovn-controller for the zones of conntrack that it uses, "name id" on each
	// line.
	Zones func(ctx context.Context) (string, error)
	// Flows are those of the external bridge, SecondFlows those of the bridge for external
	// gateways.
	Flows, SecondFlows *bridgenode.Manager

	Chains host.ChainWriter
	Routes host.Writer[host.Route, host.Hop]
	Addrs  host.Writer[host.Address, host.AddressUse] // owns all addresses of the management port
	// Settings are kernel parameters.
	Settings host.Writer[string, string]
	// Foreign are the addresses on the host's links that are not the host's own.
	Foreign func() []netip.Addr
}

const (
	// ovsTimeout bounds what waits for ovs-vswitchd in one pass.
	ovsTimeout = 10 * time.Second
	// settleTime is how long events are collected before a pass.
	settleTime = 100 * time.Millisecond
	// remindInterval is how often the log says what is being waited for.
	remindInterval = 10 * time.Second
	// userspace is the datapath type of bridges that packets reach by AF_PACKET.
	userspace = "netdev"
)

// External_ids of Open_vSwitch and of the external bridge.
const (
	idSystem       = "system-id"
	idHostname     = "hostname"
	idDatapathType = "ovn-bridge-datapath-type"
	idEncapIP      = "ovn-encap-ip"
	idRemote       = "ovn-remote"
	idMappings     = gateway.IDMappings
	idBridge       = "bridge-id"
	idBridgeUplink = "bridge-uplink"
	idAttachment   = "ovnkube-host"
)
