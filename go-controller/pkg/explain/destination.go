package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

// way is how a pod reaches a destination inside the cluster, by the address that the
// other side sees.
type way int

// The ways.
const (
	wayOutside way = iota // an egress feature may be about it
	wayDirect             // the other side sees the pod's own address
	wayNode               // it sees the address of the pod's own node
	wayNowhere            // nothing is forwarded
)

// inside tells whether a destination is one that no egress feature is about, and what
// becomes of it.
func (v *view) inside(to netip.AddrPort) bool {
	var ways map[way]bool
	var why string
	at, ok := v.c.serviceAt(to)
	switch {
	case ok && at.outside && to.Port() == 0:
		v.note = fmt.Sprintf("%s is %s of Service %s: at the ports of that pods reach its endpoints; the answer is about other ports", to.Addr(), at.what, at.key)
		return false
	case ok:
		ways, why = v.viaService(at, to.Addr())
		if ways[wayOutside] {
			v.note = fmt.Sprintf("%s is %s of Service %s, which has endpoints outside the cluster: the answer is about these", to.Addr(), at.what, at.key)
			return false
		}
	default:
		var by way
		if by, why = v.c.wayTo(to.Addr()); by == wayOutside {
			return false
		}
		ways = map[way]bool{by: true}
	}
	f := v.out
	f.Outcome, f.Why = OutcomeInside, why
	if ways[wayDirect] {
		f.Sources = []Source{{Address: v.addr.String(), Node: v.node.Name}}
	}
	if a := v.nodeAddr(); ways[wayNode] && a.IsValid() {
		f.Sources = append(f.Sources, Source{Address: a.String(), Node: v.node.Name})
	}
	return true
}

// wayTo says how pods reach an address, as the policies of package noreroute have it.
func (c *Cluster) wayTo(to netip.Addr) (way, string) {
	in := func(prefixes []netip.Prefix) bool {
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(to) })
	}
	owners := c.addresses.Owners(to)
	host := slices.IndexFunc(owners, reserved.Owner.IsHost)
	switch s := c.snap.Settings; {
	case in(s.Pods):
		return wayDirect, to.String() + " is in the pod network: pods see each other's addresses"
	case in(s.Services):
		return wayDirect, to.String() + " is in the range of Services inside the cluster"
	case in(s.Join):
		return wayDirect, to.String() + " is in the join network: routers of the cluster see the addresses of pods"
	case to.Is6() && to.IsLinkLocalUnicast():
		return wayNowhere, to.String() + " is on the pod's own link: no router forwards it"
	case in(c.nodeLocal):
		return wayNode, to.String() + " means another machine on each node: it is reached by the pod's own node, with that node's address"
	case host >= 0:
		return wayNode, strings.Replace(owners[host].Refuse().Message, "it is", to.String()+" is", 1) + ": pods call hosts with the address of their own node"
	}
	return wayOutside, ""
}

// viaService says how a pod reaches the endpoints of a Service, and who they see.
func (v *view) viaService(at served, to netip.Addr) (map[way]bool, string) {
	ways := map[way]bool{}
	for a := range v.c.index.listed[at.key] {
		if a.Is4() == to.Is4() {
			by, _ := v.c.wayTo(a)
			ways[by] = true
		}
	}
	why := fmt.Sprintf("%s is %s of Service %s", to, at.what, at.key)
	switch {
	case len(ways) == 0:
		ways[wayNowhere] = true
		return ways, why + ", which has no endpoints"
	case ways[wayDirect] && ways[wayNode]:
		why += ": its pods see the pod's address, and hosts that of the pod's own node"
	case ways[wayNode]:
		why += ", whose endpoints are hosts: they see the address of the pod's own node"
	default:
		why += ": its pods see the pod's address"
	}
	return ways, why
}

// served is an address at which OVN serves a Service.
type served struct {
	key string // "namespace/name"
	serviceAddr
}

// serviceAt returns what OVN serves at an address and port, port 0 for any; of several, which
// is a mistake of somebody's, the first by name.
func (c *Cluster) serviceAt(to netip.AddrPort) (served, bool) {
	var all []served
	for _, svc := range c.snap.Services {
		if to.Port() != 0 && !slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == int32(to.Port()) }) {
			continue
		}
		for _, a := range serviceAddrs(svc) {
			if is(a.text, to.Addr()) && !a.proxied && (!a.outside || c.free(to.Addr())) {
				all = append(all, served{svc.Namespace + "/" + svc.Name, a})
			}
		}
	}
	if len(all) == 0 {
		return served{}, false
	}
	return slices.MinFunc(all, func(a, b served) int { return strings.Compare(a.key, b.key) }), true
}

// free tells whether an address is nobody's but a Service's: others are not served.
func (c *Cluster) free(a netip.Addr) bool {
	return c.addresses.Ranges.Refuse(a) == (reserved.Refusal{}) && len(c.addresses.Owners(a)) == 0
}
