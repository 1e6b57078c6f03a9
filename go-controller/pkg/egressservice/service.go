package egressservice

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Snapshot is the state of the API objects of one EgressService.
type Snapshot struct {
	Egress  *v1.EgressService
	Service *corev1.Service // nil: there is no Service of that name
	Slices  []*discoveryv1.EndpointSlice
	// Pod returns the node of the pod, in the EgressService's own namespace, that
	// has an address. EndpointSlices are not trusted without it: users who may
	// write one could list the pods of others.
	Pod func(netip.Addr) (node string, ok bool)
	// Ready reports whether that pod is ready according to its kubelet; nil: this is not checked.
	// Kubernetes reports all pods of a node as not ready if it loses contact with the node, but
	// placement evaluates nodes itself.
	Ready func(netip.Addr) bool
	// Selected are the addresses of the pods that the Service selects, as far as
	// they are assigned: these pods will be endpoints.
	Selected []netip.Addr
	// Reserved are the ranges that the cluster uses for itself. Owners returns the owners of an
	// address; nil: there are none.
	Reserved reserved.Ranges
	Owners   func(netip.Addr) []reserved.Owner
	// Shared says that pods' traffic leaves through the gateway routers and bypasses the hosts'
	// routing.
	Shared bool
}

// Refusal says why an EgressService has no host. The zero Refusal means that it is not refused.
type Refusal struct {
	Reason  Reason
	Message string // a sentence for the user
}

// Reason is the machine-readable part of a Refusal, and the reason of Events.
type Reason string

// The reasons for not serving an EgressService.
const (
	InvalidSelector   Reason = "InvalidNodeSelector"
	UnsupportedSource Reason = "UnsupportedSourceIP"
	SharedGateway     Reason = "SharedGatewayMode"
	InvalidNetwork    Reason = "InvalidNetwork"
	NoService         Reason = "ServiceNotFound"
	WrongServiceType  Reason = "ServiceNotLoadBalancer"
	NoIngress         Reason = "NoIngressIP"
	LabelTooLong      Reason = "LabelTooLong"
	LabelTaken        Reason = "LabelTaken"
	NoNode            Reason = "NoNode"
)

// Service is a decoded EgressService with everything that belongs to it.
type Service struct {
	Key       string // "namespace/name"
	Namespace string
	Name      string
	UID       types.UID
	Created   time.Time
	// Generation is the generation of the spec.
	Generation int64
	Host       string // the current host in the status
	Selector   labels.Selector
	// LocalOnly: only nodes with an endpoint qualify (externalTrafficPolicy Local).
	LocalOnly bool
	Ingress   []netip.Addr // the first usable ingress address of each family
	// RefusedIngress gives the reason for each unusable ingress address.
	RefusedIngress []RefusedAddress
	// Disputed gives the claim to each address in Ingress that a node claims.
	Disputed  []RefusedAddress
	Endpoints []Endpoint // of families in Ingress, sorted by address, without duplicates
	// Awaited are the pods that are not endpoints yet but will be, with the same properties.
	Awaited []netip.Addr
	// PerNode: every node serves its own pods, and the source address is the address of
	// the interface by which the network leaves (sourceIPBy Network).
	PerNode bool
	// Network is the routing table of the traffic; empty: the usual one.
	Network string
	// ClusterIPs are the Service's cluster addresses, if there is a Network.
	ClusterIPs []netip.Addr
	// Entries are the entries for outside clients, if there is a Network.
	Entries []Entry
	// LocalPorts are the sources of replies that stay on the node, if there is a Network.
	LocalPorts []LocalPort
	// DirectPorts are the sources of replies of the pods themselves, including pods of other nodes, if
	// PerNode and there is a Network. These pods need not be Endpoints.
	DirectPorts []LocalPort
	// DropWhenUnavailable: traffic that cannot be served is dropped (onUnavailable Drop).
	DropWhenUnavailable bool
	// Ack is what a node reports to have programmed.
	Ack v1.ProgrammedStatus
	// Done: the master reports that Ack's host gets the traffic.
	Done bool
	// Conflicts are the older EgressServices that have some of the endpoints; see Claims.
	Conflicts []string
	Refused   Refusal
}

// maxLabel is the maximum length of the part of a label's key after the slash.
const maxLabel = 63

// Label returns the part of the host's label after the prefix: "namespace-name".
func (s Service) Label() string { return s.Namespace + "-" + s.Name }

// Decode decodes a snapshot. Only endpoints within cluster, the cluster subnets,
// are kept.
func Decode(snap Snapshot, cluster []netip.Prefix) Service {
	eg := snap.Egress
	s := Service{
		Key:                 eg.Namespace + "/" + eg.Name,
		Namespace:           eg.Namespace,
		Name:                eg.Name,
		UID:                 eg.UID,
		Created:             eg.CreationTimestamp.Time,
		Generation:          eg.Generation,
		Host:                eg.Status.Host,
		PerNode:             eg.Spec.Source() == v1.SourceIPNetwork,
		Network:             eg.Spec.Network,
		DropWhenUnavailable: eg.Spec.OnUnavailable == v1.UnavailableDrop,
		Done:                Done(eg.Status),
	}
	if eg.Status.Programmed != nil {
		s.Ack = *eg.Status.Programmed
	}
	var err error
	if s.Selector, err = metav1.LabelSelectorAsSelector(&eg.Spec.NodeSelector); err != nil {
		s.Selector = labels.Nothing()
		s.Refused = Refusal{InvalidSelector, fmt.Sprintf("nodeSelector is not valid: %v", err)}
		return s
	}
	if s.Refused = refuseSpec(s, eg.Spec, snap.Shared); s.Refused != (Refusal{}) {
		return s
	}
	if s.Refused = refuseService(snap.Service); s.Refused != (Refusal{}) {
		return s
	}
	if s.Network != "" {
		s.ClusterIPs = clusterIPs(snap.Service)
		s.Entries = entries(snap.Service)
		if !snap.Shared {
			s.LocalPorts = localPorts(snap.Service, snap.Reserved.Masquerade)
		}
	}
	if s.PerNode {
		s.Endpoints = endpoints(snap, cluster, topology.Families)
		if s.Network != "" {
			s.DirectPorts = directPorts(snap.Service, snap.Slices, cluster)
		}
		return s
	}
	s.LocalOnly = snap.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	s.Ingress, s.RefusedIngress, s.Disputed = ingress(snap)
	if len(s.Ingress) == 0 {
		s.Refused = Refusal{NoIngress, "the Service has no ingress IP yet"}
		if len(s.RefusedIngress) > 0 {
			s.Refused.Message = "the Service has no ingress IP that can be used: " + listRefused(s.RefusedIngress)
		}
		return s
	}
	var families []topology.Family
	for _, a := range s.Ingress {
		families = append(families, topology.FamilyOf(a))
	}
	s.Endpoints = endpoints(snap, cluster, families)
	s.Awaited = awaited(snap.Selected, s.Endpoints, cluster, listed(snap.Service, families))
	return s
}

// Done reports whether the host of a status has the traffic. A missing network, which a host reports together with what it
// has programmed, does not prevent that.
func Done(status v1.EgressServiceStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1.ConditionProgrammed)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == ReasonNetworkNotFound)
}

// network is the pattern that the schema accepts; objects may predate the schema.
var network = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

func refuseSpec(s Service, spec v1.EgressServiceSpec, shared bool) Refusal {
	if src := spec.Source(); src != v1.SourceIPLoadBalancer && src != v1.SourceIPNetwork {
		return Refusal{UnsupportedSource, fmt.Sprintf("sourceIPBy %q is neither LoadBalancerIP nor Network", src)}
	}
	if s.Network != "" && !network.MatchString(s.Network) {
		return Refusal{InvalidNetwork, fmt.Sprintf("network %q is not a name of a routing table", s.Network)}
	}
	if s.PerNode {
		if shared {
			return Refusal{SharedGateway, "sourceIPBy Network needs local gateway mode: in shared mode pods leave past the routing of the hosts"}
		}
		return Refusal{}
	}
	if label := s.Label(); len(label) > maxLabel {
		return Refusal{LabelTooLong, fmt.Sprintf(
			"the host could not be labelled: %q has %d characters, a label at most %d", label, len(label), maxLabel)}
	}
	return Refusal{}
}

func refuseService(svc *corev1.Service) Refusal {
	switch {
	case svc == nil:
		return Refusal{NoService, "there is no Service of this name"}
	case svc.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return Refusal{WrongServiceType, fmt.Sprintf("the Service is of type %s, not LoadBalancer", svc.Spec.Type)}
	}
	return Refusal{}
}

// listed returns the families that the EndpointSlices of a Service list.
func listed(svc *corev1.Service, families []topology.Family) []topology.Family {
	if len(svc.Spec.IPFamilies) == 0 {
		return families
	}
	return slices.DeleteFunc(slices.Clone(families), func(f topology.Family) bool {
		return !slices.Contains(svc.Spec.IPFamilies, corev1.IPFamily(f.String()))
	})
}

// clusterIPs returns the cluster addresses of a Service, or none if it is headless.
func clusterIPs(svc *corev1.Service) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range append(slices.Clone(svc.Spec.ClusterIPs), svc.Spec.ClusterIP) {
		if a, ok := parseAddr(text); ok && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// parseAddr parses an address that a packet can have as its source.
func parseAddr(s string) (netip.Addr, bool) {
	a, refused := reserved.Parse(s)
	return a, refused == (reserved.Refusal{})
}
