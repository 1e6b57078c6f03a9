package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Options is the table of everything that can be set, in the order of the sections of the
// file. It is read-only.
var Options = slices.Concat(
	programOptions, defaultOptions, loggingOptions, monitoringOptions, cniOptions, kubernetesOptions,
	metricsOptions, pageOptions, traceOptions, northOptions, southOptions, gatewayOptions, masterHAOptions,
	featureOptions, hybridOverlayOptions, nodeOptions, clusterManagerOptions,
)

var programOptions = []*Option{
	{
		Flag: "pidfile", Usage: "File that holds the process id while the program runs",
		value: to(path("a file"), func(c *Config) *string { return &c.PIDFile }),
	},
	{
		Flag: "enable-multicast", Default: "false", Usage: "Let pods use IP multicast between each other",
		NoEffect: "pods have no multicast", value: unused(boolean()),
	},
	{
		Flag: "unprivileged-mode", Default: "false", Usage: "Run the node without privileges",
		NoEffect: "the node always does the privileged part of attaching pods itself", value: unused(boolean()),
	},
	{
		Flag: "nbctl-daemon-mode", Default: "false", Usage: "Run ovn-nbctl as a daemon",
		NoEffect: "ovn-nbctl is not used", value: unused(boolean()),
	},
}

var defaultOptions = []*Option{
	{
		Flag: "cluster-subnets", OldFlag: "cluster-subnet", Section: "default", Key: "cluster-subnets", Default: "10.128.0.0/14/23",
		Usage: "Address ranges of pods and the size of each node's share",
		value: to(clusterSubnets(), func(c *Config) *[]ClusterSubnet { return &c.Default.ClusterSubnets }),
	},
	{
		Flag: "mtu", Section: "default", Key: "mtu", Default: "1400", Usage: "MTU of the overlay network, hence of pod interfaces",
		value: to(number("a number of bytes", 576, 65535), func(c *Config) *int { return &c.Default.MTU }),
	},
	{
		Flag: "routable-mtu", Section: "default", Key: "routable-mtu", Usage: "MTU of routes out of the cluster, set while the MTU of a cluster is being changed",
		NoEffect: "pod routes use the MTU of the interface", value: unused(number("a number of bytes", 576, 65535)),
	},
	{
		Flag: "conntrack-zone", Section: "default", Key: "conntrack-zone", Default: "64000", Usage: "Conntrack zone of the external bridge",
		value: to(zone(), func(c *Config) *int { return &c.Default.ConntrackZone }),
	},
	{
		Section: "default", Key: "host-masquerade-conntrack-zone", Default: "64001", Usage: "Conntrack zone for traffic from the host to services",
		NoEffect: "the host reaches services through its management port", value: unused(zone()),
	},
	{
		Section: "default", Key: "ovn-masquerade-conntrack-zone", Default: "64002", Usage: "Conntrack zone for traffic from services to the host",
		NoEffect: "the host reaches services through its management port", value: unused(zone()),
	},
	{
		Section: "default", Key: "host-nodeport-conntrack-zone", Default: "64003", Usage: "Conntrack zone for NodePorts of endpoints on the host network",
		NoEffect: "the host's own network stack serves them", value: unused(zone()),
	},
	{
		Section: "default", Key: "reassembly-conntrack-zone", Default: "64004", Usage: "Conntrack zone that reassembles fragments",
		NoEffect: "fragments pass in the zone of their connection", value: unused(zone()),
	},
	{
		Flag: "encap-type", Section: "default", Key: "encap-type", Default: "geneve", Usage: "Protocol of the tunnels between nodes",
		value: to(oneOf("geneve"), func(c *Config) *string { return &c.Default.EncapType }),
	},
	{
		Flag: "encap-ip", Section: "default", Key: "encap-ip", Usage: "Address of this node that tunnels end at, instead of the node's own",
		value: to(address(), func(c *Config) *netip.Addr { return &c.Default.EncapIP }),
	},
	{
		Flag: "encap-port", Section: "default", Key: "encap-port", Default: "6081", Usage: "UDP port of the tunnels",
		value: to(port(), func(c *Config) *int { return &c.Default.EncapPort }),
	},
	{
		Flag: "inactivity-probe", Section: "default", Key: "inactivity-probe", Default: "100000",
		Usage: "Time after which ovn-controller probes the southbound database",
		value: to(duration("milliseconds", time.Millisecond, 0, 1<<30), func(c *Config) *time.Duration { return &c.Default.InactivityProbe }),
	},
	{
		Flag: "openflow-probe", Section: "default", Key: "openflow-probe", Default: "180",
		Usage: "Time after which ovn-controller probes its OpenFlow connection",
		value: to(duration("seconds", time.Second, 0, 1<<20), func(c *Config) *time.Duration { return &c.Default.OpenFlowProbe }),
	},
	{
		Flag: "ofctrl-wait-before-clear", Section: "default", Key: "ofctrl-wait-before-clear", Default: "0",
		Usage: "Time ovn-controller keeps the flows it found when it starts",
		value: to(duration("milliseconds", time.Millisecond, 0, 1<<30), func(c *Config) *time.Duration { return &c.Default.OFCtrlWaitBeforeClear }),
	},
	{
		Flag: "monitor-all", Section: "default", Key: "monitor-all", Default: "true", Usage: "Let ovn-controller watch the whole southbound database",
		value: to(boolean(), func(c *Config) *bool { return &c.Default.MonitorAll }),
	},
	{
		Flag: "enable-lflow-cache", Section: "default", Key: "enable-lflow-cache", Default: "true", Usage: "Let ovn-controller cache logical flows",
		value: to(boolean(), func(c *Config) *bool { return &c.Default.LFlowCache }),
	},
	{
		Flag: "lflow-cache-limit", Section: "default", Key: "lflow-cache-limit", Default: "0", Usage: "Size of that cache; 0 leaves it to ovn-controller",
		value: to(number("a number of flows", 0, 1<<31-1), func(c *Config) *int { return &c.Default.LFlowCacheLimit }),
	},
	{
		Flag: "lflow-cache-limit-kb", Section: "default", Key: "lflow-cache-limit-kb", Default: "0", Usage: "Memory of that cache; 0 leaves it to ovn-controller",
		value: to(number("kilobytes", 0, 1<<31-1), func(c *Config) *int { return &c.Default.LFlowCacheLimitKB }),
	},
	{
		Flag: "enable-udp-aggregation", Section: "default", Key: "enable-udp-aggregation", Default: "true", Usage: "Aggregate UDP packets on pod interfaces",
		NoEffect: "pod interfaces keep what the kernel sets", value: unused(boolean()),
	},
	{
		Flag: "zone", Section: "default", Key: "zone", Default: "global", Usage: "Interconnection zone of this node",
		NoEffect: "all nodes share one zone", value: unused(words("the name of a zone")),
	},
}

var loggingOptions = []*Option{
	{
		Flag: "loglevel", Section: "logging", Key: "loglevel", Default: "2",
		Usage: "Verbosity: 2 shows changes, 4 also what needed none, 5 every row",
		value: to(number("a number", 0, 10), func(c *Config) *int { return &c.Logging.Level }),
	},
	{
		Flag: "logfile", Section: "logging", Key: "logfile", Usage: "File that receives the log instead of standard error",
		value: to(path("a file"), func(c *Config) *string { return &c.Logging.File }),
	},
	{
		Flag: "logfile-maxsize", Section: "logging", Key: "logfile-maxsize", Default: "100", Usage: "Size at which the log file is rotated",
		value: to(number("megabytes", 1, 1<<20), func(c *Config) *int { return &c.Logging.FileMaxSize }),
	},
	{
		Flag: "logfile-maxbackups", Section: "logging", Key: "logfile-maxbackups", Default: "5", Usage: "Rotated log files to keep; 0 keeps all",
		value: to(number("a number of files", 0, 1<<20), func(c *Config) *int { return &c.Logging.FileMaxBackups }),
	},
	{
		Flag: "logfile-maxage", Section: "logging", Key: "logfile-maxage", Default: "5", Usage: "Age at which rotated log files are removed; 0 keeps them",
		value: to(number("a number of days", 0, 1<<20), func(c *Config) *int { return &c.Logging.FileMaxAge }),
	},
	{
		Flag: "egress-audit-log", Section: "logging", Key: "egress-audit-log",
		Usage: "File in which the leading master records which node and which pods have which egress address",
		value: to(fileOrStdout(), func(c *Config) *string { return &c.Logging.EgressAudit }),
	},
	{
		Flag: "egress-audit-log-maxsize", Section: "logging", Key: "egress-audit-log-maxsize", Default: "100", Usage: "Size at which that file is rotated",
		value: to(number("megabytes", 1, 1<<20), func(c *Config) *int { return &c.Logging.EgressAuditMaxSize }),
	},
	{
		Flag: "egress-audit-log-maxbackups", Section: "logging", Key: "egress-audit-log-maxbackups", Default: "0", Usage: "Rotated files of that log to keep; 0 keeps all",
		value: to(number("a number of files", 0, 1<<20), func(c *Config) *int { return &c.Logging.EgressAuditMaxBackups }),
	},
	{
		Flag: "libovsdblogfile", Section: "logging", Key: "libovsdblogfile", Usage: "File that receives the log of the OVSDB client",
		NoEffect: "the OVSDB client logs into the same log", value: unused(path("a file")),
	},
	{
		Flag: "acl-logging-rate-limit", Section: "logging", Key: "acl-logging-rate-limit", Default: "20",
		Usage: "ACL log messages per second", NoEffect: "there are no ACLs to log",
		value: unused(number("a number of messages", 0, 1<<31-1)),
	},
}

const noFlowExport = "flow export is not configured by this program"

var monitoringOptions = []*Option{
	{
		Flag: "netflow-targets", Section: "monitoring", Key: "netflow-targets", Usage: "NetFlow collectors",
		NoEffect: noFlowExport, value: unused(words("HOST:PORT separated by commas")),
	},
	{
		Flag: "sflow-targets", Section: "monitoring", Key: "sflow-targets", Usage: "sFlow collectors",
		NoEffect: noFlowExport, value: unused(words("HOST:PORT separated by commas")),
	},
	{
		Flag: "ipfix-targets", Section: "monitoring", Key: "ipfix-targets", Usage: "IPFIX collectors",
		NoEffect: noFlowExport, value: unused(words("HOST:PORT separated by commas")),
	},
	{
		Flag: "ipfix-sampling", Section: "ipfix", Key: "sampling", Default: "400", Usage: "One of how many packets is sampled",
		NoEffect: noFlowExport, value: unused(number("a number of packets", 0, 1<<32-1)),
	},
	{
		Flag: "ipfix-cache-max-flows", Section: "ipfix", Key: "cache-max-flows", Default: "0", Usage: "Flow records cached at a time",
		NoEffect: noFlowExport, value: unused(number("a number of flows", 0, 1<<32-1)),
	},
	{
		Flag: "ipfix-cache-active-timeout", Section: "ipfix", Key: "cache-active-timeout", Default: "60", Usage: "Time a flow record is cached",
		NoEffect: noFlowExport, value: unused(number("seconds", 0, 4200)),
	},
}

var cniOptions = []*Option{
	{
		Flag: "cni-conf-dir", Section: "cni", Key: "conf-dir", Default: "/etc/cni/net.d", Usage: "Directory of the container runtime's network configuration",
		value: to(path("a directory"), func(c *Config) *string { return &c.CNI.ConfDir }),
	},
	{
		Flag: "cni-bin-dir", Section: "cni", Key: "bin-dir", Default: "/opt/cni/bin",
		Usage: "Directory of the container runtime's CNI executables. Where portmap is among them, it serves the host ports of pods",
		value: to(path("a directory"), func(c *Config) *string { return &c.CNI.BinDir }),
	},
	{
		Flag: "cni-plugin", Section: "cni", Key: "plugin", Default: "ovn-k8s-cni-overlay", Usage: "Name of the CNI executable",
		value: to(fileName("the name of an executable"), func(c *Config) *string { return &c.CNI.Plugin }),
	},
}

var traceOptions = []*Option{
	{
		Flag: "trace-bind-address", Section: "trace", Key: "bind-address",
		Usage: "Where a node answers \"ovnkube egress trace\", over TLS and to those who may get nodes/trace, or create nodes/probe; the port is the same on all nodes. Empty for nowhere",
		value: to(listenAddress(), func(c *Config) *string { return &c.Trace.BindAddress }),
	},
}

var metricsOptions = []*Option{
	{
		Flag: "metrics-bind-address", Section: "metrics", Key: "bind-address", OldSection: "kubernetes", OldKey: "metrics-bind-address",
		Usage: "Where /metrics, /healthz and /readyz are served; empty for nowhere. Unless it is a loopback address, over TLS, and all but the health of the process to those who may get the path",
		value: to(listenAddress(), func(c *Config) *string { return &c.Metrics.BindAddress }),
	},
	{
		Flag: "metrics-enable-pprof", Section: "metrics", Key: "enable-pprof", OldSection: "kubernetes", OldKey: "metrics-enable-pprof",
		Default: "false", Usage: "Serve /debug/pprof/ there too",
		value: to(boolean(), func(c *Config) *bool { return &c.Metrics.EnablePprof }),
	},
	{
		Flag: "metrics-insecure", Section: "metrics", Key: "insecure", Default: "false",
		Usage: "Serve all of this to everybody who reaches the address, over TLS only with node-server-privkey and node-server-cert",
		value: to(boolean(), func(c *Config) *bool { return &c.Metrics.Insecure }),
	},
	{
		Flag: "node-server-privkey", Section: "metrics", Key: "node-server-privkey", Usage: "Private key of that server, which then uses TLS on a loopback address, too",
		value: to(path("a PEM file"), func(c *Config) *string { return &c.Metrics.ServerKey }),
	},
	{
		Flag: "node-server-cert", Section: "metrics", Key: "node-server-cert", Usage: "Certificate of that server. While its files do not exist or cannot be used, and without them, it presents a certificate that it has signed itself",
		value: to(path("a PEM file"), func(c *Config) *string { return &c.Metrics.ServerCert }),
	},
	{
		Flag: "ovn-metrics-bind-address", Section: "metrics", Key: "ovn-metrics-bind-address", OldSection: "kubernetes", OldKey: "ovn-metrics-bind-address",
		Usage:    "Where metrics of OVN itself are served",
		NoEffect: "metrics of OVN and OVS are not collected", value: unused(listenAddress()),
	},
	{
		Flag: "export-ovs-metrics", Section: "metrics", Key: "export-ovs-metrics", Default: "false", Usage: "Serve metrics of Open vSwitch",
		NoEffect: "metrics of OVN and OVS are not collected", value: unused(boolean()),
	},
	{
		Flag: "metrics-enable-config-duration", Section: "metrics", Key: "enable-config-duration", Default: "false",
		Usage: "Measure how long a change takes to reach the nodes", NoEffect: "this is not measured", value: unused(boolean()),
	},
	{
		Flag: "metrics-enable-scale", Section: "metrics", Key: "enable-scale-metrics", Default: "false",
		Usage: "Serve metrics that matter in scale tests only", NoEffect: "there are none", value: unused(boolean()),
	},
}

var pageOptions = []*Option{
	{
		Flag: "egress-page-bind-address", Section: "page", Key: "bind-address",
		Usage: "Where a master serves the egress map to those who may get the path /egress; empty for nowhere",
		value: to(listenAddress(), func(c *Config) *string { return &c.Page.BindAddress }),
	},
	{
		Flag: "egress-page-privkey", Section: "page", Key: "privkey", Usage: "Private key of that server",
		value: to(path("a PEM file"), func(c *Config) *string { return &c.Page.Key }),
	},
	{
		Flag: "egress-page-cert", Section: "page", Key: "cert", Usage: "Certificate of that server",
		value: to(path("a PEM file"), func(c *Config) *string { return &c.Page.Cert }),
	},
}

var masterHAOptions = []*Option{
	{
		Flag: "ha-election-lease-duration", Section: "masterha", Key: "election-lease-duration", Default: "60",
		Usage: "Time after which a silent leader is replaced",
		value: to(duration("seconds", time.Second, 1, 86400), func(c *Config) *time.Duration { return &c.MasterHA.LeaseDuration }),
	},
	{
		Flag: "ha-election-renew-deadline", Section: "masterha", Key: "election-renew-deadline", Default: "30",
		Usage: "Time after which a leader that cannot renew gives up",
		value: to(duration("seconds", time.Second, 1, 86400), func(c *Config) *time.Duration { return &c.MasterHA.RenewDeadline }),
	},
	{
		Flag: "ha-election-retry-period", Section: "masterha", Key: "election-retry-period", Default: "20",
		Usage: "Time between two attempts to become or stay leader",
		value: to(duration("seconds", time.Second, 1, 86400), func(c *Config) *time.Duration { return &c.MasterHA.RetryPeriod }),
	},
}

func zone() kind[int] { return number("a conntrack zone", 0, 65535) }

func port() kind[int] { return number("a port", 1, 65535) }

func join(f topology.Family, field func(*Config) *netip.Prefix) value {
	// The cluster router and at least one gateway router need an address.
	return to(prefix(f, 2), field)
}

func masquerade(f topology.Family, field func(*Config) *netip.Prefix) value {
	// Addresses up to .5 are used, so the minimum is eight.
	return to(prefix(f, 3), field)
}
