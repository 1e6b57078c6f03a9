package externalroute

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner of the rows.
const Feature = "externalroute"

// idSource is the external id of a BFD session that tells where it is sent from. ovn-controller does not notice that the
// addresses of its port change.
const idSource = "source"

// Owner is the owner of the rows of a node.
func Owner(node string) nb.Owner { return nb.Owner{Feature: Feature, Object: node} }

// Pod is a pod for which gateways are planned.
type Pod struct {
	Key       string // "namespace/name"
	Namespace string
	Addrs     []netip.Addr
}

// NodeSnapshot is the input for planning the rows of one node.
type NodeSnapshot struct {
	Node topology.Node
	Pods []Pod
	// Rerouted are the addresses that policies of EgressIPs and EgressServices
	// steer away from their node. External gateways take precedence.
	Rerouted map[netip.Addr]bool
	// Up are the hops whose BFD session with the node is up; nil: all of them.
	Up map[netip.Addr]bool
	// Ending are the hops whose former BFD session may still exist on the node. They are
	// left out until it has ended.
	Ending map[netip.Addr]bool
}

// Up returns the hops whose session is up, according to the current rows of a node.
func Up(rows []nb.Row) map[netip.Addr]bool {
	up := map[netip.Addr]bool{}
	for _, r := range rows {
		if b, ok := r.Model.(*nbdb.BFD); ok && b.Status != nil && *b.Status == nbdb.BFDStatusUp {
			if a, err := netip.ParseAddr(b.DstIP); err == nil {
				up[a] = true
			}
		}
	}
	return up
}

// family is the part of a node's rows for one address family.
type family struct {
	topology.Family
	cfg     Config
	node    topology.Node
	router  nb.Parent
	own     map[netip.Addr]bool         // addresses of the node
	hops    map[netip.Addr]Hop          // hops with BFD that some pod uses
	up      map[netip.Addr]bool         // hops whose sessions are up; nil: all
	ending  map[netip.Addr]bool         // hops whose sessions must be written later
	reroute []netip.Addr                // pods with a usable route that must be led to the gateway router
	plain   []netip.Addr                // pods with an individual translation
	via     map[netip.Addr][]netip.Addr // hops of each pod
	skip    []netip.Addr                // pods that must be exempt from other rules' translation
	bare    []netip.Addr                // pods whose gateways expect their own addresses
	early   []netip.Addr                // others, whose gateways will, once they are usable
	second  []netip.Addr                // pods that use gateways on the second uplink
	rows    []nb.Row
}

// NodeRows plans the rows of a node: routes and BFD sessions on its gateway
// router, the policies that lead the pods there, and translations.
func NodeRows(cfg Config, plan Plan, s NodeSnapshot) []nb.Row {
	if !s.Node.HasGateway() {
		return nil
	}
	pods := slices.Clone(s.Pods)
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Key, b.Key) })
	var rows []nb.Row
	for _, f := range cfg.families() {
		rows = append(rows, familyRows(cfg, plan, s, pods, f)...)
	}
	return rows
}

func familyRows(cfg Config, plan Plan, s NodeSnapshot, pods []Pod, fam topology.Family) []nb.Row {
	f := &family{
		Family: fam,
		cfg:    cfg,
		node:   s.Node,
		router: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter(s.Node.Name)},
		own:    map[netip.Addr]bool{},
		hops:   map[netip.Addr]Hop{},
		via:    map[netip.Addr][]netip.Addr{},
		up:     s.Up,
		ending: s.Ending,
	}
	for _, a := range NodeAddrs(s.Node) {
		f.own[a] = true
	}
	seen := map[netip.Addr]bool{}
	for _, p := range pods {
		a, ok := topology.AddrOf(fam, p.Addrs)
		if !ok || seen[a] {
			continue // two pods share an address only for a moment, when one succeeds the other
		}
		seen[a] = true
		f.pod(a, plan.Hops[p.Namespace], s.Rerouted[a])
	}
	f.sessions()
	f.policies()
	f.toNodes()
	f.translations()
	f.untranslated()
	f.secondUplink()
	return f.rows
}

// NodeAddrs returns the addresses of a node that cannot be gateways of its pods.
func NodeAddrs(n topology.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, p := range slices.Concat(n.Gateway.Addrs, n.Primary, n.Host, n.Gateway.External.Addrs) {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// Networks returns the networks that the gateway router of a node is on.
func Networks(n topology.Node) []netip.Prefix {
	return slices.Concat(n.Gateway.Addrs, n.Gateway.External.Addrs)
}

// pod plans the routes of a pod. While none of its hops is usable, the pod is treated as if it had
// no gateways, except for the routes, so that their sessions can come up.
func (f *family) pod(a netip.Addr, hops []Hop, rerouted bool) {
	routed, skip, second := false, false, false
	for _, h := range hops {
		if topology.FamilyOf(h.Addr) != f.Family || f.own[h.Addr] {
			continue
		}
		skip = skip || h.SkipSNAT // whether the hop can be used now or not
		if h.BFD && f.ending[h.Addr] {
			continue
		}
		routed = routed || !h.BFD || f.up == nil || f.up[h.Addr]
		second = second || f.node.Gateway.External.Reaches(h.Addr)
		f.route(a, h)
	}
	switch {
	case !f.cfg.DisableSNATMultipleGWs && !skip:
	case routed:
		f.bare = append(f.bare, a)
	default:
		f.early = append(f.early, a)
	}
	if !routed {
		f.plain = append(f.plain, a)
		return
	}
	if second {
		f.second = append(f.second, a)
	}
	if f.node.Gateway.Mode == topology.GatewayLocal || rerouted {
		f.reroute = append(f.reroute, a)
	}
	// Even if no rule covers all pods, the rule of an EgressIP may still cover this one.
	if f.cfg.DisableSNATMultipleGWs && rerouted || !f.cfg.DisableSNATMultipleGWs && skip {
		f.skip = append(f.skip, a)
	}
}

// Routed returns the addresses of the pods that the rows of a node route to gateways.
func Routed(rows []nb.Row) []netip.Addr {
	var addrs []netip.Addr
	for _, r := range rows {
		route, ok := r.Model.(*nbdb.LogicalRouterStaticRoute)
		if !ok {
			continue
		}
		if p, err := netip.ParsePrefix(route.IPPrefix); err == nil {
			addrs = append(addrs, p.Addr())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs) // a pod has a route for each of its gateways
}

func (f *family) route(a netip.Addr, h Hop) {
	f.via[a] = append(f.via[a], h.Addr)
	row := nb.Row{
		ID:     a.String() + " via " + h.Addr.String(),
		Parent: f.router,
		Model: &nbdb.LogicalRouterStaticRoute{
			IPPrefix:   topology.HostPrefix(a).String(),
			Nexthop:    h.Addr.String(),
			Policy:     new(nbdb.LogicalRouterStaticRoutePolicySrcIP),
			OutputPort: new(f.node.UplinkPort(h.Addr)),
			Options:    map[string]string{"ecmp_symmetric_reply": "true"},
		},
	}
	if h.BFD {
		f.hops[h.Addr] = h
		row.Refs = []nb.Ref{{Column: "bfd", Table: nbdb.BFDTable,
			Name: f.node.UplinkPort(h.Addr) + "/" + h.Addr.String()}}
	}
	f.rows = append(f.rows, row)
}

// sessions plans the BFD sessions that routes refer to.
func (f *family) sessions() {
	value := func(n int) *int {
		if n == 0 {
			return nil
		}
		return new(n)
	}
	for _, a := range slices.SortedFunc(maps.Keys(f.hops), netip.Addr.Compare) {
		t := f.hops[a].Timers
		f.rows = append(f.rows, nb.Row{ID: a.String(), Model: &nbdb.BFD{
			LogicalPort: f.node.UplinkPort(a),
			DstIP:       a.String(),
			MinRx:       value(t.MinRx),
			MinTx:       value(t.MinTx),
			DetectMult:  value(t.Multiplier),
			ExternalIDs: map[string]string{idSource: sentFrom(f.node, a)},
		}})
	}
}

// policies plans the policies that lead pods to their gateway router if they would otherwise
// be led elsewhere: to the host in local gateway mode, by another egress
// feature in any mode.
func (f *family) policies() {
	join, ok := topology.PrefixOf(f.Family, f.node.Join)
	if !ok || len(f.reroute) == 0 {
		return
	}
	set := setName("external_gateway_pods", f.node.Name, f.Family)
	f.addressSet(set, texts(f.reroute))
	match := fmt.Sprintf("inport == %q && %s.src == $%s", topology.RouterToSwitch(f.node.Name), f.Match(), set)
	for _, p := range slices.Concat(f.cfg.Cluster, f.cfg.Join) {
		if topology.FamilyOf(p.Addr()) == f.Family {
			match += fmt.Sprintf(" && %s.dst != %s", f.Match(), p)
		}
	}
	f.rows = append(f.rows, nb.Row{
		ID:     "hybrid " + f.Match(),
		Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
		Model: &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityHybridRoute,
			Match:    match,
			Action:   nbdb.LogicalRouterPolicyActionReroute,
			Nexthops: []string{join.Addr().String()},
		},
	})
}

// toNodes plans the policy that keeps traffic for nodes away from the gateways, to which the routes
// of the pods would lead it in any gateway mode: the host of the pods' own node
// forwards it, with its own address. This includes pods none of whose gateways can be used now: OVN uses their routes as soon as
// a session comes up, before anything is written. The set of the nodes' addresses also includes other destinations
// that pods reach through their own node.
func (f *family) toNodes() {
	subnet, ok := topology.PrefixOf(f.Family, f.node.Subnets)
	if !ok || len(f.via) == 0 {
		return
	}
	set := setName("external_gateway_routed", f.node.Name, f.Family)
	f.addressSet(set, texts(slices.Collect(maps.Keys(f.via))))
	f.rows = append(f.rows, nb.Row{
		ID:     "nodes " + f.Match(),
		Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
		Model: &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityGatewayPodToNode,
			Match: fmt.Sprintf("inport == %q && %[2]s.src == $%[3]s && %[2]s.dst == $%[4]s_%[2]s",
				topology.RouterToSwitch(f.node.Name), f.Match(), set, topology.NodeIPSet),
			Action:   nbdb.LogicalRouterPolicyActionReroute,
			Nexthops: []string{topology.ManagementAddr(subnet).String()},
			Options:  map[string]string{"pkt_mark": strconv.Itoa(topology.MarkPodToNode)},
		},
	})
}

// translations plans the pods' translations. The rule of the base network covers
// all pods at once, that of an EgressIP a single one: a pod is exempted from both
// by its own translation, which applies to no destination. With
// DisableSNATMultipleGWs no rule covers all pods, and each pod without gateways is
// translated here, unless an EgressIP does so on this node.
func (f *family) translations() {
	external, ok := topology.PrefixOf(f.Family, f.node.Gateway.Addrs)
	if !ok {
		return
	}
	nat := func(a netip.Addr, refs ...nb.Ref) {
		f.rows = append(f.rows, nb.Row{ID: a.String(), Parent: f.router, Refs: refs, Yields: len(refs) == 0, Model: &nbdb.NAT{
			Type:       nbdb.NATTypeSNAT,
			ExternalIP: external.Addr().String(),
			LogicalIP:  a.String(),
		}})
	}
	if f.cfg.DisableSNATMultipleGWs {
		for _, a := range f.plain {
			nat(a)
		}
	}
	if len(f.skip) == 0 {
		return
	}
	set := setName("external_gateway_everywhere", f.node.Name, f.Family)
	halves := topology.Halves(topology.Everywhere(f.Family)) // a match on the whole range would be equivalent to no match
	f.addressSet(set, []string{halves[0].String(), halves[1].String()})
	for _, a := range f.skip {
		nat(a, nb.Ref{Column: "exempted_ext_ips", Table: nbdb.AddressSetTable, Name: set})
	}
}

// secondUplink plans the policy that lets pods whose gateways are on the second uplink use it: the
// base network sends other pods' traffic for that network the usual way.
func (f *family) secondUplink() {
	if len(f.second) == 0 {
		return
	}
	set := setName("external_gateway_second", f.node.Name, f.Family)
	f.addressSet(set, texts(f.second))
	f.rows = append(f.rows, nb.Row{
		ID:     "second uplink " + f.Match(),
		Parent: f.router,
		Model: &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityExternalGateway,
			Match:    fmt.Sprintf("outport == %q && %s.src == $%s", topology.ExternalGatewayPort(f.node.Name), f.Match(), set),
			Action:   nbdb.LogicalRouterPolicyActionAllow,
		},
	})
}

func (f *family) addressSet(name string, addrs []string) {
	f.rows = append(f.rows, nb.Row{ID: name, Model: &nbdb.AddressSet{Name: name, Addresses: addrs}})
}

// setName returns the name of an address set of a node. Node names have no
// underscores, set names no dashes.
func setName(what, node string, f topology.Family) string {
	return what + "_" + strings.ReplaceAll(node, "-", "_") + "_" + f.Match()
}

func texts(addrs []netip.Addr) []string {
	sorted := slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)
	out := make([]string, 0, len(sorted))
	for _, a := range sorted {
		out = append(out, a.String())
	}
	return out
}

// Moved returns the destinations of the BFD sessions among the current rows of a node that the node now reaches through another
// port, for example after it gets a second uplink, or from another address than when they were written.
func Moved(rows []nb.Row, node topology.Node) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for _, r := range rows {
		b, ok := r.Model.(*nbdb.BFD)
		if !ok {
			continue
		}
		a, err := netip.ParseAddr(b.DstIP)
		if err != nil {
			continue
		}
		from, known := b.ExternalIDs[idSource]
		if b.LogicalPort != node.UplinkPort(a) || known && from != sentFrom(node, a) {
			found[a] = true
		}
	}
	return found
}

// sentFrom returns the MAC and IP address that a session is sent from, as text.
func sentFrom(node topology.Node, destination netip.Addr) string {
	mac, addrs := node.Gateway.MAC, node.Gateway.Addrs
	if external := node.Gateway.External; external.Reaches(destination) {
		mac, addrs = external.MAC, external.Addrs
	}
	from, _ := topology.PrefixOf(topology.FamilyOf(destination), addrs)
	return fmt.Sprint(mac, " ", from.Addr())
}
