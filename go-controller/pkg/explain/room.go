package explain

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Room is the number of further EgressIP addresses that a node could take in one of its networks.
type Room struct {
	Network   string `json:"network"`
	Secondary bool   `json:"secondary,omitempty"`
	// Addresses is the number of addresses in the network that nothing in the cluster uses, at most MaxRoom.
	// Whether others use them is unknown.
	Addresses int `json:"addresses"`
}

// MaxRoom is the maximum to which free addresses are counted.
const MaxRoom = 1_000_000

// rooms counts free addresses, only once for each network.
type rooms struct {
	*Cluster
	used map[netip.Addr]bool
	free map[netip.Prefix]int
}

func (c *Cluster) rooms() *rooms { return &rooms{c, c.used(), map[netip.Prefix]int{}} }

// room returns the room of a node, for each network from which it can take addresses.
func (c *rooms) room(node string) []Room {
	var all []Room
	for _, f := range c.nodeFeatures(c.nodes[node]) {
		network, err := netip.ParsePrefix(f.Network)
		if f.Feature != kindEgressIP || !f.Possible || err != nil {
			continue
		}
		r := Room{Network: f.Network, Secondary: f.Secondary, Addresses: c.count(network)}
		if r.Secondary {
			r.Addresses = min(r.Addresses, max(0, kube.MaxEgressAddresses-c.secondaries(node)))
		}
		all = append(all, r)
	}
	return all
}

// secondaries returns the number of addresses on secondary networks planned for a
// node.
func (c *Cluster) secondaries(node string) int {
	n := 0
	for _, h := range c.index.held[node] {
		if !h.Primary {
			n++
		}
	}
	return n
}

// count counts the addresses of a network that nothing in the cluster uses.
func (c *rooms) count(network netip.Prefix) int {
	if n, ok := c.free[network]; ok {
		return n
	}
	bits := network.Addr().BitLen() - network.Bits()
	free := math.MaxInt
	if bits < strconv.IntSize-1 {
		free = 1 << bits
	}
	if topology.FamilyOf(network.Addr()) == topology.IPv4 && bits > 1 {
		free -= 2 // the network and broadcast addresses
	}
	for a := range c.used {
		if network.Contains(a) {
			free--
		}
	}
	c.free[network] = min(max(0, free), MaxRoom)
	return c.free[network]
}

// used returns the addresses on the networks of nodes that something in the cluster uses.
func (c *Cluster) used() map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			used[a.Unmap()] = true
		}
	}
	for _, n := range c.candidates() {
		for _, p := range n.Primary {
			used[p.Addr()] = true
		}
		for _, p := range n.Host {
			used[p.Addr()] = true
		}
		for _, a := range n.Gateway.NextHops {
			used[a] = true
		}
	}
	for _, e := range c.decoded {
		for _, a := range e.Addrs() {
			used[a] = true
		}
		for a := range e.Holders {
			used[a] = true
		}
	}
	for _, svc := range c.snap.Services {
		for _, a := range svc.Spec.ExternalIPs {
			add(a)
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			add(in.IP)
		}
	}
	return used
}

// roomText describes the room, by family.
func roomText(all []Room) string {
	free := map[topology.Family]int{}
	for _, r := range all {
		p, err := netip.ParsePrefix(r.Network)
		if err != nil {
			continue
		}
		free[topology.FamilyOf(p.Addr())] += r.Addresses
	}
	var texts []string
	for _, f := range topology.Families {
		n, ok := free[f]
		switch {
		case !ok:
		case n >= MaxRoom:
			texts = append(texts, fmt.Sprintf("%s over %d", f, MaxRoom-1))
		default:
			texts = append(texts, fmt.Sprintf("%s %d", f, n))
		}
	}
	if texts == nil {
		return "none"
	}
	return strings.Join(texts, ", ")
}
