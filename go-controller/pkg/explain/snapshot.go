package explain

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// Snapshot contains the API objects of a cluster. Objects are not modified.
type Snapshot struct {
	// Taken is when it was read.
	Taken    time.Time
	Settings Settings
	// System is the namespace of ovnkube; empty if unknown.
	System string
	// Renewed is when the leading master last renewed its lease; zero if
	// unknown.
	Renewed time.Time
	// Reachability are the probe results published by the leading master; nil if
	// unknown.
	Reachability *reachability.Report

	Nodes          []*corev1.Node
	Namespaces     []*corev1.Namespace
	Pods           []*corev1.Pod
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	EgressIPs      []*egressipv1.EgressIP
	EgressServices []*egressservicev1.EgressService
	Routes         []*routev1.AdminPolicyBasedExternalRoute

	// Lost are the nodes assumed to be unreachable; this is not from the API.
	Lost []string

	// Notes describe data that could not be read, and the assumptions made instead.
	Notes []string
}

// Settings are the part of ovnkube's configuration that the planners depend on.
type Settings struct {
	// The enabled features.
	EgressIP, EgressService, ExternalGateways bool
	// The address ranges that the cluster uses for itself; RangesUnknown if they could
	// not be read.
	Pods, Services, Join, Masquerade []netip.Prefix
	RangesUnknown                    bool
	// NodeLocal are the addresses that pods reach through their own node, in addition to the
	// link-local ones.
	NodeLocal []netip.Prefix
	// APIServers are where ovnkube is configured to reach the API servers.
	APIServers []netip.AddrPort
	// HostPorts are the ports that nodes serve besides service.DefaultHostPorts.
	HostPorts []service.HostPort
	// DisableSNATMultipleGWs and GatewayNamespaces are those of externalroute.Config.
	DisableSNATMultipleGWs bool
	GatewayNamespaces      []string
}
