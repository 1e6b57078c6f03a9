package service

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature owns the rows of Services and names contributions on the nodes.
const Feature = "service"

// Owner is the owner of a Service's rows.
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Config is what planning needs to know of the cluster.
type Config struct {
	// Cluster are the ranges of pod addresses.
	Cluster []netip.Prefix
	// Services are the ranges of cluster addresses that the base network routes.
	Services []netip.Prefix
	// Join are the ranges that connect the routers.
	Join []netip.Prefix
	// Masquerade are the ranges of addresses that never leave a node, one a family.
	Masquerade []netip.Prefix
	// HostPorts are the ports that nodes themselves serve, or may serve: no Service
	// gets them on addresses of nodes.
	HostPorts []HostPort
	// NodePorts says whether node ports are served at all.
	NodePorts bool
	// Egress says that policies may lead what pods send to other nodes.
	Egress bool
}

// PerNode reports whether the rows of a Service depend on nodes other than by the
// gateway mode.
func (s Service) PerNode() bool { return s.InternalLocal || s.ExternalLocal }

// place is where a load balancer hangs and what makes it a row of its own: load
// balancers of one place share a row.
type place struct {
	parent   nb.Parent
	protocol string // empty for virtual addresses without port
	// family is set where a row can have only one.
	family   topology.Family
	template bool
	// keepSource leaves the client's address alone on gateway routers.
	keepSource bool
}

var (
	onAll      = group(topology.ClusterLBGroup)
	onSwitches = group(topology.ClusterSwitchLBGroup)
)

func group(name string) nb.Parent {
	return nb.Parent{Table: nbdb.LoadBalancerGroupTable, Name: name}
}

// planner collects the virtual addresses of a Service by place.
type planner struct {
	Service
	config Config
	nodes  Nodes
	order  []place
	vips   map[place]map[string]string
}

// MasterRows returns the load balancers of a Service, and its router policies.
func MasterRows(s Service, c Config, nodes Nodes) []nb.Row {
	p := &planner{Service: s, config: c, nodes: nodes, vips: map[place]map[string]string{}}
	for _, f := range s.families() {
		ip, _ := topology.AddrOf(f, s.ClusterIPs)
		for _, port := range s.Ports {
			p.internal(port, f, ip)
			p.external(port, f)
		}
	}
	rows := make([]nb.Row, 0, len(p.order))
	for _, at := range p.order {
		rows = append(rows, p.row(at, p.vips[at]))
	}
	return append(rows, p.replies()...)
}

// add adds a virtual address of a family. to is sorted and may be empty, which
// refuses.
func (p *planner) add(at place, f topology.Family, vip string, to []Endpoint) {
	if at.template || p.Affinity > 0 && at.protocol != "" { // clients are told apart differently
		at.family = f
	}
	if p.vips[at] == nil {
		p.vips[at] = map[string]string{}
		p.order = append(p.order, at)
	}
	p.vips[at][vip] = backends(to)
}

func backends(to []Endpoint) string {
	var b strings.Builder
	for i, e := range to {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e.To.String())
	}
	return b.String()
}

// internal plans the cluster address of a port.
func (p *planner) internal(port Port, f topology.Family, ip netip.Addr) {
	vip := netip.AddrPortFrom(ip, port.Port).String()
	if !p.InternalLocal {
		p.add(place{parent: onSwitches, protocol: port.Protocol}, f, vip, port.Endpoints(f))
		return
	}
	// The address without a port comes after those with one: it refuses what
	// the node itself has no endpoint for.
	p.add(place{parent: onSwitches}, f, portless(ip), nil)
	for _, name := range port.nodes(f) {
		if _, ok := p.nodes[name]; ok {
			p.add(place{parent: onSwitch(name), protocol: port.Protocol}, f, vip, port.Local(f, name))
		}
	}
}

// portless writes a virtual address without port.
func portless(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

func onSwitch(node string) nb.Parent {
	return nb.Parent{Table: nbdb.LogicalSwitchTable, Name: topology.NodeSwitch(node)}
}

func onRouter(node string) nb.Parent {
	return nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter(node)}
}

// external plans the node port and the addresses from outside of a port. To pods
// they are like the cluster address, whatever the policy for traffic from outside.
//
// Gateway routers have no part in node ports that any node answers: their address
// is also the one OVN translates pods to, and for virtual addresses that are
// templates OVN 23.03 does not keep the two apart, which breaks connections. The
// host takes such traffic to the cluster address instead.
func (p *planner) external(port Port, f topology.Family) {
	all := port.Endpoints(f)
	at := place{parent: onSwitches, protocol: port.Protocol}
	if port.onPods(f) && !p.ExternalLocal && p.nodes.Shared() {
		at.parent = onAll
	}
	for _, e := range p.externals(f, port) {
		p.add(at, f, netip.AddrPortFrom(e.Addr, port.Port).String(), all)
	}
	if port.NodePort != 0 && p.config.NodePorts {
		at.parent, at.template = onSwitches, true
		p.add(at, f, "^"+nodeVariable(f)+":"+strconv.Itoa(int(port.NodePort)), all)
	}
	if port.onPods(f) && p.ExternalLocal {
		// Without its virtual address a router breaks the connections to it that are open.
		for _, name := range port.listing(f) {
			if n, ok := p.nodes[name]; ok && n.Gateway {
				p.externalLocal(port, f, name, n)
			}
		}
	}
}

// externalLocal plans what enters on one node and stays there: on the switch, where the
// kernel has already chosen this path, and on the gateway router where that takes it.
func (p *planner) externalLocal(port Port, f topology.Family, node string, n NodeFacts) {
	here := port.Local(f, node)
	if vip, ok := localVIP(f, p.config.Masquerade); ok && port.NodePort != 0 {
		p.add(place{parent: onSwitch(node), protocol: port.Protocol}, f, netip.AddrPortFrom(vip, port.NodePort).String(), here)
	}
	if !p.byRouter(f, n.Shared) {
		return
	}
	at := place{parent: onRouter(node), protocol: port.Protocol, keepSource: true}
	for _, e := range p.externals(f, port) {
		p.add(at, f, netip.AddrPortFrom(e.Addr, port.Port).String(), here)
	}
	if addr := n.addr(f); addr.IsValid() && port.NodePort != 0 && p.config.NodePorts {
		p.add(at, f, netip.AddrPortFrom(addr, port.NodePort).String(), here)
	}
}

// localVIP is the address under which a node's switch answers for services whose
// traffic from outside stays on the node.
func localVIP(f topology.Family, masquerade []netip.Prefix) (netip.Addr, bool) {
	p, ok := topology.PrefixOf(f, masquerade)
	return topology.LocalServiceAddr(p), ok
}

// id names a place within a Service, e.g. "TCP cluster" or "UDP router node1".
func (at place) id() string {
	var words []string
	if at.protocol != "" {
		words = append(words, strings.ToUpper(at.protocol))
	}
	switch {
	case at.parent == onAll:
		words = append(words, "all")
	case at.parent == onSwitches:
		words = append(words, "cluster")
	case at.parent.Table == nbdb.LogicalSwitchTable:
		words = append(words, "switch", at.parent.Name)
	default:
		words = append(words, "router", at.parent.Name)
	}
	if at.template {
		words = append(words, "template")
	}
	if at.family != 0 {
		words = append(words, at.family.String())
	}
	return strings.Join(words, " ")
}

// row makes the load balancer of a place.
func (p *planner) row(at place, vips map[string]string) nb.Row {
	options := p.config.options()
	lb := &nbdb.LoadBalancer{Vips: vips, Options: options}
	if at.protocol != "" {
		lb.Protocol = &at.protocol
	}
	if at.template {
		options["template"] = "true"
		options["address-family"] = strings.ToLower(at.family.String())
	}
	if at.keepSource {
		options["skip_snat"] = "true"
	}
	if at.protocol == "udp" {
		// What is sent to an endpoint that has gone would go on being sent there,
		// for there is no connection to break.
		options["ct_flush"] = "true"
	}
	if p.Affinity > 0 && at.protocol != "" {
		lb.SelectionFields = selection(at.family)
	}
	lb.Name = "Service_" + p.Key + "_" + strings.ReplaceAll(at.id(), " ", "_")
	return nb.Row{ID: at.id(), Parent: at.parent, Model: lb}
}

// KeyOf returns the key of the Service that a load balancer of a name is for, and the
// rest of the name: the id of the row, where the load balancer is one of ours.
func KeyOf(name string) (key, id string, ok bool) {
	name, ok = strings.CutPrefix(name, "Service_")
	key, id, cut := strings.Cut(name, "_") // no name in Kubernetes has one
	namespace, service, slash := strings.Cut(key, "/")
	return key, strings.ReplaceAll(id, "_", " "), ok && cut && slash && namespace != "" && service != "" && id != ""
}

// options returns what all load balancers have.
func (c Config) options() map[string]string {
	var hairpin []string
	for _, f := range topology.Families {
		if m, ok := topology.PrefixOf(f, c.Masquerade); ok {
			hairpin = append(hairpin, topology.HairpinAddr(m).String())
		}
	}
	return map[string]string{
		"reject": "true",
		"event":  "false",
		// Of two pods that talk to themselves by way of a service neither would
		// know its own packets.
		"hairpin_snat_ip": strings.Join(hairpin, " "),
		// Addresses of load balancers belong to whoever announces them.
		"neighbor_responder": "none",
	}
}

// selection returns the fields by which clients with affinity are told apart. The
// IP fields of the northbound schema have no effect on IPv6, where the client's
// MAC address has to do.
func selection(f topology.Family) []string {
	if f == topology.IPv6 {
		return []string{nbdb.LoadBalancerSelectionFieldsEthSrc, nbdb.LoadBalancerSelectionFieldsIPDst}
	}
	return []string{nbdb.LoadBalancerSelectionFieldsIPDst, nbdb.LoadBalancerSelectionFieldsIPSrc}
}

// nodeVariable is the template variable that holds a node's address.
func nodeVariable(f topology.Family) string {
	return "NODEIP_" + strings.ToUpper(f.String()) + "_0"
}

// FeatureNodes owns the rows that Services share: those of each node, and those
// of the cluster under the empty name.
const FeatureNodes = "service-nodes"

// NodeOwner is the owner of what Services need of a node; of the cluster for the
// empty name.
func NodeOwner(node string) nb.Owner { return nb.Owner{Feature: FeatureNodes, Object: node} }

// NodeRows returns the template variables of a node and what replies of its pods
// need; none before its chassis is known.
func NodeRows(n topology.Node, c Config) []nb.Row {
	if !n.HasGateway() {
		return nil
	}
	variables := map[string]string{}
	for _, f := range topology.Families {
		if a, ok := topology.PrefixOf(f, n.Gateway.Addrs); ok {
			variables[nodeVariable(f)] = a.Addr().String()
		}
	}
	rows := []nb.Row{{ID: n.Chassis, Model: &nbdb.ChassisTemplateVar{Chassis: n.Chassis, Variables: variables}}}
	if c.Egress && n.Gateway.Mode != topology.GatewayShared {
		rows = append(rows, servicePortRows(n)...)
	}
	return rows
}

// ClusterRows returns what all Services share: the load balancer that refuses
// what was sent to a node's local endpoints and finds none.
func ClusterRows(c Config) []nb.Row {
	vips := map[string]string{}
	for _, f := range topology.Families {
		if a, ok := localVIP(f, c.Masquerade); ok {
			vips[portless(a)] = ""
		}
	}
	if len(vips) == 0 {
		return nil
	}
	return []nb.Row{{ID: "local", Parent: onSwitches, Model: &nbdb.LoadBalancer{
		Name: "Service_local", Vips: vips, Options: c.options(),
	}}}
}
