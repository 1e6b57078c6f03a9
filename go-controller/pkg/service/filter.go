package service

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Refusal is a value in a Service that is not served.
type Refusal struct {
	// Field and Value are the field and its refused value.
	Field, Value string
	Reason       reserved.Reason
	Message      string // a sentence for the user, starting with the value
}

// The fields that are refused.
const (
	fieldIngress    = "status.loadBalancer.ingress"
	fieldExternal   = "spec.externalIPs"
	fieldSources    = "spec.loadBalancerSourceRanges"
	fieldHealthPort = "spec.healthCheckNodePort"
	fieldNodePort   = "spec.ports.nodePort"
)

// The reasons besides those of package reserved.
const (
	// InvalidSourceRange: an entry of loadBalancerSourceRanges is not a range. It allows no
	// clients.
	InvalidSourceRange reserved.Reason = "InvalidSourceRange"
	// PortTaken: another Service has the port.
	PortTaken reserved.Reason = "PortTaken"
	// HostPortReserved: the nodes themselves use the port.
	HostPortReserved reserved.Reason = "HostPortReserved"
	// HealthPortInUse: another process of a node listens on the health port.
	HealthPortInUse reserved.Reason = "HealthPortInUse"
)

// privileged is the first port that is not reserved for system services.
const privileged = 1024

// HostPort is a port that the nodes themselves serve.
type HostPort struct {
	Protocol string // "tcp", "udp"
	Port     uint16
}

// DefaultHostPorts are the ports that nodes serve in every cluster: SSH; etcd, the API server, the
// scheduler, the controller manager and the kubelet; metrics, traces and the page of ovnkube; the OVN databases
// and the traffic between their members; tunnels and BFD.
var DefaultHostPorts = []HostPort{
	{"tcp", 22}, {"tcp", 2379}, {"tcp", 2380}, {"tcp", 6443},
	{"tcp", 10248}, {"tcp", 10249}, {"tcp", 10250}, {"tcp", 10255}, {"tcp", 10256}, {"tcp", 10257}, {"tcp", 10258}, {"tcp", 10259},
	{"tcp", 9107}, {"tcp", 9409}, {"tcp", 9410}, {"tcp", 9413}, {"tcp", 9414},
	{"tcp", 6641}, {"tcp", 6642}, {"tcp", 6643}, {"tcp", 6644}, {"tcp", 6645},
	{"udp", 6081}, {"udp", 3784}, {"udp", 3785}, {"udp", 4784},
}

// ConfiguredHostPorts returns the ports that nodes serve besides, and that are configured identically for all of them:
// that of tunnels, and that of health probes, 0 for none.
func ConfiguredHostPorts(encap, health int) []HostPort {
	ports := []HostPort{{"udp", uint16(encap)}}
	if health != 0 {
		ports = append(ports, HostPort{"tcp", uint16(health)})
	}
	return ports
}

// Others provides what belongs to other objects than the Service being decoded.
type Others interface {
	// Owners returns the owners of an address that are not Services.
	Owners(a netip.Addr) []reserved.Owner
	// ClusterAddr returns the Service "namespace/name" whose cluster address a is;
	// "" for none.
	ClusterAddr(a netip.Addr) string
	// At returns the Services that request a port of an external address.
	At(to netip.AddrPort, protocol string) []*corev1.Service
	// OnPort returns the Services that have this node port or, for TCP, this health port.
	OnPort(protocol string, port uint16) []*corev1.Service
}

// noOthers is an Others without any objects.
type noOthers struct{}

func (noOthers) Owners(netip.Addr) []reserved.Owner          { return nil }
func (noOthers) ClusterAddr(netip.Addr) string               { return "" }
func (noOthers) At(netip.AddrPort, string) []*corev1.Service { return nil }
func (noOthers) OnPort(string, uint16) []*corev1.Service     { return nil }

// filter decides which of the values in a Service are served. Master and nodes both rely on
// it alone.
type filter struct {
	config Config
	ranges reserved.Ranges
	others Others
}

func newFilter(c Config, others Others) filter {
	if others == nil {
		others = noOthers{}
	}
	return filter{config: c, others: others, ranges: c.Ranges()}
}

// Ranges are the ranges that the cluster uses for itself.
func (c Config) Ranges() reserved.Ranges {
	return reserved.Ranges{Pods: c.Cluster, Services: c.Services, Join: c.Join, Masquerade: c.Masquerade}
}

// address is an external address that a Service requests and may have.
type address struct {
	netip.Addr
	field string
	// hosts are the hosts that have the address too.
	hosts []reserved.Owner
}

// RequestedAddr is a requested external address as written in the Service.
type RequestedAddr struct {
	Field, Text string
}

// Claims returns what a Service requests that others may request as well, as index keys.
func Claims(svc *corev1.Service) []string {
	if !served(svc) {
		return nil
	}
	var claims []string
	for _, a := range clusterIPs(svc) {
		claims = append(claims, ClusterAddrClaim(a))
	}
	for _, requested := range RequestedAddrs(svc) {
		a, why := reserved.Parse(requested.Text)
		if why != (reserved.Refusal{}) {
			continue
		}
		claims = append(claims, AddrClaim(a))
		for _, p := range ports(svc) {
			protocol := protocolOf(p.Protocol)
			claims = append(claims, AtClaim(netip.AddrPortFrom(a, uint16(p.Port)), protocol))
			if requested.Field == fieldIngress {
				claims = append(claims, IngressPortClaim(protocol, uint16(p.Port)), ingressAt+AtClaim(netip.AddrPortFrom(a, uint16(p.Port)), protocol))
			}
		}
	}
	for _, p := range ports(svc) {
		if p.NodePort != 0 {
			claims = append(claims, PortClaim(protocolOf(p.Protocol), uint16(p.NodePort)))
		}
	}
	if port := wantsHealthPort(svc); port != 0 {
		claims = append(claims, PortClaim("tcp", port))
	}
	slices.Sort(claims)
	return slices.Compact(claims)
}

// ingressAt precedes an AtClaim if the address is that of a load balancer: such a Service may have it although a host has it.
const ingressAt = "ingress-"

// ClusterAddrClaim returns the claim to a cluster address.
func ClusterAddrClaim(a netip.Addr) string { return "cluster " + a.String() }

// AddrClaim returns the claim to an external address.
func AddrClaim(a netip.Addr) string { return "address " + a.String() }

// AtClaim returns the claim to a port of an external address.
func AtClaim(to netip.AddrPort, protocol string) string { return "at " + to.String() + " " + protocol }

// IngressPortClaim returns the claim to a port of any load balancer address.
func IngressPortClaim(protocol string, port uint16) string {
	return fmt.Sprintf("ingress %d %s", port, protocol)
}

// PortClaim returns the claim to a node port or, for TCP, to a health port.
func PortClaim(protocol string, port uint16) string { return fmt.Sprintf("port %d %s", port, protocol) }

// Contested returns the claims of other Services that are affected when a claim is added or
// removed: those Services have to be reconciled too.
func Contested(claim string) []string {
	kind, rest, _ := strings.Cut(claim, " ")
	switch kind {
	case "cluster":
		return []string{"address " + rest}
	case "at":
		return []string{claim}
	case ingressAt + "at":
		return []string{"at " + rest}
	case "port":
		return []string{claim, "ingress " + rest}
	}
	return nil
}

// RequestedAddrs returns the external addresses that a Service requests, without those of load
// balancers that forward to node ports themselves (ipMode Proxy).
func RequestedAddrs(svc *corev1.Service) []RequestedAddr {
	var all []RequestedAddr
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if in.IP != "" && (in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP) {
				all = append(all, RequestedAddr{fieldIngress, in.IP})
			}
		}
	}
	for _, ip := range svc.Spec.ExternalIPs {
		all = append(all, RequestedAddr{fieldExternal, ip})
	}
	return all
}

// addresses returns the external addresses that a Service may have, without duplicates, and
// the reasons why the others are refused.
func (f filter) addresses(svc *corev1.Service) (granted []address, refused []Refusal) {
	cluster := clusterIPs(svc)
	for _, requested := range RequestedAddrs(svc) {
		a, why := reserved.Parse(requested.Text)
		if why == (reserved.Refusal{}) {
			if slices.ContainsFunc(granted, func(g address) bool { return g.Addr == a }) {
				continue
			}
			why = f.refuse(a, cluster)
		}
		var hosts []reserved.Owner
		if why == (reserved.Refusal{}) {
			for _, o := range f.others.Owners(a) {
				if o.IsHost() && requested.Field == fieldIngress {
					hosts = append(hosts, o) // a provider may use nodes as load balancers
				} else if why == (reserved.Refusal{}) {
					why = o.Refuse()
				}
			}
		}
		if why != (reserved.Refusal{}) {
			refused = append(refused, Refusal{requested.Field, requested.Text, why.Reason, fmt.Sprintf("%q is not served: %s", requested.Text, why.Message)})
			continue
		}
		granted = append(granted, address{Addr: a, field: requested.Field, hosts: hosts})
	}
	return granted, refused
}

// refuse returns why no Service with these cluster addresses can have an address.
func (f filter) refuse(a netip.Addr, cluster []netip.Addr) reserved.Refusal {
	if _, ok := topology.AddrOf(topology.FamilyOf(a), cluster); !ok {
		return reserved.Refusal{Reason: reserved.InvalidAddress,
			Message: fmt.Sprintf("the Service has no cluster address of %s", topology.FamilyOf(a))}
	}
	if why := f.ranges.Refuse(a); why != (reserved.Refusal{}) {
		return why
	}
	if key := f.others.ClusterAddr(a); key != "" {
		return reserved.Refusal{Reason: reserved.InternalAddress, Message: "it is the cluster address of Service " + key}
	}
	return reserved.Refusal{}
}

// externals returns the External of each granted address. Source ranges apply only to load
// balancer addresses.
func externals(svc *corev1.Service, granted []address) []External {
	ranges, invalid := sources(svc)
	out := make([]External, 0, len(granted))
	for _, g := range granted {
		e := External{Addr: g.Addr}
		if g.field == fieldIngress {
			e.Sources = sourcesOf(topology.FamilyOf(g.Addr), ranges)
			// An entry that is not a range still restricts, as it is unknown whom it was
			// meant to allow.
			e.Restricted = len(e.Sources) > 0 || len(invalid) > 0
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b External) int { return a.Addr.Compare(b.Addr) })
	return out
}

// sources decodes loadBalancerSourceRanges and returns invalid entries separately.
func sources(svc *corev1.Service) (ranges []netip.Prefix, invalid []string) {
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || p.Addr().Is4In6() {
			invalid = append(invalid, text)
			continue
		}
		ranges = append(ranges, p.Masked())
	}
	return ranges, invalid
}

// sourcesOf returns the source ranges of one family. A Service that has ranges of the other
// family only does not restrict this one.
func sourcesOf(f topology.Family, all []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range all {
		if topology.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePrefixes)
	return slices.Compact(out)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func refuseSources(svc *corev1.Service) []Refusal {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	_, invalid := sources(svc)
	refused := make([]Refusal, 0, len(invalid))
	for _, text := range invalid {
		refused = append(refused, Refusal{fieldSources, text, InvalidSourceRange,
			fmt.Sprintf("%q admits nobody: it is not a range of addresses such as 192.0.2.0/24", text)})
	}
	return refused
}

// healthPort returns the port on which nodes report whether they have endpoints; if it is
// refused, it records the reason in s.
func (f filter) healthPort(s *Service, svc *corev1.Service) uint16 {
	port := wantsHealthPort(svc)
	if port == 0 {
		return 0
	}
	var why reserved.Refusal
	switch other, kind := f.onPort(svc, port); {
	case port < privileged:
		why = reserved.Refusal{Reason: HostPortReserved, Message: "ports below 1024 are for the nodes' own services"}
	case f.reserved("tcp", port):
		why = reserved.Refusal{Reason: HostPortReserved, Message: "the nodes use this port themselves"}
	case other != "":
		why = reserved.Refusal{Reason: PortTaken, Message: "it is the " + kind + " of Service " + other}
	default:
		return port
	}
	value := fmt.Sprint(port)
	s.Refused = append(s.Refused, Refusal{fieldHealthPort, value, why.Reason, fmt.Sprintf("%s is not served: %s", value, why.Message)})
	return 0
}

// wantsHealthPort returns the health port that a Service requests; 0: none.
func wantsHealthPort(svc *corev1.Service) uint16 {
	if n := svc.Spec.HealthCheckNodePort; n < 0 || n > math.MaxUint16 {
		return 0
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	return uint16(svc.Spec.HealthCheckNodePort)
}

// onPort returns the Service that takes precedence on the number of a health port, and what
// it uses it for: as a node port, or as the health port of an older Service.
func (f filter) onPort(svc *corev1.Service, port uint16) (key, what string) {
	var oldest *corev1.Service
	for _, other := range f.others.OnPort("tcp", port) {
		if !served(other) {
			continue
		}
		if f.config.NodePorts && hasNodePort(other, "tcp", port) {
			return keyOf(other), "node port"
		}
		if wantsHealthPort(other) == port && older(other, svc) && (oldest == nil || older(other, oldest)) {
			oldest = other
		}
	}
	if oldest == nil {
		return "", ""
	}
	return keyOf(oldest), "health port"
}

func hasNodePort(svc *corev1.Service, protocol string, port uint16) bool {
	return slices.ContainsFunc(ports(svc), func(p corev1.ServicePort) bool {
		return uint16(p.NodePort) == port && protocolOf(p.Protocol) == protocol
	})
}

func (f filter) reserved(protocol string, port uint16) bool {
	return slices.Contains(f.config.HostPorts, HostPort{protocol, port})
}

// port removes from a port what the Service may not have, and records the reasons in s.
func (f filter) port(s *Service, port *Port, svc *corev1.Service, granted []address) {
	if port.NodePort != 0 && f.reserved(port.Protocol, port.NodePort) {
		value := fmt.Sprintf("%d/%s", port.NodePort, strings.ToUpper(port.Protocol))
		s.Refused = append(s.Refused, Refusal{fieldNodePort, value, HostPortReserved, value + " is not served: the nodes use this port themselves"})
		port.NodePort = 0
	}
	for _, g := range granted {
		why, lost := f.portAt(svc, g, port)
		if !lost {
			continue
		}
		port.Refused = append(port.Refused, g.Addr)
		if why == (reserved.Refusal{}) {
			continue
		}
		value := fmt.Sprintf("%s/%s", netip.AddrPortFrom(g.Addr, port.Port), strings.ToUpper(port.Protocol))
		s.Refused = append(s.Refused, Refusal{g.field, value, why.Reason, value + " is not served: " + why.Message})
	}
}

// portAt reports whether a port of an address is taken (lost), and why it is not served for
// this Service; without a reason it is served in another way.
func (f filter) portAt(svc *corev1.Service, g address, port *Port) (why reserved.Refusal, lost bool) {
	if why, lost = f.portOfHost(svc, g, port.Protocol, port.Port); lost {
		return why, true
	}
	var oldest *corev1.Service
	for _, other := range f.others.At(netip.AddrPortFrom(g.Addr, port.Port), port.Protocol) {
		if older(other, svc) && (oldest == nil || older(other, oldest)) && f.has(other, g.Addr, port) {
			oldest = other
		}
	}
	if oldest == nil {
		return reserved.Refusal{}, false
	}
	return reserved.Refusal{Reason: reserved.AddressTaken,
		Message: fmt.Sprintf("Service %s, which is older, has it", keyOf(oldest))}, true
}

// portOfHost is portAt for addresses that hosts have too.
func (f filter) portOfHost(svc *corev1.Service, g address, protocol string, port uint16) (why reserved.Refusal, lost bool) {
	if len(g.hosts) == 0 {
		return reserved.Refusal{}, false
	}
	if f.reserved(protocol, port) {
		return reserved.Refusal{Reason: HostPortReserved, Message: g.hosts[0].Refuse().Message + ", and the nodes use this port themselves"}, true
	}
	for _, h := range g.hosts {
		if h.Kind == reserved.APIServer && protocol == "tcp" && slices.Contains(h.Ports, port) {
			return h.Refuse(), true
		}
	}
	for _, other := range f.others.OnPort(protocol, port) {
		if !served(other) {
			continue
		}
		var what string
		switch {
		case f.config.NodePorts && hasNodePort(other, protocol, port):
			what = "node port"
		case protocol == "tcp" && wantsHealthPort(other) == port:
			what = "health port"
		default:
			continue
		}
		if keyOf(other) == keyOf(svc) && what == "node port" {
			return reserved.Refusal{}, true // served as its node port
		}
		return reserved.Refusal{Reason: PortTaken, Message: fmt.Sprintf("%s, and the port is the %s of Service %s",
			g.hosts[0].Refuse().Message, what, keyOf(other))}, true
	}
	return reserved.Refusal{}, false
}

// has reports whether a Service may have a port of an address, regardless of competing
// Services.
func (f filter) has(svc *corev1.Service, a netip.Addr, port *Port) bool {
	if !served(svc) || !slices.ContainsFunc(ports(svc), func(p corev1.ServicePort) bool {
		return uint16(p.Port) == port.Port && protocolOf(p.Protocol) == port.Protocol
	}) {
		return false
	}
	granted, _ := f.addresses(svc)
	i := slices.IndexFunc(granted, func(g address) bool { return g.Addr == a })
	if i < 0 {
		return false
	}
	_, lost := f.portOfHost(svc, granted[i], port.Protocol, port.Port)
	return !lost
}

// older reports whether Service a takes precedence over b: it is older, or of the same age
// and first by name. A Service does not take precedence over itself.
func older(a, b *corev1.Service) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name)) < 0
}

func keyOf(svc *corev1.Service) string { return svc.Namespace + "/" + svc.Name }
