package egressip

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Refusal says why an address has no node, or an EgressIP has no pods. The zero
// Refusal means that nothing is refused.
type Refusal struct {
	Reason  Reason
	Message string // a sentence for the user
}

// Reason is the machine-readable part of a Refusal, and the reason of Events.
type Reason string

// The reasons why an address has no node.
const (
	InvalidSelector Reason = "InvalidSelector"
	InvalidAddress  Reason = "InvalidAddress"
	InternalAddress Reason = "InternalAddress"
	NodeAddress     Reason = "NodeAddress"
	GatewayAddress  Reason = "GatewayAddress"
	APIServer       Reason = "APIServerAddress"
	AddressTaken    Reason = "AddressTaken"
	NoNode          Reason = "NoNode"
)

// EgressIP is a decoded API object.
type EgressIP struct {
	Key                 string
	Created             time.Time
	Addresses           []Address // in the order of the spec, without duplicates
	DropWhenUnavailable bool      // traffic without an address is dropped (onUnavailable Drop)
	PerPod              bool      // each pod uses one address per family (addressAffinity Pod)
	Refused             Refusal   // refusal of the whole EgressIP: it selects no pods and has no nodes
	// Items are the nodes that are to hold the addresses, according to the status. They are
	// the only state that placement keeps.
	Items map[netip.Addr]string
	// Holders are the nodes whose status entries have an address.
	Holders map[netip.Addr][]string
}

// Address is an entry of the spec's list of addresses.
type Address struct {
	Text string
	Addr netip.Addr // zero if the text is not an address
	// Refused is why the text can never be an egress address, in any cluster.
	Refused Refusal
}

// Decode decodes an object, which may predate the current schema.
func Decode(e *v1.EgressIP) EgressIP {
	out := EgressIP{
		Key:                 e.Name,
		Created:             e.CreationTimestamp.Time,
		DropWhenUnavailable: e.Spec.OnUnavailable == v1.UnavailableDrop,
		PerPod:              e.Spec.AddressAffinity == v1.AddressAffinityPod,
		Items:               map[netip.Addr]string{},
		Holders:             map[netip.Addr][]string{},
	}
	if _, err := NewSelector(e); err != nil {
		out.Refused = Refusal{InvalidSelector, err.Error()}
	}
	for _, text := range e.Spec.EgressIPs {
		a := parse(string(text))
		if !slices.ContainsFunc(out.Addresses, func(b Address) bool { return a == b || a.Addr.IsValid() && a.Addr == b.Addr }) {
			out.Addresses = append(out.Addresses, a)
		}
	}
	for _, item := range e.Status.Items {
		if a, err := netip.ParseAddr(item.EgressIP); err == nil {
			out.Items[a] = item.Node
		}
	}
	for _, nodeStatus := range e.Status.Programmed {
		for _, text := range nodeStatus.EgressIPs {
			if a, err := netip.ParseAddr(text); err == nil {
				out.Holders[a] = append(out.Holders[a], nodeStatus.Node)
			}
		}
	}
	return out
}

// parse decodes an entry of the spec.
func parse(text string) Address {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return Address{Text: text, Refused: Refusal{InvalidAddress, fmt.Sprintf("%q is not an IP address", text)}}
	case a.Zone() != "" || a.Is4In6():
		return Address{Text: text, Refused: Refusal{InvalidAddress, fmt.Sprintf("%q is not in canonical form", text)}}
	case reserved.NoHost(a) != "":
		return Address{Text: text, Refused: Refusal{InvalidAddress, text + " is not an address that traffic can have on a network"}}
	}
	return Address{Text: text, Addr: a}
}

// Addrs returns the valid addresses.
func (e EgressIP) Addrs() []netip.Addr {
	var addrs []netip.Addr
	for _, a := range e.Addresses {
		if a.Addr.IsValid() {
			addrs = append(addrs, a.Addr)
		}
	}
	return addrs
}

// Serves reports whether an EgressIP has addresses of a family.
func (e EgressIP) Serves(f topology.Family) bool {
	_, ok := topology.AddrOf(f, e.Addrs())
	return ok
}

// SortByPrecedence sorts by precedence: older EgressIPs first, then by name.
func SortByPrecedence(all []EgressIP) {
	slices.SortFunc(all, func(a, b EgressIP) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Key, b.Key))
	})
}

// Network describes the cluster's networks: no egress address may be in any of them.
type Network struct {
	Cluster    []netip.Prefix // pod subnets
	Service    []netip.Prefix
	Join       []netip.Prefix
	Masquerade []netip.Prefix
	// Services are the Services that are reachable from outside, by their load balancer
	// addresses and external addresses.
	Services map[netip.Addr]Service
	// Hosts are the hosts known from Kubernetes only, by address: nodes that have not
	// published their addresses yet, and API servers, whose name is empty.
	Hosts map[netip.Addr]string
}

// Service is a Service with an address that is reachable from outside.
type Service struct {
	Key     string // "namespace/name"
	Created time.Time
}

// refuse returns why an address inside the cluster cannot be an egress address.
func (n Network) refuse(a netip.Addr) Refusal {
	for _, in := range []struct {
		name     string
		prefixes []netip.Prefix
	}{{"cluster", n.Cluster}, {"service", n.Service}, {"join", n.Join}, {"masquerade", n.Masquerade}} {
		for _, p := range in.prefixes {
			if p.Contains(a) {
				return Refusal{InternalAddress, fmt.Sprintf("%s is in the %s subnet %s", a, in.name, p)}
			}
		}
	}
	return Refusal{}
}

// taken are the owners of addresses that are not available to others.
type taken struct {
	nodes    map[netip.Addr]string
	gateways map[netip.Addr]string
	services map[netip.Addr]Service
	hosts    map[netip.Addr]string
}

// takenBy collects the addresses that nodes report as their own, if the report is plausible:
// the address must be in a network that the node is on.
func takenBy(nodes []topology.Node, network Network) taken {
	t := taken{nodes: map[netip.Addr]string{}, gateways: map[netip.Addr]string{}, services: network.Services, hosts: network.Hosts}
	note := func(m map[netip.Addr]string, a netip.Addr, node string) {
		if other, ok := m[a]; !ok || node < other {
			m[a] = node
		}
	}
	for _, n := range nodes {
		own := slices.Concat(n.Primary, n.Gateway.Addrs)
		for _, p := range own {
			note(t.nodes, p.Addr(), n.Name)
		}
		for _, p := range n.Host {
			if !p.IsSingleIP() || slices.ContainsFunc(slices.Concat(own, n.Host), func(o netip.Prefix) bool {
				return !o.IsSingleIP() && o.Contains(p.Addr())
			}) {
				note(t.nodes, p.Addr(), n.Name)
			}
		}
		for _, a := range n.Gateway.NextHops {
			note(t.gateways, a, n.Name)
		}
	}
	return t
}

// refuseTo returns why an EgressIP cannot get an address. A Service counts only if it is older: it is written by
// users of a namespace, who could otherwise take the address for good at a moment when no node holds it.
func (t taken) refuseTo(e EgressIP, a netip.Addr) Refusal {
	if s, ok := t.services[a]; ok && !s.Created.Before(e.Created) {
		t.services = nil
	}
	return t.refuse(a)
}

func (t taken) refuse(a netip.Addr) Refusal {
	if node, ok := t.nodes[a]; ok {
		return Refusal{NodeAddress, fmt.Sprintf("%s is an address of node %s", a, node)}
	}
	switch node, ok := t.hosts[a]; {
	case ok && node == "":
		return Refusal{APIServer, fmt.Sprintf("%s is an address of the API server", a)}
	case ok:
		return Refusal{NodeAddress, fmt.Sprintf("%s is an address of node %s", a, node)}
	}
	if node, ok := t.gateways[a]; ok {
		return Refusal{GatewayAddress, fmt.Sprintf("%s is the gateway of node %s", a, node)}
	}
	if service, ok := t.services[a]; ok {
		return Refusal{AddressTaken, fmt.Sprintf("%s is an address of Service %s", a, service.Key)}
	}
	return Refusal{}
}

// networkOf returns the network of a node that contains an address (longest prefix match)
// and whether it is the primary network. A single address is no network: nobody else could be reached from there.
func networkOf(n topology.Node, a netip.Addr) (network netip.Prefix, primary, ok bool) {
	longest := func(prefixes []netip.Prefix, isPrimary bool) {
		for _, p := range prefixes {
			if !p.IsSingleIP() && p.Contains(a) && (!ok || p.Bits() > network.Bits()) {
				network, primary, ok = p.Masked(), isPrimary, true
			}
		}
	}
	longest(n.Primary, true) // the primary network wins a tie
	longest(n.Host, false)
	return network, primary, ok
}
