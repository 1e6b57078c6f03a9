package config

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Config is the whole configuration, validated. See the package documentation
// for its immutability.
type Config struct {
	Default    Default
	Logging    Logging
	CNI        CNI
	Kubernetes Kubernetes
	Metrics    Metrics
	Page       Page
	Trace      Trace
	OVNNorth   Database
	OVNSouth   Database
	Gateway    Gateway
	MasterHA   LeaderElection
	Features   Features
	// PIDFile is written at start and removed at the end; empty for none.
	PIDFile string
}

// Default is the [default] section: the overlay network.
type Default struct {
	// ClusterSubnets are the address ranges of pods, at least one, in the order
	// given. The families in it are the families of the cluster.
	ClusterSubnets []ClusterSubnet
	// MTU of pod interfaces in bytes.
	MTU int
	// ConntrackZone is used on the external bridge.
	ConntrackZone int
	// EncapType is the tunnel protocol between nodes: "geneve".
	EncapType string
	// EncapIP is the tunnel endpoint of this node; invalid where the node's own
	// address is to be taken.
	EncapIP netip.Addr
	// EncapPort is the UDP destination port of tunnels.
	EncapPort int
	// InactivityProbe of ovn-controller towards the southbound database.
	InactivityProbe time.Duration
	// OpenFlowProbe of ovn-controller towards ovs-vswitchd.
	OpenFlowProbe time.Duration
	// OFCtrlWaitBeforeClear is how long ovn-controller keeps old flows at start.
	OFCtrlWaitBeforeClear time.Duration
	// MonitorAll makes ovn-controller watch the whole southbound database.
	MonitorAll bool
	// LFlowCache enables the logical flow cache of ovn-controller.
	LFlowCache bool
	// LFlowCacheLimit is the number of cached flows; 0 is ovn-controller's default.
	LFlowCacheLimit int
	// LFlowCacheLimitKB is the memory of the cache; 0 is ovn-controller's default.
	LFlowCacheLimitKB int
}

// ClusterSubnet is a range of pod addresses, cut into one subnet per node.
type ClusterSubnet struct {
	CIDR netip.Prefix
	// HostPrefixLen is the prefix length of a node's subnet.
	HostPrefixLen int
}

// String returns the form --cluster-subnets takes, e.g. "10.244.0.0/16/24".
func (s ClusterSubnet) String() string {
	return s.CIDR.String() + "/" + strconv.Itoa(s.HostPrefixLen)
}

// ClusterPrefixes returns the pod address ranges without their host lengths.
func (d Default) ClusterPrefixes() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(d.ClusterSubnets))
	for _, s := range d.ClusterSubnets {
		out = append(out, s.CIDR)
	}
	return out
}

// Families returns the address families of the cluster, IPv4 first.
func (c Config) Families() []topology.Family {
	return familiesOf(c.Default.ClusterPrefixes())
}

// Logging is the [logging] section.
type Logging struct {
	// Level is klog's verbosity, 0 to 5 and beyond.
	Level int
	// File receives the log; empty logs to standard error.
	File string
	// FileMaxSize in megabytes rotates the file.
	FileMaxSize int
	// FileMaxBackups and FileMaxAge (days) bound what rotation keeps; 0 keeps all.
	FileMaxBackups, FileMaxAge int
	// EgressAudit is the file of the egress audit log, "-" for standard output; empty for
	// none.
	EgressAudit string
	// EgressAuditMaxSize in megabytes rotates it; EgressAuditMaxBackups bounds what
	// rotation keeps, 0 for all.
	EgressAuditMaxSize, EgressAuditMaxBackups int
}

// CNI is the [cni] section.
type CNI struct {
	// ConfDir is where the network configuration for the runtime is written.
	ConfDir string
	// BinDir is where the runtime looks for executables.
	BinDir string
	// Plugin is the name of the executable the runtime calls.
	Plugin string
}

// Kubernetes is the [kubernetes] section.
type Kubernetes struct {
	// Kubeconfig, where set, is all that is used to reach the API server.
	Kubeconfig string
	// APIServer is the URL of the API server; empty means the pod's service account.
	APIServer string
	CACert    string
	Token     string
	TokenFile string
	// ServiceCIDRs are the ranges of cluster IPs, at most one a family.
	ServiceCIDRs []netip.Prefix
	// ConfigNamespace holds the lease of the leader.
	ConfigNamespace string
	// EmptyLBEvents asks for reports about connections to services without endpoints.
	EmptyLBEvents bool
	// HealthzBindAddress serves /healthz and /readyz only; empty for none.
	HealthzBindAddress string
}

// Metrics is the [metrics] section.
type Metrics struct {
	// BindAddress serves /metrics, /healthz and /readyz; empty for no listener.
	BindAddress string
	// EnablePprof adds /debug/pprof/ there.
	EnablePprof bool
	// ServerCert and ServerKey make that listener speak TLS; both or neither.
	ServerKey, ServerCert string
}

// Page is the [page] section.
type Page struct {
	// BindAddress is where a master serves the egress map; empty for nowhere.
	BindAddress string
	// Cert and Key make that listener speak TLS. Without them it is on a loopback address.
	Key, Cert string
}

// Trace is the [trace] section.
type Trace struct {
	// BindAddress is where a node answers questions about packets; empty for nowhere.
	BindAddress string
}

// Scheme is how an OVSDB server is reached.
type Scheme string

// The schemes of an Endpoint.
const (
	SchemeTCP  Scheme = "tcp"
	SchemeSSL  Scheme = "ssl"
	SchemeUnix Scheme = "unix"
)

// Endpoint is one address of an OVSDB server.
type Endpoint struct {
	Scheme Scheme
	// Path of the socket where Scheme is SchemeUnix.
	Path string
	// Host and Port otherwise; Host is an address or a name, without brackets.
	Host string
	Port uint16
}

// String returns the form OVSDB clients take: "unix:/path", "ssl:10.0.0.1:6641",
// "tcp:[fd00::1]:6641".
func (e Endpoint) String() string {
	if e.Scheme == SchemeUnix {
		return string(e.Scheme) + ":" + e.Path
	}
	return string(e.Scheme) + ":" + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Database is the [ovnnorth] or the [ovnsouth] section.
type Database struct {
	// Endpoints are the members of the database cluster, at least one, all of
	// one scheme.
	Endpoints []Endpoint
	// PrivKey, Cert and CACert are files; they matter where Secure is true.
	PrivKey, Cert, CACert string
	// CommonName is what the server's certificate must carry; empty to check the
	// host of the endpoint instead.
	CommonName string
}

// Secure says whether the connection speaks TLS.
func (d Database) Secure() bool {
	return len(d.Endpoints) > 0 && d.Endpoints[0].Scheme == SchemeSSL
}

// URLs returns the endpoints as strings, one a member.
func (d Database) URLs() []string {
	out := make([]string, 0, len(d.Endpoints))
	for _, e := range d.Endpoints {
		out = append(out, e.String())
	}
	return out
}

// Remote returns the endpoints separated by commas, as external_ids:ovn-remote
// and the --db option of the OVN tools take them.
func (d Database) Remote() string { return strings.Join(d.URLs(), ",") }

// GatewayMode says how pods reach the outside.
type GatewayMode = topology.GatewayMode

// The gateway modes.
const (
	// GatewayLocal sends pod traffic through the host's network stack.
	GatewayLocal = topology.GatewayLocal
	// GatewayShared sends it from OVN to the uplink directly.
	GatewayShared = topology.GatewayShared
)

// Gateway is the [gateway] section.
type Gateway struct {
	Mode GatewayMode
	// Interface is the uplink or the bridge that holds it; empty means the
	// interface of the default route.
	Interface string
	// ExternalGatewayInterface is the second uplink, for external gateways, or the bridge
	// that holds it; empty for none.
	ExternalGatewayInterface string
	// NextHops replace the node's default gateways; empty keeps them.
	NextHops []netip.Addr
	// VLANID tags traffic to the outside; 0 for none.
	VLANID int
	// NodePort makes gateways serve NodePort services.
	NodePort bool
	// DisableSNATMultipleGWs translates per pod instead of per cluster subnet.
	DisableSNATMultipleGWs bool
	V4JoinSubnet           netip.Prefix
	V6JoinSubnet           netip.Prefix
	V4MasqueradeSubnet     netip.Prefix
	V6MasqueradeSubnet     netip.Prefix
}

// JoinSubnet returns the subnet between the cluster router and the gateway routers.
func (g Gateway) JoinSubnet(f topology.Family) netip.Prefix {
	if f == topology.IPv4 {
		return g.V4JoinSubnet
	}
	return g.V6JoinSubnet
}

// MasqueradeSubnet returns the range of addresses that never leave a node.
func (g Gateway) MasqueradeSubnet(f topology.Family) netip.Prefix {
	if f == topology.IPv4 {
		return g.V4MasqueradeSubnet
	}
	return g.V6MasqueradeSubnet
}

// LeaderElection is the [masterha] section; LeaseDuration > RenewDeadline >
// 1.2 * RetryPeriod.
type LeaderElection struct {
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Features is the [ovnkubernetesfeature] section.
type Features struct {
	EgressIP             bool
	EgressService        bool
	MultiExternalGateway bool
	// GatewayNamespaces are those whose pods may be external gateways by
	// annotation; nil for all.
	GatewayNamespaces []string
	// NodeLocalAddresses are those that pods reach by their own node, whatever egress
	// feature has them, beside the link-local ones.
	NodeLocalAddresses []netip.Prefix
	// ReachabilityTotalTimeout is how long a node may be silent before its egress
	// addresses move; 0 takes every node as reachable.
	ReachabilityTotalTimeout time.Duration
	// AcknowledgeTimeout is how long a node that can be reached may take to acknowledge
	// an egress address before another one gets it; 0 is for ever.
	AcknowledgeTimeout time.Duration
	// NodeHealthCheckPort is the port nodes answer health probes at; 0 dials the
	// DISCARD port instead.
	NodeHealthCheckPort int
}

// OVNControllerIDNames are the names of all that OVNControllerIDs may return.
func OVNControllerIDNames() []string {
	all := Config{Default: Default{LFlowCacheLimit: 1, LFlowCacheLimitKB: 1}}
	return slices.Sorted(maps.Keys(all.OVNControllerIDs()))
}

// OVNControllerIDs returns the external_ids of Open vSwitch that ovn-controller
// reads and that follow from the configuration alone. The node adds its own:
// system-id, hostname, ovn-encap-ip, ovn-bridge-mappings.
func (c Config) OVNControllerIDs() map[string]string {
	d := c.Default
	ids := map[string]string{
		"ovn-remote":                   c.OVNSouth.Remote(),
		"ovn-encap-type":               d.EncapType,
		"ovn-remote-probe-interval":    strconv.FormatInt(d.InactivityProbe.Milliseconds(), 10),
		"ovn-openflow-probe-interval":  strconv.Itoa(int(d.OpenFlowProbe.Seconds())),
		"ovn-monitor-all":              strconv.FormatBool(d.MonitorAll),
		"ovn-ofctrl-wait-before-clear": strconv.FormatInt(d.OFCtrlWaitBeforeClear.Milliseconds(), 10),
		"ovn-enable-lflow-cache":       strconv.FormatBool(d.LFlowCache),
	}
	if d.LFlowCacheLimit > 0 {
		ids["ovn-limit-lflow-cache"] = strconv.Itoa(d.LFlowCacheLimit)
	}
	if d.LFlowCacheLimitKB > 0 {
		ids["ovn-memlimit-lflow-cache-kb"] = strconv.Itoa(d.LFlowCacheLimitKB)
	}
	return ids
}
