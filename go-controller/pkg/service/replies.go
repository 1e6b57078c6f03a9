package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// source identifies reply packets that share the same policies.
type source struct {
	protocol string
	port     uint16
	family   topology.Family
	// node is the node of the pods if the policy is for that node only.
	node string
	// plain means that no egress feature reroutes the pods.
	plain bool
}

// replies plans the policies that send replies back the way the client came. If the
// client's address is preserved, a reply goes from the pod's address to that of an external
// client, like connections that the pod itself opens: the egress features would send it to
// another node, which does not know the connection. A router cannot see that a packet is a
// reply, but it can see that it comes from the target port of the Service. So the policies
// send all such packets to where replies can be distinguished from other packets, which are
// dropped there: in shared gateway mode to the external bridge, by a mark, in local gateway
// mode to the kernel, by a separate MAC address, which every datapath preserves. Pods that
// no egress feature reroutes need no policy, unless their gateway router handles the
// connections in local gateway mode: it then gets everything they send from the port, even
// while no external gateway routes it there.
func (p *planner) replies() []nb.Row {
	if !p.ExternalLocal {
		return nil
	}
	pods := map[source][]netip.Addr{}
	inside := map[source][]netip.Addr{} // of all nodes
	var order, all []source
	note := func(order *[]source, pods map[source][]netip.Addr, s source, a netip.Addr) {
		if pods[s] == nil {
			*order = append(*order, s)
		}
		pods[s] = append(pods[s], a)
	}
	for _, port := range p.Ports {
		for _, e := range port.Listed {
			node, ok := p.nodes.of(e.To.Addr(), e.Node)
			s := source{protocol: port.Protocol, port: e.To.Port(), family: family(e)}
			local := ok && !p.nodes[node].Shared
			if !ok || !e.Rerouted && !(e.Own && local && p.byRouter(s.family, false)) {
				continue
			}
			note(&all, inside, s, e.To.Addr())
			if local {
				s.node, s.plain = node, !e.Rerouted
			}
			note(&order, pods, s, e.To.Addr())
		}
	}
	rows := make([]nb.Row, 0, len(order)+2*len(all))
	for _, s := range all {
		rows = append(rows, p.inside(s, s.match(inside[s]))...)
	}
	for _, s := range order {
		rows = append(rows, p.outside(s, s.match(pods[s])))
	}
	return rows
}

// id names the policies of a source.
func (s source) id(what string) string {
	id := fmt.Sprintf("%s %s %d %s", what, strings.ToUpper(s.protocol), s.port, s.family)
	if s.node != "" {
		id += " " + s.node
	}
	if s.plain {
		id += plainSuffix
	}
	return id
}

// match matches the packets that pods with these addresses send from the port.
func (s source) match(pods []netip.Addr) string {
	slices.SortFunc(pods, netip.Addr.Compare)
	var addresses []string
	for _, a := range slices.Compact(pods) {
		addresses = append(addresses, a.String())
	}
	return fmt.Sprintf("%s.src == {%s} && %s.src == %d", s.family.Match(), strings.Join(addresses, ", "), s.protocol, s.port)
}

func onClusterRouter() nb.Parent {
	return nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter}
}

// plainSuffix ends the ID of policies for pods that no egress feature reroutes.
const plainSuffix = " plain"

// WithPolicies adds the policies in the existing rows of a Service (there) to its planned rows, and
// prefers them to planned ones of the same source, which may lack pods or not know yet that they are rerouted.
func WithPolicies(rows, there []nb.Row) []nb.Row {
	isPolicy := func(r nb.Row) bool { _, ok := r.Model.(*nbdb.LogicalRouterPolicy); return ok }
	existing := map[string]bool{}
	for _, r := range there {
		if isPolicy(r) {
			existing[strings.TrimSuffix(r.ID, plainSuffix)] = true
		}
	}
	rows = slices.DeleteFunc(rows, func(r nb.Row) bool { return isPolicy(r) && existing[strings.TrimSuffix(r.ID, plainSuffix)] })
	for _, r := range there {
		if isPolicy(r) {
			r.Parent = onClusterRouter()
			rows = append(rows, r)
		}
	}
	return rows
}

// inside exempts traffic to pods, routers and nodes from the policies for replies, which
// have precedence over those of package noreroute.
func (p *planner) inside(s source, match string) []nb.Row {
	var ranges []string
	for _, r := range slices.Concat(p.config.Cluster, p.config.Join) {
		if topology.FamilyOf(r.Addr()) == s.family {
			ranges = append(ranges, r.String())
		}
	}
	row := func(what, dst string, options map[string]string) nb.Row {
		return nb.Row{ID: s.id(what), Parent: onClusterRouter(), Model: &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityServicePortInside,
			Match:    fmt.Sprintf("%s && %s.dst == %s", match, s.family.Match(), dst),
			Action:   nbdb.LogicalRouterPolicyActionAllow,
			Options:  options,
		}}
	}
	return []nb.Row{
		row("inside", "{"+strings.Join(ranges, ", ")+"}", nil),
		row("nodes", "$"+topology.NodeIPSet+"_"+s.family.Match(), map[string]string{"pkt_mark": strconv.Itoa(topology.MarkPodToNode)}),
	}
}

// outside plans the policy that sends packets to where replies are distinguished from other
// packets.
func (p *planner) outside(s source, match string) nb.Row {
	policy := &nbdb.LogicalRouterPolicy{
		Priority: topology.PriorityServicePort,
		Match:    match,
		Action:   nbdb.LogicalRouterPolicyActionAllow,
		Options:  map[string]string{"pkt_mark": strconv.Itoa(topology.MarkServicePort)},
	}
	if s.node != "" {
		router := p.byRouter(s.family, false)
		next := topology.ServicePortAddr(p.nodes[s.node].subnet(s.family))
		if router {
			next = p.nodes[s.node].join(s.family)
		}
		policy.Action, policy.Nexthops = nbdb.LogicalRouterPolicyActionReroute, []string{next.String()}
		if s.plain || !router {
			policy.Options = nil
		}
	}
	return nb.Row{ID: s.id("replies"), Parent: onClusterRouter(), Model: policy}
}

// noAddress is used for the IPv4 address that a forwarding group requires, but that is
// never used.
const noAddress = "0.0.0.0"

// servicePortRows give the management port of a node in local gateway mode the MAC address
// on which it receives potential replies.
func servicePortRows(n topology.Node) []nb.Row {
	mac := topology.ServicePortMAC(n.Subnets)
	group := &nbdb.ForwardingGroup{Name: "replies-" + n.Name, Vip: noAddress, Vmac: mac,
		ChildPort: []string{topology.ManagementLSP(n.Name)}}
	rows := []nb.Row{{ID: "replies", Parent: onSwitch(n.Name), Model: group}}
	for _, s := range n.Subnets {
		addr := topology.ServicePortAddr(s).String()
		port := topology.RouterToSwitch(n.Name)
		rows = append(rows, nb.Row{ID: port + "/" + addr, Model: &nbdb.StaticMACBinding{LogicalPort: port, IP: addr, MAC: mac}})
	}
	return rows
}
