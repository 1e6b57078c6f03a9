package service

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner feature of the rows of Services and the name of contributions on
// nodes.
const Feature = "service"

// Owner is the owner of a Service's rows.
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Config is the cluster configuration that planning depends on.
type Config struct {
	// Cluster are the ranges of pod addresses.
	Cluster []netip.Prefix
	// Services are the ranges of cluster addresses that the base network routes.
	Services []netip.Prefix
	// Join are the ranges that connect the routers.
	Join []netip.Prefix
	// Masquerade are the ranges of addresses that never leave a node, one per family.
	Masquerade []netip.Prefix
	// HostPorts are the ports that the nodes themselves serve or may serve: no Service gets
	// them on node addresses.
	HostPorts []HostPort
	// NodePorts is true if node ports are served at all.
	NodePorts bool
	// Egress is true if policies may reroute traffic from pods to other nodes.
	Egress bool
}

// PerNode reports whether the rows of a Service depend on nodes in more than the gateway
// mode.
func (s Service) PerNode() bool { return s.InternalLocal || s.ExternalLocal }

// place is the parent of a load balancer and the properties that require a separate row:
// virtual addresses with the same place share a row.
type place struct {
	parent   nb.Parent
	protocol string // empty for virtual addresses without port
	// family is set if the row can have only one.
	family   topology.Family
	template bool
	// keepSource preserves the client's address on gateway routers.
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

// add adds a virtual address of a family. to is sorted; if it is empty, traffic is
// rejected.
func (p *planner) add(at place, f topology.Family, vip string, to []Endpoint) {
	if at.template || p.Affinity > 0 && at.protocol != "" { // selection fields differ by family
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
	// The address without a port matches after those with one: it rejects traffic that the
	// node itself has no endpoint for.
	p.add(place{parent: onSwitches}, f, portless(ip), nil)
	for _, name := range port.nodes(f) {
		if _, ok := p.nodes[name]; ok {
			p.add(place{parent: onSwitch(name), protocol: port.Protocol}, f, vip, port.Local(f, name))
		}
	}
}

// portless formats a virtual address without port.
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

// external plans the node port and the external addresses of a port. For pods they work
// like the cluster address, regardless of the external traffic policy.
//
// Gateway routers do not handle node ports that any node serves: their address is also the
// one that OVN translates pods to, and for template virtual addresses OVN 23.03 confuses
// the two, which breaks connections. The host sends such traffic to the cluster address
// instead.
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
		// Without the virtual address a router breaks open connections to it.
		for _, name := range port.listing(f) {
			if n, ok := p.nodes[name]; ok && n.Gateway {
				p.externalLocal(port, f, name, n)
			}
		}
	}
}

// externalLocal plans traffic that enters on one node and stays there: on the switch, for
// traffic that the kernel sends this way, and on the gateway router if that handles
// external traffic.
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

// localVIP returns the address on which a node's switch serves Services whose external
// traffic stays on the node.
func localVIP(f topology.Family, masquerade []netip.Prefix) (netip.Addr, bool) {
	p, ok := topology.PrefixOf(f, masquerade)
	return topology.LocalServiceAddr(p), ok
}

// id returns the name of a place within a Service, e.g. "TCP cluster" or "UDP router
// node1".
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

// row returns the load balancer of a place.
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
		// Otherwise packets would still be sent to an endpoint that is gone, as there is no
		// connection to break.
		options["ct_flush"] = "true"
	}
	if p.Affinity > 0 && at.protocol != "" {
		lb.SelectionFields = selection(at.family)
	}
	lb.Name = "Service_" + p.Key + "_" + strings.ReplaceAll(at.id(), " ", "_")
	return nb.Row{ID: at.id(), Parent: at.parent, Model: lb}
}

// KeyOf returns the key of the Service of a load balancer with the given name, and the rest
// of the name, which is the ID of the row if the load balancer is ours.
func KeyOf(name string) (key, id string, ok bool) {
	name, ok = strings.CutPrefix(name, "Service_")
	key, id, cut := strings.Cut(name, "_") // Kubernetes names contain none
	namespace, service, slash := strings.Cut(key, "/")
	return key, strings.ReplaceAll(id, "_", " "), ok && cut && slash && namespace != "" && service != "" && id != ""
}

// options returns the options that all load balancers have.
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
		// Otherwise two pods that reach themselves through a Service could not recognize
		// their own packets.
		"hairpin_snat_ip": strings.Join(hairpin, " "),
		// Whoever announces load balancer addresses answers for them.
		"neighbor_responder": "none",
	}
}

// selection returns the fields that distinguish clients with session affinity. The IP
// fields of the northbound schema have no effect on IPv6, so the client's MAC address is
// used there.
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

// FeatureNodes is the owner feature of the rows that Services share: those of each node,
// and those of the cluster under the empty name.
const FeatureNodes = "service-nodes"

// NodeOwner returns the owner of the rows that Services need for a node; for the empty
// name, for the cluster.
func NodeOwner(node string) nb.Owner { return nb.Owner{Feature: FeatureNodes, Object: node} }

// NodeRows returns the template variables of a node and the rows for replies of its pods;
// none before its chassis is known.
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

// ClusterRows returns the rows that all Services share: the load balancer that rejects
// traffic for a node's local endpoints if there are none.
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
