package config

import (
	"net/netip"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// noOwnCertificate is why options about a node's certificate for the API server have no effect.
const noOwnCertificate = "nodes use the kubeconfig or the token of the pod's service account"

var kubernetesOptions = []*Option{
	{
		Flag: "k8s-kubeconfig", Section: "kubernetes", Key: "kubeconfig", Env: "KUBECONFIG",
		Usage: "File that says how the API server is reached; where it is given, the other options about the API server are not used",
		value: to(path("a kubeconfig file"), func(c *Config) *string { return &c.Kubernetes.Kubeconfig }),
	},
	{
		Flag: "k8s-apiserver", Section: "kubernetes", Key: "apiserver", Env: "K8S_APISERVER", ExternalID: "k8s-api-server",
		Usage: "API server; without it and a kubeconfig the pod's service account is used",
		value: to(serverURL(), func(c *Config) *string { return &c.Kubernetes.APIServer }),
	},
	{
		Flag: "k8s-cacert", Section: "kubernetes", Key: "cacert", Env: "K8S_CACERT", ExternalID: "k8s-ca-certificate",
		Usage: "Certificate authority of the API server",
		value: to(path("a PEM file"), func(c *Config) *string { return &c.Kubernetes.CACert }),
	},
	{
		Flag: "k8s-token", Secret: true, Section: "kubernetes", Key: "token", Env: "K8S_TOKEN", ExternalID: "k8s-api-token",
		Usage: "Bearer token for the API server",
		value: to(words("a bearer token"), func(c *Config) *string { return &c.Kubernetes.Token }),
	},
	{
		Flag: "k8s-token-file", Section: "kubernetes", Key: "tokenfile", Env: "K8S_TOKEN_FILE", ExternalID: "k8s-api-token-file",
		Usage: "File with the bearer token, read again when it changes",
		value: to(path("a file"), func(c *Config) *string { return &c.Kubernetes.TokenFile }),
	},
	{
		Flag: "k8s-service-cidrs", OldFlag: "k8s-service-cidr", Section: "kubernetes", Key: "service-cidrs",
		OldSection: "kubernetes", OldKey: "service-cidr", Default: "172.16.1.0/24",
		Usage: "Ranges of cluster IPs, one for each family of --cluster-subnets",
		value: to(prefixes(), func(c *Config) *[]netip.Prefix { return &c.Kubernetes.ServiceCIDRs }),
	},
	{
		Flag: "ovn-config-namespace", Section: "kubernetes", Key: "ovn-config-namespace", Default: "ovn-kubernetes",
		Usage: "Namespace of the leader's Lease",
		value: to(name("a namespace"), func(c *Config) *string { return &c.Kubernetes.ConfigNamespace }),
	},
	{
		Flag: "ovn-empty-lb-events", Section: "kubernetes", Key: "ovn-empty-lb-events", Default: "false",
		Usage:    "Report connections to services that have no endpoints",
		NoEffect: "such connections are refused, not reported",
		value:    to(boolean(), func(c *Config) *bool { return &c.Kubernetes.EmptyLBEvents }),
	},
	{
		Flag: "healthz-bind-address", Section: "kubernetes", Key: "healthz-bind-address",
		Usage: "Where /healthz and /readyz are served besides --metrics-bind-address, without TLS and without ?verbose",
		value: to(listenAddress(), func(c *Config) *string { return &c.Kubernetes.HealthzBindAddress }),
	},
	{
		Flag: "no-hostsubnet-nodes", Section: "kubernetes", Key: "no-hostsubnet-nodes", Usage: "Label selector of nodes that get no subnet",
		NoEffect: "every node gets a subnet", value: unused(words("a label selector")),
	},
	{
		Flag: "host-network-namespace", Section: "kubernetes", Key: "host-network-namespace", Usage: "Namespace that stands for host-network traffic in network policies",
		NoEffect: "network policies are not enforced", value: unused(name("a namespace")),
	},
	{
		Flag: "platform-type", Section: "kubernetes", Key: "platform-type", Usage: "Cloud the cluster runs on",
		NoEffect: "no platform is treated differently", value: unused(words("the name of a platform")),
	},
	{
		Flag: "dns-service-namespace", Section: "kubernetes", Key: "dns-service-namespace", Usage: "Namespace of the DNS service that virtual machines use while they move between nodes",
		NoEffect: "virtual machines are not moved", value: unused(name("a namespace")),
	},
	{
		Flag: "dns-service-name", Section: "kubernetes", Key: "dns-service-name", Usage: "Name of that DNS service",
		NoEffect: "virtual machines are not moved", value: unused(name("a service")),
	},
	{
		Flag: "disable-requestedchassis", Section: "kubernetes", Key: "disable-requestedchassis", Default: "false",
		Usage: "Do not bind pods to the chassis of their node", value: unused(never("pods are always bound to the chassis of their node")),
	},
	{
		Flag: "bootstrap-kubeconfig", Section: "kubernetes", Key: "bootstrap-kubeconfig", Usage: "Kubeconfig with which a node requests its own certificate for the API server",
		NoEffect: noOwnCertificate, value: unused(path("a kubeconfig file")),
	},
	{
		Flag: "cert-dir", Section: "kubernetes", Key: "cert-dir", Usage: "Directory of that certificate",
		NoEffect: noOwnCertificate, value: unused(path("a directory")),
	},
	{
		Flag: "cert-duration", Section: "kubernetes", Key: "cert-duration", Usage: "How long that certificate is valid",
		NoEffect: noOwnCertificate, value: unused(words("a duration such as 24h")),
	},
	{
		Flag: "pod-ip", Section: "kubernetes", Key: "pod-ip", Usage: "Address of the pod this runs in",
		NoEffect: "the databases are started separately", value: unused(address()),
	},
}

// databaseOptions returns the options of one OVN database. They differ only in their names.
func databaseOptions(flag, section, label, externalID string, db func(*Config) *Database) []*Option {
	dir := "/etc/openvswitch/ovn" + flag
	return []*Option{
		{
			Flag: flag + "-address", Section: section, Key: "address", ExternalID: externalID,
			Default: "unix:/var/run/ovn/ovn" + flag + "_db.sock", Usage: "Members of the " + label + " database cluster",
			value: to(endpoints(), func(c *Config) *[]Endpoint { return &db(c).Endpoints }),
		},
		{
			Flag: flag + "-client-privkey", Section: section, Key: "client-privkey", Default: dir + "-privkey.pem",
			Usage: "Private key for the " + label + " database, used with ssl: addresses",
			value: to(path("a PEM file"), func(c *Config) *string { return &db(c).PrivKey }),
		},
		{
			Flag: flag + "-client-cert", Section: section, Key: "client-cert", Default: dir + "-cert.pem",
			Usage: "Certificate for the " + label + " database, used with ssl: addresses",
			value: to(path("a PEM file"), func(c *Config) *string { return &db(c).Cert }),
		},
		{
			Flag: flag + "-client-cacert", Section: section, Key: "client-cacert", Default: dir + "-ca.cert",
			Usage: "Certificate authority of the " + label + " database, used with ssl: addresses",
			value: to(path("a PEM file"), func(c *Config) *string { return &db(c).CACert }),
		},
		{
			Flag: flag + "-cert-common-name", Section: section, Key: "cert-common-name",
			Usage: "Name the " + label + " database's certificate must carry",
			value: to(words("a name"), func(c *Config) *string { return &db(c).CommonName }),
		},
		{
			Flag: flag + "-raft-election-timer", Section: section, Key: "election-timer", Default: "1000",
			Usage: "Raft election timer of the " + label + " database", NoEffect: "the databases are started separately",
			value: unused(number("milliseconds", 100, 600000)),
		},
	}
}

var northOptions = databaseOptions("nb", "ovnnorth", "northbound", "ovn-nb", func(c *Config) *Database { return &c.OVNNorth })

var southOptions = databaseOptions("sb", "ovnsouth", "southbound", "ovn-remote", func(c *Config) *Database { return &c.OVNSouth })

var gatewayOptions = []*Option{
	{
		Flag: "gateway-mode", OldSwitch: "gateway-local", OldValue: string(GatewayLocal), Section: "gateway", Key: "mode", Default: string(GatewayShared),
		Usage: "Way of pods to the outside: through the host (local) or from OVN directly (shared)",
		value: to(oneOf(GatewayLocal, GatewayShared), func(c *Config) *GatewayMode { return &c.Gateway.Mode }),
	},
	{
		Flag: "gateway-interface", Section: "gateway", Key: "interface", Usage: "Uplink, or the bridge that holds it, instead of the interface of the default route",
		value: to(interfaceName(), func(c *Config) *string { return &c.Gateway.Interface }),
	},
	{
		Flag: "gateway-nexthop", Section: "gateway", Key: "next-hop", Usage: "Default gateways, instead of those in the node's routing table",
		value: to(addresses(), func(c *Config) *[]netip.Addr { return &c.Gateway.NextHops }),
	},
	{
		Flag: "gateway-vlanid", Section: "gateway", Key: "vlan-id", Default: "0", Usage: "VLAN of the uplink; 0 for untagged",
		value: to(number("a VLAN", 0, 4094), func(c *Config) *int { return &c.Gateway.VLANID }),
	},
	{
		Flag: "nodeport", Section: "gateway", Key: "nodeport", Default: "false", Usage: "Serve NodePort services on the nodes",
		value: to(boolean(), func(c *Config) *bool { return &c.Gateway.NodePort }),
	},
	{
		Flag: "disable-snat-multiple-gws", Section: "gateway", Key: "disable-snat-multiple-gws", Default: "false",
		Usage: "Translate the addresses of pods one by one, so that pods with external gateways keep theirs",
		value: to(boolean(), func(c *Config) *bool { return &c.Gateway.DisableSNATMultipleGWs }),
	},
	{
		Flag: "gateway-v4-join-subnet", Section: "gateway", Key: "v4-join-subnet", Default: "100.64.0.0/16", Usage: "IPv4 addresses between the routers",
		value: join(topology.IPv4, func(c *Config) *netip.Prefix { return &c.Gateway.V4JoinSubnet }),
	},
	{
		Flag: "gateway-v6-join-subnet", Section: "gateway", Key: "v6-join-subnet", Default: "fd98::/64", Usage: "IPv6 addresses between the routers",
		value: join(topology.IPv6, func(c *Config) *netip.Prefix { return &c.Gateway.V6JoinSubnet }),
	},
	{
		Flag: "gateway-v4-masquerade-subnet", Section: "gateway", Key: "v4-masquerade-subnet", Default: "169.254.169.0/29", Usage: "IPv4 addresses used inside a node",
		value: masquerade(topology.IPv4, func(c *Config) *netip.Prefix { return &c.Gateway.V4MasqueradeSubnet }),
	},
	{
		Flag: "gateway-v6-masquerade-subnet", Section: "gateway", Key: "v6-masquerade-subnet", Default: "fd69::/125", Usage: "IPv6 addresses used inside a node",
		value: masquerade(topology.IPv6, func(c *Config) *netip.Prefix { return &c.Gateway.V6MasqueradeSubnet }),
	},
	{
		Flag: "exgw-interface", Section: "gateway", Key: "egw-interface",
		Usage: "Second uplink, or the bridge that holds it, for the external gateways on its network",
		value: to(interfaceName(), func(c *Config) *string { return &c.Gateway.ExternalGatewayInterface }),
	},
	{
		Flag: "gateway-router-subnet", Section: "gateway", Key: "router-subnet", Usage: "Range of the gateway router's address on a DPU",
		NoEffect: "the gateway router has the node's address", value: unused(list("a range in CIDR form"+ordinary, parsePrefix)),
	},
	{
		Flag: "single-node", Section: "gateway", Key: "single-node", Default: "false", Usage: "The cluster has one node only",
		NoEffect: "one node needs nothing special", value: unused(boolean()),
	},
	{
		Flag: "disable-pkt-mtu-check", Section: "gateway", Key: "disable-pkt-mtu-check", Default: "false", Usage: "Do not check the size of packets from outside",
		NoEffect: "the gateway router does not check it", value: unused(boolean()),
	},
	{
		Flag: "disable-forwarding", Section: "gateway", Key: "disable-forwarding", Default: "false", Usage: "Let the host forward cluster traffic only",
		NoEffect: "forwarding is enabled on the host", value: unused(boolean()),
	},
	{
		Flag: "allow-no-uplink", Section: "gateway", Key: "allow-no-uplink", Default: "false", Usage: "Accept an external bridge without an uplink",
		NoEffect: "the bridge is taken as it is", value: unused(boolean()),
	},
	{
		Flag: "init-gateways", Default: "false", Usage: "Create gateways on the nodes",
		NoEffect: "gateways are always created; --gateway-mode says how they work", value: unused(boolean()),
	},
}

var featureOptions = []*Option{
	{
		Flag: "enable-egress-ip", Section: "ovnkubernetesfeature", Key: "enable-egress-ip", Default: "false", Usage: "Serve EgressIP objects",
		value: to(boolean(), func(c *Config) *bool { return &c.Features.EgressIP }),
	},
	{
		Flag: "enable-egress-service", Section: "ovnkubernetesfeature", Key: "enable-egress-service", Default: "false", Usage: "Serve EgressService objects",
		value: to(boolean(), func(c *Config) *bool { return &c.Features.EgressService }),
	},
	{
		Flag: "enable-multi-external-gateway", Section: "ovnkubernetesfeature", Key: "enable-multi-external-gateway", Default: "false",
		Usage: "Serve AdminPolicyBasedExternalRoute objects and the annotations for external gateways",
		value: to(boolean(), func(c *Config) *bool { return &c.Features.MultiExternalGateway }),
	},
	{
		Flag: "external-gateway-namespaces", Section: "ovnkubernetesfeature", Key: "external-gateway-namespaces", Default: "*",
		Usage: "Namespaces whose pods may be external gateways by annotation; * is every namespace",
		value: to(namespaces(), func(c *Config) *[]string { return &c.Features.GatewayNamespaces }),
	},
	{
		Flag: "node-local-addresses", Section: "ovnkubernetesfeature", Key: "node-local-addresses",
		Usage: "Addresses that pods reach by their own node and with its address, whatever egress feature has them, beside the link-local ones",
		value: to(ranges(), func(c *Config) *[]netip.Prefix { return &c.Features.NodeLocalAddresses }),
	},
	{
		Flag: "egressip-reachability-total-timeout", Section: "ovnkubernetesfeature", Key: "egressip-reachability-total-timeout", Default: "1",
		Usage: "Time a node may be silent before egress addresses move away from it; 0 takes every node as reachable",
		value: to(duration("seconds", time.Second, 0, 3600), func(c *Config) *time.Duration { return &c.Features.ReachabilityTotalTimeout }),
	},
	{
		Flag: "egressip-acknowledge-timeout", Section: "ovnkubernetesfeature", Key: "egressip-acknowledge-timeout", Default: "5",
		Usage: "Time a node that can be reached may take to acknowledge an egress address or an EgressService before another node gets it; 0 is for ever",
		value: to(duration("seconds", time.Second, 0, 3600), func(c *Config) *time.Duration { return &c.Features.AcknowledgeTimeout }),
	},
	{
		Flag: "egressip-node-healthcheck-port", Section: "ovnkubernetesfeature", Key: "egressip-node-healthcheck-port", Default: "0",
		Usage: "Port at which nodes answer health probes; 0 probes the DISCARD port instead",
		value: to(number("a port", 0, 65535), func(c *Config) *int { return &c.Features.NodeHealthCheckPort }),
	},
	{
		Flag: "enable-interconnect", Section: "ovnkubernetesfeature", Key: "enable-interconnect", Default: "false",
		Usage: "Split the cluster into interconnected zones", value: unused(never("all nodes share one zone")),
	},
	without("enable-egress-firewall", "Serve EgressFirewall objects", "EgressFirewall objects are not enforced"),
	without("enable-egress-qos", "Serve EgressQoS objects", "EgressQoS objects are not served"),
	without("enable-multi-network", "Serve secondary networks of pods", "pods have the cluster network only"),
	without("enable-multi-networkpolicy", "Serve MultiNetworkPolicy objects", "MultiNetworkPolicy objects are not enforced"),
	without("enable-stateless-netpol", "Allow network policies without conntrack", "network policies are not enforced"),
	without("enable-admin-network-policy", "Serve AdminNetworkPolicy objects", "AdminNetworkPolicy objects are not enforced"),
	without("enable-svc-template-support", "Share load balancers between nodes by templates", "load balancers are written for each node"),
	without("enable-persistent-ips", "Let virtual machines keep their addresses", "addresses live as long as the pod"),
	without("enable-dns-name-resolver", "Resolve DNS names for EgressFirewall", "EgressFirewall objects are not enforced"),
}

// without returns the option of a feature that other programs have under this name but this
// one does not.
func without(flag, usage, why string) *Option {
	return &Option{
		Flag: flag, Section: "ovnkubernetesfeature", Key: flag, Default: "false", Usage: usage,
		NoEffect: why, value: unused(boolean()),
	}
}

const noHybridOverlay = "there is no hybrid overlay"

var hybridOverlayOptions = []*Option{
	{
		Flag: "enable-hybrid-overlay", Section: "hybridoverlay", Key: "enabled", Default: "false", Usage: "Connect nodes that do not run OVN",
		NoEffect: noHybridOverlay, value: unused(boolean()),
	},
	{
		Flag: "hybrid-overlay-cluster-subnets", Section: "hybridoverlay", Key: "cluster-subnets", Usage: "Address ranges of pods on such nodes",
		NoEffect: noHybridOverlay, value: unused(clusterSubnets()),
	},
	{
		Flag: "hybrid-overlay-vxlan-port", Section: "hybridoverlay", Key: "hybrid-overlay-vxlan-port", Default: "4789", Usage: "UDP port of tunnels to such nodes",
		NoEffect: noHybridOverlay, value: unused(port()),
	},
}

var nodeOptions = []*Option{
	{
		Flag: "ovnkube-node-mode", Section: "ovnkubenode", Key: "mode", Default: "full", Usage: "Which part of a node's work is done here",
		value: unused(oneOf("full")),
	},
	{
		Flag: "ovnkube-node-mgmt-port-netdev", Section: "ovnkubenode", Key: "mgmt-port-netdev", Usage: "Network device that serves as management port",
		NoEffect: "the management port is an internal port of br-int", value: unused(interfaceName()),
	},
	{
		Flag: "ovnkube-node-mgmt-port-dp-resource-name", Section: "ovnkubenode", Key: "mgmt-port-dp-resource-name",
		Usage: "Device plugin resource that provides the management port", NoEffect: "the management port is an internal port of br-int",
		value: unused(words("the name of a resource")),
	},
	{
		Flag: "disable-ovn-iface-id-ver", Section: "ovnkubenode", Key: "disable-ovn-iface-id-ver", Default: "false",
		Usage: "Bind interfaces to ports without the uid of the pod", value: unused(never("ports are always bound with the uid of the pod")),
	},
}

const noTransitSwitch = "there is one zone, hence no transit switch"

var clusterManagerOptions = []*Option{
	{
		Flag: "cluster-manager-v4-transit-switch-subnet", Section: "clustermanager", Key: "v4-transit-switch-subnet", Default: "100.88.0.0/16",
		Usage: "IPv4 addresses between zones", NoEffect: noTransitSwitch, value: unused(prefix(topology.IPv4, 2)),
	},
	{
		Flag: "cluster-manager-v6-transit-switch-subnet", Section: "clustermanager", Key: "v6-transit-switch-subnet", Default: "fd97::/64",
		Usage: "IPv6 addresses between zones", NoEffect: noTransitSwitch, value: unused(prefix(topology.IPv6, 2)),
	},
}
