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
)

// Snapshot is what the API server has of a cluster. Objects are not modified.
type Snapshot struct {
	// Taken is when it was read.
	Taken    time.Time
	Settings Settings
	// System is the namespace of ovnkube; empty where that is not known.
	System string
	// Renewed is when the leading master last said that it is there; zero where that is
	// not known.
	Renewed time.Time
	// Reachability is what the leading master has published of its probes; nil where that is
	// not known.
	Reachability *reachability.Report

	Nodes          []*corev1.Node
	Namespaces     []*corev1.Namespace
	Pods           []*corev1.Pod
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	EgressIPs      []*egressipv1.EgressIP
	EgressServices []*egressservicev1.EgressService
	Routes         []*routev1.AdminPolicyBasedExternalRoute

	// Lost are the nodes that are taken not to be reachable any more; the API does not tell.
	Lost []string

	// Notes are what could not be read and what was taken instead.
	Notes []string
}

// Settings are what of the configuration of ovnkube the planners depend on.
type Settings struct {
	// The features that are enabled.
	EgressIP, EgressService, ExternalGateways bool
	// The ranges of addresses that the cluster uses for itself; RangesUnknown where these could
	// not be read.
	Pods, Services, Join, Masquerade []netip.Prefix
	RangesUnknown                    bool
	// NodeLocal are the addresses that pods reach by their own node, beside the
	// link-local ones.
	NodeLocal []netip.Prefix
	// DisableSNATMultipleGWs and GatewayNamespaces are those of externalroute.Config.
	DisableSNATMultipleGWs bool
	GatewayNamespaces      []string
}
