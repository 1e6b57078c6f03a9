package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// port decodes one port with its endpoints from all slices.
func (s Service) port(p corev1.ServicePort, sets []*discoveryv1.EndpointSlice, c Config) Port {
	out := Port{Protocol: protocolOf(p.Protocol), Port: uint16(p.Port), NodePort: uint16(p.NodePort)}
	for _, set := range sets {
		to, ok := targetPort(p, set.Ports)
		if !ok || set.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range set.Endpoints {
			listed := s.endpoints(&set.Endpoints[i], to, c)
			out.Listed = append(out.Listed, listed...)
			if serves(&set.Endpoints[i]) {
				out.Candidates = append(out.Candidates, listed...)
			}
		}
	}
	out.Listed, out.Candidates = distinct(out.Listed), distinct(out.Candidates)
	return out
}

// distinct sorts endpoints and removes duplicates.
func distinct(all []Endpoint) []Endpoint {
	slices.SortFunc(all, func(a, b Endpoint) int {
		// If two slices disagree, the one with more information comes first.
		return cmp.Or(a.To.Compare(b.To), -compareBools(a.Ready, b.Ready), -strings.Compare(a.Node, b.Node))
	})
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.To == b.To })
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// protocolOf returns the protocol in the notation of OVN and iptables.
func protocolOf(p corev1.Protocol) string {
	return strings.ToLower(string(cmp.Or(p, corev1.ProtocolTCP)))
}

// targetPort returns the port of a slice that corresponds to a port of the Service: the one
// with the same name and protocol.
func targetPort(p corev1.ServicePort, ports []discoveryv1.EndpointPort) (uint16, bool) {
	for _, e := range ports {
		name, protocol := "", corev1.ProtocolTCP
		if e.Name != nil {
			name = *e.Name
		}
		if e.Protocol != nil {
			protocol = *e.Protocol
		}
		if name == p.Name && protocolOf(protocol) == protocolOf(p.Protocol) && e.Port != nil && *e.Port > 0 && *e.Port <= 65535 {
			return uint16(*e.Port), true
		}
	}
	return 0, false
}

func ready(e *discoveryv1.Endpoint) bool {
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

// serves reports whether an endpoint can serve: it is ready, or terminating and still
// serving.
func serves(e *discoveryv1.Endpoint) bool {
	leaving := e.Conditions.Terminating != nil && *e.Conditions.Terminating &&
		e.Conditions.Serving != nil && *e.Conditions.Serving
	return ready(e) || leaving
}

// endpoints decodes one endpoint of a slice, for the families of the Service. Writers of
// slices may use any address except those that nodes use to talk to themselves.
func (s Service) endpoints(e *discoveryv1.Endpoint, port uint16, c Config) []Endpoint {
	node := ""
	if e.NodeName != nil {
		node = *e.NodeName
	}
	var out []Endpoint
	for _, text := range e.Addresses {
		addr, ok := parseAddr(text)
		if !ok || !s.has(topology.FamilyOf(addr)) || within(c.Masquerade, addr) {
			continue
		}
		out = append(out, Endpoint{
			To:    netip.AddrPortFrom(addr, port),
			Node:  node,
			Pod:   within(c.Cluster, addr),
			Ready: ready(e),
		})
	}
	return out
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Endpoints returns the endpoints that serve a port in one family: the ready ones or, if
// there are none, those that are terminating and still serving.
func (p Port) Endpoints(f topology.Family) []Endpoint {
	return p.choose(func(e Endpoint) bool { return family(e) == f })
}

// Local returns the endpoints that serve a port in one family on one node, by the same
// rule.
func (p Port) Local(f topology.Family, node string) []Endpoint {
	return p.choose(func(e Endpoint) bool { return family(e) == f && e.Node == node })
}

func (p Port) choose(in func(Endpoint) bool) []Endpoint {
	var ready, leaving []Endpoint
	for _, e := range p.Candidates {
		switch {
		case !in(e):
		case e.Ready:
			ready = append(ready, e)
		default:
			leaving = append(leaving, e)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return leaving
}

// onPods reports whether all candidates for a port in one family are pods, which determines
// the path of traffic. Readiness does not matter, so the path changes rarely.
func (p Port) onPods(f topology.Family) bool {
	return !slices.ContainsFunc(p.Candidates, func(e Endpoint) bool { return family(e) == f && !e.Pod })
}

// nodes returns the nodes with a candidate for a port in one family, sorted.
func (p Port) nodes(f topology.Family) []string { return nodesOf(f, p.Candidates) }

// listing returns the nodes with an endpoint that may have open connections to a port in
// one family, sorted.
func (p Port) listing(f topology.Family) []string { return nodesOf(f, p.Listed) }

func nodesOf(f topology.Family, endpoints []Endpoint) []string {
	var out []string
	for _, e := range endpoints {
		if family(e) == f && e.Node != "" {
			out = append(out, e.Node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func family(e Endpoint) topology.Family { return topology.FamilyOf(e.To.Addr()) }
