package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// labelProxyName names the proxy that is to serve a Service; ours has no name. A
// Service that says it is headless is for none.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Snapshot is what the API says about one Service.
type Snapshot struct {
	Service *corev1.Service
	Slices  []*discoveryv1.EndpointSlice
	// Pod reports whether a pod of the Service's own namespace has an address, and
	// whether an egress feature leads it away. Nil: none has.
	Pod func(netip.Addr) (own, led bool)
	// Gateways are the external gateways that pods of the namespace are routed to.
	Gateways []netip.Addr
	// Others tells what belongs to others; nil: nothing does.
	Others Others
}

// Service is a Service with its endpoints, decoded.
type Service struct {
	Key       string // "namespace/name"
	Namespace string
	Name      string
	// ClusterIPs are the cluster addresses, one a family, in the order of
	// ipFamilies. The other addresses and the node ports are of these families.
	ClusterIPs []netip.Addr
	// External are the addresses from outside: external IPs and those of the load
	// balancer, without those that are refused. Sorted, none twice.
	External []External
	Ports    []Port
	// InternalLocal and ExternalLocal: traffic from inside, or from outside, only
	// goes to endpoints of the node it arrives at.
	InternalLocal, ExternalLocal bool
	// Affinity is how long a client is to stay with its endpoint; 0: no affinity.
	Affinity time.Duration
	// HealthPort is the port at which nodes say whether they have endpoints; 0: none.
	HealthPort uint16
	// Gateways are the external gateways that pods of its namespace are routed to.
	Gateways []netip.Addr
	// Refused is what the user, or the load balancer provider, wrote and is not
	// served. All else is.
	Refused []Refusal
}

// External is an address from outside.
type External struct {
	Addr netip.Addr
	// Restricted: only Sources may use it, which can be nobody. Else everybody may.
	Restricted bool
	Sources    []netip.Prefix
}

// Port is a port of a Service.
type Port struct {
	Protocol string // "tcp", "udp", "sctp"
	Port     uint16
	NodePort uint16 // 0: none
	// Refused are the addresses from outside at which this port is somebody else's.
	Refused []netip.Addr
	// Candidates are all that can be asked to serve, of any family, sorted.
	Candidates []Endpoint
	// Listed are these and those that do not serve, now or any more: connections
	// that are open go on.
	Listed []Endpoint
}

// Endpoint is somebody who serves a port.
type Endpoint struct {
	To   netip.AddrPort
	Node string // empty where the API does not say
	// Pod tells addresses of the pod network from those of hosts and beyond.
	Pod bool
	// Own: it is a pod of the Service's namespace, and Led: one that an egress feature
	// leads away; known of those that are Listed. Whoever may write EndpointSlices can
	// list the pods of others, and must not decide how these leave.
	Own, Led bool
	// Ready endpoints come first; one that is not is on its way out and serves only
	// where nobody is ready.
	Ready bool
}

// Decode decodes a snapshot; ok is false where the Service is none of our
// business.
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
	asked, refused := f.addresses(svc)
	s.External, s.Refused = externals(svc, asked), append(refused, refuseSources(svc)...)
	s.HealthPort = f.healthPort(&s, svc)
	for _, p := range svc.Spec.Ports {
		port := s.port(p, snap.Slices, c)
		f.port(&s, &port, svc, asked)
		for i, e := range port.Listed {
			if e.Pod && snap.Pod != nil {
				port.Listed[i].Own, port.Listed[i].Led = snap.Pod(e.To.Addr())
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

// defaultAffinity is what the API server fills in.
const defaultAffinity = 3 * time.Hour

func affinity(c *corev1.SessionAffinityConfig) time.Duration {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return defaultAffinity
	}
	return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
}

// byRouter reports whether gateway routers take what comes from outside in a family, and
// not the kernels of the nodes; shared is about the node. What pods with external
// gateways answer passes the gateway router of their node, which has routes to the
// gateways for it. It knows another way back only where it has taken the connection,
// and has left the client's address alone. So it takes those of ExternalLocal in any
// gateway mode, and the others in none: the kernel hides their clients from it.
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

// externals returns the addresses from outside of one family at which a port is
// served.
func (s Service) externals(f topology.Family, p Port) []External {
	var out []External
	for _, e := range s.External {
		if topology.FamilyOf(e.Addr) == f && !slices.Contains(p.Refused, e.Addr) {
			out = append(out, e)
		}
	}
	return out
}

// parseAddr takes addresses that packets can be sent to across a network.
func parseAddr(s string) (netip.Addr, bool) {
	a, refused := reserved.Parse(s)
	return a, refused == (reserved.Refusal{})
}
