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

// Config is the complete, validated configuration. See the package documentation on its
// immutability.
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
	// PIDFile is written at startup and removed at exit; empty for none.
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
	// EncapIP is the tunnel endpoint of this node; invalid to use the node's own address.
	EncapIP netip.Addr
	// EncapPort is the UDP destination port of tunnels.
	EncapPort int
	// InactivityProbe of ovn-controller towards the southbound database.
	InactivityProbe time.Duration
	// OpenFlowProbe of ovn-controller towards ovs-vswitchd.
	OpenFlowProbe time.Duration
	// OFCtrlWaitBeforeClear is how long ovn-controller keeps old flows at startup.
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

// ClusterSubnet is a range of pod addresses, divided into one subnet per node.
type ClusterSubnet struct {
	CIDR netip.Prefix
	// HostPrefixLen is the prefix length of a node's subnet.
	HostPrefixLen int
}

// String returns the form that --cluster-subnets accepts, e.g. "10.244.0.0/16/24".
func (s ClusterSubnet) String() string {
	return s.CIDR.String() + "/" + strconv.Itoa(s.HostPrefixLen)
}

// ClusterPrefixes returns the pod address ranges without their host prefix lengths.
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
	// FileMaxSize is the size in megabytes at which the file is rotated.
	FileMaxSize int
	// FileMaxBackups and FileMaxAge (days) limit the rotated files that are kept; 0 keeps
	// all.
	FileMaxBackups, FileMaxAge int
	// EgressAudit is the file of the egress audit log, "-" for standard output; empty for
	// none.
	EgressAudit string
	// EgressAuditMaxSize is the size in megabytes at which it is rotated;
	// EgressAuditMaxBackups limits the rotated files that are kept, 0 for all.
	EgressAuditMaxSize, EgressAuditMaxBackups int
}

// CNI is the [cni] section.
type CNI struct {
	// ConfDir is where the network configuration for the runtime is written.
	ConfDir string
	// BinDir is where the runtime looks for executables.
	BinDir string
	// Plugin is the name of the executable that the runtime calls.
	Plugin string
}

// Kubernetes is the [kubernetes] section.
type Kubernetes struct {
	// Kubeconfig, if set, is the only setting used to reach the API server.
	Kubeconfig string
	// APIServer is the URL of the API server; empty means the pod's service account.
	APIServer string
	CACert    string
	Token     string
	TokenFile string
	// ServiceCIDRs are the ranges of cluster IPs, at most one per family.
	ServiceCIDRs []netip.Prefix
	// ConfigNamespace holds the lease of the leader.
	ConfigNamespace string
	// EmptyLBEvents requests reports about connections to Services without endpoints.
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
	// Insecure serves all of this to everybody, whatever the address is, and without TLS unless there is a
	// certificate.
	Insecure bool
	// ServerCert and ServerKey are the certificate of that listener; both or neither. On a loopback address, they
	// enable TLS.
	ServerKey, ServerCert string
}

// Restricted reports whether the listener requires TLS, and permission for everything but the health of the process:
// it can be reached from other hosts.
func (m Metrics) Restricted() bool {
	return m.BindAddress != "" && !m.Insecure && !onLoopback(m.BindAddress)
}

// onLoopback reports whether only this host's own programs reach the address of a listener. Of addresses that it does not
// understand, which may have brackets around IPv4 or no host at all, it assumes the opposite.
func onLoopback(listener string) bool {
	host, _, err := net.SplitHostPort(listener)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Page is the [page] section.
type Page struct {
	// BindAddress is where a master serves the egress map; empty to disable it.
	BindAddress string
	// Cert and Key enable TLS for that listener. Without them BindAddress must be a
	// loopback address.
	Key, Cert string
}

// Trace is the [trace] section.
type Trace struct {
	// BindAddress is where a node answers trace requests for packets; empty to disable it.
	BindAddress string
}

// Scheme is the transport to an OVSDB server.
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
	// Path of the socket if Scheme is SchemeUnix.
	Path string
	// Host and Port otherwise; Host is an address or a name, without brackets.
	Host string
	Port uint16
}

// String returns the form that OVSDB clients accept: "unix:/path", "ssl:10.0.0.1:6641",
// "tcp:[fd00::1]:6641".
func (e Endpoint) String() string {
	if e.Scheme == SchemeUnix {
		return string(e.Scheme) + ":" + e.Path
	}
	return string(e.Scheme) + ":" + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Database is the [ovnnorth] or the [ovnsouth] section.
type Database struct {
	// Endpoints are the members of the database cluster, at least one, all with the same
	// scheme.
	Endpoints []Endpoint
	// PrivKey, Cert and CACert are files; they are used if Secure returns true.
	PrivKey, Cert, CACert string
	// CommonName is the name that the server's certificate must have; empty to accept any
	// name that the authority signed.
	CommonName string
}

// Secure reports whether the connection uses TLS.
func (d Database) Secure() bool {
	return len(d.Endpoints) > 0 && d.Endpoints[0].Scheme == SchemeSSL
}

// URLs returns the endpoints as strings, one per member.
func (d Database) URLs() []string {
	out := make([]string, 0, len(d.Endpoints))
	for _, e := range d.Endpoints {
		out = append(out, e.String())
	}
	return out
}

// Remote returns the endpoints separated by commas, as expected by external_ids:ovn-remote
// and the --db option of the OVN tools.
func (d Database) Remote() string { return strings.Join(d.URLs(), ",") }

// GatewayMode determines how pods reach external networks.
type GatewayMode = topology.GatewayMode

// The gateway modes.
const (
	// GatewayLocal sends pod traffic through the host's network stack.
	GatewayLocal = topology.GatewayLocal
	// GatewayShared sends it directly from OVN to the uplink.
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
	// VLANID is the VLAN tag of external traffic; 0 for none.
	VLANID int
	// NodePort makes gateways serve NodePort Services.
	NodePort bool
	// DisableSNATMultipleGWs makes source NAT per pod instead of per cluster subnet.
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
	// GatewayNamespaces are the namespaces whose pods may be external gateways by
	// annotation; nil for all.
	GatewayNamespaces []string
	// NodeLocalAddresses are addresses, besides the link-local ones, that pods reach
	// through their own node, whichever egress feature selects the pods.
	NodeLocalAddresses []netip.Prefix
	// ReachabilityTotalTimeout is how long a node may fail to answer before its egress
	// addresses move; 0 considers every node reachable.
	ReachabilityTotalTimeout time.Duration
	// AcknowledgeTimeout is how long a reachable node may take to acknowledge an egress
	// address before another node gets it; 0 for no limit.
	AcknowledgeTimeout time.Duration
	// NodeHealthCheckPort is the port on which nodes answer health probes; 0 dials the
	// DISCARD port instead.
	NodeHealthCheckPort int
}

// OVNControllerIDNames returns all keys that OVNControllerIDs returns.
func OVNControllerIDNames() []string {
	return slices.Sorted(maps.Keys(Config{}.OVNControllerIDs()))
}

// OVNControllerIDs returns the external_ids of Open vSwitch that ovn-controller reads and
// that depend only on the configuration; those with an empty value are to be deleted, since an earlier configuration
// may have set them. The node adds its own: system-id, hostname,
// ovn-encap-ip, ovn-bridge-mappings.
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
	ids["ovn-limit-lflow-cache"], ids["ovn-memlimit-lflow-cache-kb"] = "", ""
	if d.LFlowCacheLimit > 0 {
		ids["ovn-limit-lflow-cache"] = strconv.Itoa(d.LFlowCacheLimit)
	}
	if d.LFlowCacheLimitKB > 0 {
		ids["ovn-memlimit-lflow-cache-kb"] = strconv.Itoa(d.LFlowCacheLimitKB)
	}
	return ids
}
