package service

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// labelProxyName is the label with the proxy that serves a Service; without it, the Service
// is ours. A Service labeled as headless is not served by any proxy.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Snapshot is the state of one Service in the API.
type Snapshot struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	// Pod reports whether a pod of the Service's own namespace has an address, and whether
	// an egress feature reroutes it. Nil: no pod has.
	Pod func(netip.Addr) (own, rerouted bool)
	// Gateways are the external gateways that pods of the namespace are routed to.
	Gateways []netip.Addr
	// Others provides what belongs to other objects; nil: nothing does.
	Others Others
}

// Service is a Service with its endpoints, decoded.
type Service struct {
	Key       string // "namespace/name"
	Namespace string
	Name      string
	// ClusterIPs are the cluster addresses, one per family, in the order of ipFamilies. The
	// other addresses and the node ports are of these families.
	ClusterIPs []netip.Addr
	// External are the external IPs and the load balancer's addresses, without refused
	// ones. Sorted, without duplicates.
	External []External
	Ports    []Port
	// InternalLocal and ExternalLocal mean that internal, or external, traffic only goes to
	// endpoints on the node where it arrives.
	InternalLocal, ExternalLocal bool
	// Affinity is the requested session affinity timeout; 0: no affinity.
	Affinity time.Duration
	// HealthPort is the port on which nodes report whether they have endpoints; 0: none.
	HealthPort uint16
	// Gateways are the external gateways that pods of its namespace are routed to.
	Gateways []netip.Addr
	// Refused lists the values set by the user or the load balancer provider that are not
	// served. Everything else is served.
	Refused []Refusal
}

// External is an external address.
type External struct {
	Addr netip.Addr
	// Restricted means that only Sources, which may be empty, may use it. Otherwise all
	// clients may.
	Restricted bool
	Sources    []netip.Prefix
}

// Port is a port of a Service.
type Port struct {
	Protocol string // "tcp", "udp", "sctp"
	Port     uint16
	NodePort uint16 // 0: none
	// Refused are the external addresses on which this port is taken.
	Refused []netip.Addr
	// Candidates are all endpoints that can serve, of any family, sorted.
	Candidates []Endpoint
	// Listed are the candidates and all endpoints that do not serve at present: their open
	// connections continue.
	Listed []Endpoint
}

// Endpoint is an endpoint of a port.
type Endpoint struct {
	To   netip.AddrPort
	Node string // empty if the API does not say
	// Pod is true for addresses of the pod network, as opposed to those of hosts and of
	// other networks.
	Pod bool
	// Own means that it is a pod of the Service's namespace, and Rerouted that an egress feature
	// reroutes it; both are set for Listed endpoints. Writers of EndpointSlices can list
	// the pods of other namespaces, but must not influence the egress of these.
	Own, Rerouted bool
	// Ready endpoints are preferred; a candidate that is not ready is terminating and
	// serves only if no endpoint is ready.
	Ready bool
}

// Decode decodes a snapshot; ok is false if the Service is not ours to serve.
func Decode(snap Snapshot, c Config) (s Service, ok bool) {
	svc := snap.Service
	if !served(svc) {
		return Service{}, false
	}
	s = Service{
		Key:           svc.Namespace + "/" + svc.Name,
		Namespace:     svc.Namespace,
		Name:          svc.Name,
		ClusterIPs:    clusterIPs(svc),
		InternalLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal: svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		Gateways:      snap.Gateways,
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.Affinity = affinity(svc.Spec.SessionAffinityConfig)
	}
	f := newFilter(c, snap.Others)
	granted, refused := f.addresses(svc)
	s.External, s.Refused = externals(svc, granted), append(refused, refuseSources(svc)...)
	s.HealthPort = f.healthPort(&s, svc)
	for _, p := range ports(svc) {
		port := s.port(p, snap.Slices, c)
		f.port(&s, &port, svc, granted)
		for i, e := range port.Listed {
			if e.Pod && snap.Pod != nil {
				port.Listed[i].Own, port.Listed[i].Rerouted = snap.Pod(e.To.Addr())
			}
		}
		s.Ports = append(s.Ports, port)
	}
	slices.SortStableFunc(s.Ports, func(a, b Port) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return s, true
}

// served reports whether a Service is ours to serve.
func served(svc *corev1.Service) bool {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	for _, label := range []string{labelProxyName, corev1.IsHeadlessService} {
		if _, foreign := svc.Labels[label]; foreign {
			return false
		}
	}
	return len(clusterIPs(svc)) > 0
}

// ports returns the ports of a Service that the API server would accept: without those whose number is none, and without
// node ports that are none. Cut to 16 bits, 65616 would be somebody else's port 80.
func ports(svc *corev1.Service) []corev1.ServicePort {
	var valid []corev1.ServicePort
	for _, p := range svc.Spec.Ports {
		if p.Port < 1 || p.Port > math.MaxUint16 {
			continue
		}
		if p.NodePort < 0 || p.NodePort > math.MaxUint16 {
			p.NodePort = 0
		}
		valid = append(valid, p)
	}
	return valid
}

// clusterIPs returns the cluster addresses; none for headless Services.
func clusterIPs(svc *corev1.Service) []netip.Addr {
	all := svc.Spec.ClusterIPs
	if len(all) == 0 {
		all = []string{svc.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, text := range all {
		if a, ok := parseAddr(text); ok {
			out = append(out, a)
		}
	}
	return out
}

// defaultAffinity is the default of the API server.
const defaultAffinity = 3 * time.Hour

func affinity(c *corev1.SessionAffinityConfig) time.Duration {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return defaultAffinity
	}
	return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
}

// byRouter reports whether gateway routers, not the kernels of nodes, handle external
// traffic in a family; shared is true if the node is in shared gateway mode. Replies of
// pods with external gateways pass the gateway router of their node, which routes them to
// those gateways. It sends replies back another way only if it has handled the connection
// and preserved the client's address. So for such pods it handles ExternalLocal Services in
// any gateway mode, and other Services in none: the kernel hides their clients from it.
func (s Service) byRouter(f topology.Family, shared bool) bool {
	if slices.ContainsFunc(s.Gateways, func(a netip.Addr) bool { return topology.FamilyOf(a) == f }) {
		return s.ExternalLocal
	}
	return shared
}

func (s Service) has(f topology.Family) bool {
	_, ok := topology.AddrOf(f, s.ClusterIPs)
	return ok
}

// families returns the families of the Service, in the order of its addresses.
func (s Service) families() []topology.Family {
	out := make([]topology.Family, 0, len(s.ClusterIPs))
	for _, a := range s.ClusterIPs {
		out = append(out, topology.FamilyOf(a))
	}
	return out
}

// externals returns the external addresses of one family on which a port is served.
func (s Service) externals(f topology.Family, p Port) []External {
	var out []External
	for _, e := range s.External {
		if topology.FamilyOf(e.Addr) == f && !slices.Contains(p.Refused, e.Addr) {
			out = append(out, e)
		}
	}
	return out
}

// parseAddr parses an address; it returns false if packets cannot be sent to it across a
// network.
func parseAddr(s string) (netip.Addr, bool) {
	a, refused := reserved.Parse(s)
	return a, refused == (reserved.Refusal{})
}
