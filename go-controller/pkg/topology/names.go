package topology

// Names of the rows that exist once in a cluster.
const (
	// ClusterRouter is the distributed router that all node switches are attached to.
	ClusterRouter = "ovn_cluster_router"
	// JoinSwitch connects the cluster router with every gateway router.
	JoinSwitch = "join"
	// ClusterRouterToJoin is the port of ClusterRouter on JoinSwitch.
	ClusterRouterToJoin = "rtoj-" + ClusterRouter
	// JoinToClusterRouter is its peer on JoinSwitch.
	JoinToClusterRouter = "jtor-" + ClusterRouter
	// ManagementPort is the name of the host's interface on the node switch.
	ManagementPort = "ovn-k8s-mp0"
	// IntegrationBridge is the OVS bridge ovn-controller owns.
	IntegrationBridge = "br-int"
	// PhysicalNetwork is the name that bridge mappings and localnet ports share.
	PhysicalNetwork = "physnet"
	// ExternalGatewayNetwork is the same for the second uplink, which is for external
	// gateways.
	ExternalGatewayNetwork = "exgatewayphysnet"
)

// NodeIPSet is the address set of all addresses of nodes and API servers; the row of each
// family has the family's match prefix as suffix.
const NodeIPSet = "node_ips"

// ChainSNATMgmtPort is the nat chain for packets that leave the host through the management
// port; Services insert exceptions before its last rule.
const ChainSNATMgmtPort = "OVN-KUBE-SNAT-MGMTPORT"

// Load balancer groups: a load balancer in a group applies to all of its members.
const (
	// ClusterLBGroup has every node switch and every gateway router.
	ClusterLBGroup = "clusterLBGroup"
	// ClusterSwitchLBGroup has every node switch.
	ClusterSwitchLBGroup = "clusterSwitchLBGroup"
	// ClusterRouterLBGroup has every gateway router.
	ClusterRouterLBGroup = "clusterRouterLBGroup"
)

// NodeSwitch is the name of a node's logical switch: the node's own name.
func NodeSwitch(node string) string { return node }

// SwitchToRouter is the switch-side port between a node switch and the cluster router.
func SwitchToRouter(node string) string { return "stor-" + node }

// RouterToSwitch is the router-side port between the cluster router and a node switch.
func RouterToSwitch(node string) string { return "rtos-" + node }

// ManagementLSP is the logical port of the node's management interface.
func ManagementLSP(node string) string { return "k8s-" + node }

// GatewayRouter is the name of a node's gateway router.
func GatewayRouter(node string) string { return "GR_" + node }

// GatewayToJoin is the gateway router's port on the join switch.
func GatewayToJoin(node string) string { return "rtoj-" + GatewayRouter(node) }

// JoinToGateway is its peer on the join switch.
func JoinToGateway(node string) string { return "jtor-" + GatewayRouter(node) }

// GatewayToExternal is the gateway router's port on the external switch.
func GatewayToExternal(node string) string { return "rtoe-" + GatewayRouter(node) }

// ExternalToGateway is its peer on the external switch.
func ExternalToGateway(node string) string { return "etor-" + GatewayRouter(node) }

// ExternalSwitch is the name of the node's external switch.
func ExternalSwitch(node string) string { return "ext_" + node }

// secondUplinkPrefix is the prefix of the names of switches and ports that connect the
// gateway router to the second uplink.
const secondUplinkPrefix = "exgw-"

// ExternalGatewayPort is the gateway router's port on the external switch of the second
// uplink.
func ExternalGatewayPort(node string) string { return secondUplinkPrefix + GatewayToExternal(node) }

// ExternalGatewayPeer is its peer on that switch.
func ExternalGatewayPeer(node string) string { return secondUplinkPrefix + ExternalToGateway(node) }

// ExternalGatewaySwitch is the name of the external switch of the second uplink.
func ExternalGatewaySwitch(node string) string { return secondUplinkPrefix + ExternalSwitch(node) }

// ExternalInterface is the localnet port of a node's external switch, e.g.
// "breth0_node1" for bridge breth0. It is also the interface-id of the
// l3-gateway-config annotation.
func ExternalInterface(bridge, node string) string { return bridge + "_" + node }

// PatchPort is the port on bridge towards br-int for the localnet port of node,
// under the name that ovn-controller gives it.
func PatchPort(bridge, node string) string {
	return "patch-" + ExternalInterface(bridge, node) + "-to-" + IntegrationBridge
}

// PatchPeer is the other end of PatchPort, on br-int.
func PatchPeer(bridge, node string) string {
	return "patch-" + IntegrationBridge + "-to-" + ExternalInterface(bridge, node)
}

// PodPort is the logical switch port of a pod.
func PodPort(namespace, name string) string { return namespace + "_" + name }
