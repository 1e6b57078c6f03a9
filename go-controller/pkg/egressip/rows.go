package egressip

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// externalID is the external_ids key that existing tools look for; its value is
// the name of the EgressIP.
const externalID = "name"

// externalEgress is the external_ids key of a policy that maps each of its next hops
// to an egress address.
const externalEgress = "egress-ips"

// Owner is the owner of the rows of a pod, "namespace/name".
func Owner(pod string) nb.Owner { return nb.Owner{Feature: Feature, Object: pod} }

// Site is a place where a pod's traffic can be translated: to at most one address.
type Site struct {
	Pod  netip.Addr
	Node string
}

// Policy is the router policy of one address of a pod. A policy without next hops drops traffic.
type Policy struct {
	EgressIP string
	Hops     []netip.Addr // sorted
	// Egress are the egress addresses of the next hops, by next hop.
	Egress map[netip.Addr]netip.Addr
}

// addHop adds a next hop for an egress address.
func (p *Policy) addHop(hop, egress netip.Addr) {
	if p.Egress == nil {
		p.Egress = map[netip.Addr]netip.Addr{}
	}
	if _, ok := p.Egress[hop]; !ok {
		p.Hops, p.Egress[hop] = append(p.Hops, hop), egress
	}
}

// State is the state of a pod's rows: in the database, or in force.
type State struct {
	// EgressIP is the name in the translations.
	EgressIP string
	Policies map[netip.Addr]Policy // by address of the pod
	// NATs are the egress addresses on the primary networks.
	NATs map[Site]netip.Addr
}

// NewState returns a state without rows.
func NewState() State {
	return State{Policies: map[netip.Addr]Policy{}, NATs: map[Site]netip.Addr{}}
}

// StateOf reads the rows of a pod.
func StateOf(rows []nb.Row) State {
	s := NewState()
	for _, r := range rows {
		switch m := r.Model.(type) {
		case *nbdb.LogicalRouterPolicy:
			pod, err := netip.ParseAddr(r.ID)
			if err != nil {
				continue
			}
			p := Policy{EgressIP: m.ExternalIDs[externalID]}
			for _, text := range m.Nexthops {
				if hop, err := netip.ParseAddr(text); err == nil {
					p.Hops = append(p.Hops, hop)
				}
			}
			p.Egress = parseEgress(m.ExternalIDs[externalEgress])
			slices.SortFunc(p.Hops, netip.Addr.Compare)
			s.Policies[pod] = p
		case *nbdb.NAT:
			pod, podErr := netip.ParseAddr(m.LogicalIP)
			addr, err := netip.ParseAddr(m.ExternalIP)
			if podErr == nil && err == nil && m.LogicalPort != nil {
				s.EgressIP = m.ExternalIDs[externalID]
				s.NATs[Site{pod, strings.TrimPrefix(*m.LogicalPort, topology.ManagementLSP(""))}] = addr
			}
		}
	}
	return s
}

// parseEgress parses the egress addresses of next hops.
func parseEgress(text string) map[netip.Addr]netip.Addr {
	var out map[netip.Addr]netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		left, right, _ := strings.Cut(part, "=")
		hop, errHop := netip.ParseAddr(left)
		a, err := netip.ParseAddr(right)
		if errHop != nil || err != nil {
			continue
		}
		if out == nil {
			out = map[netip.Addr]netip.Addr{}
		}
		out[hop] = a
	}
	return out
}

// Clone returns a copy.
func (s State) Clone() State {
	return State{EgressIP: s.EgressIP, Policies: maps.Clone(s.Policies), NATs: maps.Clone(s.NATs)}
}

// SamePolicies reports whether two states have the same policies.
func (s State) SamePolicies(o State) bool {
	return maps.EqualFunc(s.Policies, o.Policies, func(a, b Policy) bool { return slices.Equal(a.Hops, b.Hops) })
}

// Unused reports whether the state has a translation to which none of its policies leads, for example on a node
// that an egress address is leaving. Traffic may still be led to it if the policies were changed a moment ago.
func (s State) Unused() bool {
	type use struct{ pod, egress netip.Addr }
	unused := map[use]int{}
	for site, egress := range s.NATs {
		unused[use{site.Pod, egress}]++
	}
	for pod, p := range s.Policies {
		for _, hop := range p.Hops {
			unused[use{pod, p.Egress[hop]}]--
		}
	}
	for _, n := range unused {
		if n > 0 {
			return true
		}
	}
	return false
}

// Addrs returns the addresses of the pod, sorted.
func (s State) Addrs() []netip.Addr {
	all := slices.Collect(maps.Keys(s.Policies))
	for site := range s.NATs {
		all = append(all, site.Pod)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// Rows returns the rows of a state.
func (s State) Rows() []nb.Row {
	rows := make([]nb.Row, 0, len(s.Policies)+len(s.NATs))
	for _, pod := range slices.SortedFunc(maps.Keys(s.Policies), netip.Addr.Compare) {
		rows = append(rows, s.Policies[pod].row(pod))
	}
	sites := slices.SortedFunc(maps.Keys(s.NATs), func(a, b Site) int {
		return cmp.Or(a.Pod.Compare(b.Pod), cmp.Compare(a.Node, b.Node))
	})
	for _, site := range sites {
		port := topology.ManagementLSP(site.Node)
		rows = append(rows, nb.Row{
			ID:     site.Pod.String() + "@" + site.Node,
			Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter(site.Node)},
			Model: &nbdb.NAT{
				Type:        nbdb.NATTypeSNAT,
				ExternalIP:  s.NATs[site].String(),
				LogicalIP:   site.Pod.String(),
				LogicalPort: &port,
				ExternalIDs: map[string]string{externalID: s.EgressIP},
			},
		})
	}
	return rows
}

func (p Policy) row(pod netip.Addr) nb.Row {
	m := &nbdb.LogicalRouterPolicy{
		Priority:    topology.PriorityEgressIP,
		Match:       fmt.Sprintf("%s.src == %s", topology.FamilyOf(pod).Match(), pod),
		Action:      nbdb.LogicalRouterPolicyActionDrop,
		ExternalIDs: map[string]string{externalID: p.EgressIP},
	}
	var egress []string
	for _, hop := range p.Hops {
		m.Action = nbdb.LogicalRouterPolicyActionReroute
		m.Nexthops = append(m.Nexthops, hop.String())
		if a, ok := p.Egress[hop]; ok {
			egress = append(egress, hop.String()+"="+a.String())
		}
	}
	if len(egress) > 0 {
		m.ExternalIDs[externalEgress] = strings.Join(egress, ",")
	}
	return nb.Row{
		ID:     pod.String(),
		Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
		Model:  m,
	}
}
