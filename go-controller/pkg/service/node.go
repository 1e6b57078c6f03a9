package service

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// NodeState is the configuration of a node for a Service.
type NodeState struct {
	Rules host.Rules
	// Routes are the host's routes to cluster addresses outside the ranges that the base
	// network routes: ranges can be added to a running cluster.
	Routes map[host.Route]host.Hop
	// Ingress is the traffic that the external bridge sends to the gateway router.
	Ingress []Ingress
	// Health is served on the Service's health port; nil if it has none.
	Health *Health
	// UDP holds the valid destinations of UDP packets.
	UDP Bindings
}

// Ingress is external traffic that the gateway router load balances.
type Ingress struct {
	To       netip.AddrPort
	Protocol string
	Sources  []netip.Prefix // empty: from anywhere
	Closed   bool           // from nowhere
}

// Health is a node's health check response for a Service whose traffic stays on the node.
type Health struct {
	Port            uint16
	Namespace, Name string
	Endpoints       int // ready ones on this node
}

// discardPort stands for the missing node port of a Service if traffic is only going to be
// rejected.
const discardPort = 9

// nodePlanner collects the configuration of a node for a Service in one family.
type nodePlanner struct {
	Service
	config   Config
	node     topology.Node
	family   topology.Family
	cluster  netip.Addr // the cluster address
	localVIP netip.Addr // see topology.LocalServiceAddr
	state    *NodeState
}

// Known reports whether the subnets and the gateway mode of a node are known: plans need both.
func Known(n topology.Node) bool { return len(n.Subnets) > 0 && n.Gateway.Mode != "" }

// NodeStateOf plans a Service for a node. The plan is empty while the node is not Known.
func NodeStateOf(s Service, c Config, n topology.Node) NodeState {
	state := NodeState{Rules: host.Rules{}, UDP: Bindings{}}
	if !Known(n) {
		return state
	}
	for _, f := range s.families() {
		subnet, ok := topology.PrefixOf(f, n.Subnets)
		if !ok {
			continue
		}
		p := &nodePlanner{Service: s, config: c, node: n, family: f, state: &state}
		p.cluster, _ = topology.AddrOf(f, s.ClusterIPs)
		if !within(c.Services, p.cluster) {
			p.route(subnet)
		}
		p.localVIP, _ = localVIP(f, c.Masquerade)
		for _, port := range s.Ports {
			p.port(port)
		}
	}
	if s.HealthPort != 0 {
		state.Health = &Health{Port: s.HealthPort, Namespace: s.Namespace, Name: s.Name, Endpoints: s.readyOn(n.Name)}
	}
	return state
}

// readyOn returns the number of ready endpoints on a node, in the Service's first family.
func (s Service) readyOn(node string) int {
	ready := map[netip.Addr]bool{}
	for _, port := range s.Ports {
		for _, e := range port.Candidates {
			if e.Ready && e.Node == node && family(e) == topology.FamilyOf(s.ClusterIPs[0]) {
				ready[e.To.Addr()] = true
			}
		}
	}
	return len(ready)
}

// routed reports whether the gateway router handles external traffic.
func (p *nodePlanner) routed() bool {
	return p.byRouter(p.family, p.node.Gateway.Mode == topology.GatewayShared)
}

func (p *nodePlanner) add(chain string, s host.Spec) {
	key := natChain(p.family, chain)
	s.Comment = p.Key
	p.state.Rules[key] = append(p.state.Rules[key], s.Rule())
}

// route adds a route to the cluster address through the node's switch in subnet.
func (p *nodePlanner) route(subnet netip.Prefix) {
	if p.state.Routes == nil {
		p.state.Routes = map[host.Route]host.Hop{}
	}
	to := host.Route{Dst: topology.HostPrefix(p.cluster), Link: topology.ManagementPort}
	p.state.Routes[to] = host.Hop{Via: topology.RouterAddr(subnet)}
}

// port plans one port.
func (p *nodePlanner) port(port Port) {
	entries := p.entries(port)
	all, here := port.Endpoints(p.family), port.Local(p.family, p.node.Name)
	if p.ExternalLocal && len(all) > 0 {
		p.stay(port, entries, here)
	}
	// The cluster address leads to the load balancer of the node's switch. That path does
	// not work for endpoints that are not pods, and external traffic must not take it if
	// the cluster address has only this node's endpoints.
	direct := len(all) > 0 && (!port.onPods(p.family) || p.InternalLocal)
	for _, e := range entries {
		if direct {
			p.balance(ChainHostEndpoints, e.spec(port.Protocol), all)
			continue
		}
		s := e.spec(port.Protocol)
		s.Target = host.DNATTo(netip.AddrPortFrom(p.cluster, port.Port))
		p.add(e.chain, s)
	}
	if !port.onPods(p.family) {
		inside := all
		if p.InternalLocal {
			inside = here
		}
		p.balance(ChainHostEndpoints, entry{to: topology.HostPrefix(p.cluster), port: port.Port}.spec(port.Protocol), inside)
	}
	p.restrict(port)
	p.bind(port, direct, all, here, p.ingress(port, entries, len(all), len(here)))
}

// entry is an external address and port through which a Service port is reached.
type entry struct {
	chain string
	to    netip.Prefix // invalid: all addresses of the host
	port  uint16
	// restricted means that only sources may use it.
	restricted bool
	sources    []netip.Prefix
}

// entries returns the external entries of a port in the planner's family.
func (p *nodePlanner) entries(port Port) []entry {
	var out []entry
	if p.servesNodePort(port) {
		out = append(out, entry{chain: ChainNodePort, port: port.NodePort})
	}
	for _, e := range p.externals(p.family, port) {
		out = append(out, entry{chain: ChainExternal, to: topology.HostPrefix(e.Addr), port: port.Port, restricted: e.Restricted, sources: e.Sources})
	}
	return out
}

// servesNodePort reports whether a port has a node port that this node serves.
func (p *nodePlanner) servesNodePort(port Port) bool {
	return port.NodePort != 0 && p.config.NodePorts && p.node.Gateway.NodePort
}

func (e entry) spec(protocol string) host.Spec {
	s := host.Spec{Dst: e.to, Protocol: protocol, DstPort: e.port}
	if !e.to.IsValid() {
		s.DstType = "LOCAL"
	}
	return s
}

// balance adds rules that choose one of the endpoints at random.
func (p *nodePlanner) balance(chain string, s host.Spec, to []Endpoint) {
	for i, e := range to {
		s.Probability = 1 / float64(len(to)-i)
		s.Target = host.DNATTo(e.To)
		p.add(chain, s)
	}
}

// answer returns the address on which the node's switch load balances traffic that must not
// leave the node, with here as endpoints; false if the kernel sends it to them directly.
// The load balancer of the switch can be used only for pods, and needs a port that belongs
// to this Service alone.
func (p *nodePlanner) answer(port Port, here []Endpoint) (netip.AddrPort, bool) {
	number := port.NodePort
	if number == 0 {
		number = discardPort
	}
	return netip.AddrPortFrom(p.localVIP, number), len(here) == 0 || port.onPods(p.family) && port.NodePort != 0
}

// stay plans external traffic that must not leave the node. here are the node's own
// endpoints. If the gateway router handles such traffic, that applies to traffic to the
// node's own address through the external bridge, which does not get here. Traffic that
// arrives in another way stays on the node too, but without the client's address: the reply
// would leave through the gateway router.
func (p *nodePlanner) stay(port Port, entries []entry, here []Endpoint) {
	reject := len(here) == 0
	answer, byVIP := p.answer(port, here)
	for _, e := range entries {
		s := e.spec(port.Protocol)
		if !byVIP {
			p.balance(ChainETP, s, here)
			continue
		}
		s.Target = host.DNATTo(answer)
		p.add(ChainETP, s)
	}
	if reject || p.routed() || len(entries) == 0 {
		return // the reply comes back only if it goes to the management port
	}
	// The client's address is preserved: replies come back through here.
	if byVIP {
		p.add(topology.ChainSNATMgmtPort, host.Spec{
			Dst: topology.HostPrefix(p.localVIP), Protocol: port.Protocol, DstPort: answer.Port(), Target: host.Return,
		})
		return
	}
	for _, e := range here {
		if e.Pod {
			p.add(topology.ChainSNATMgmtPort, host.Spec{
				Dst: topology.HostPrefix(e.To.Addr()), Protocol: port.Protocol, DstPort: e.To.Port(),
				SrcType: host.Not("LOCAL"), CTState: "DNAT", Target: host.Return,
			})
		}
	}
}

// restrict drops traffic from sources that are not allowed. The answers to a connection that a pod has opened from the
// address and port of the Service are no requests of a client: whoever the pod has asked may send them.
func (p *nodePlanner) restrict(port Port) {
	key := host.ChainKey{Family: p.family, Table: "mangle", Name: ChainSources}
	for _, e := range p.externals(p.family, port) {
		if !e.Restricted {
			continue
		}
		s := host.Spec{Dst: topology.HostPrefix(e.Addr), Protocol: port.Protocol, DstPort: port.Port, Comment: p.Key}
		answers := s
		answers.Reply, answers.Target = true, host.Return
		p.state.Rules[key] = append(p.state.Rules[key], answers.Rule())
		for _, from := range e.Sources {
			allowed := s
			allowed.Src, allowed.Target = from, host.Return
			p.state.Rules[key] = append(p.state.Rules[key], allowed.Rule())
		}
		s.Target = host.Drop
		p.state.Rules[key] = append(p.state.Rules[key], s.Rule())
	}
}

// hands reports whether the external bridge sends traffic for a port to the gateway router:
// if that has an endpoint for it, see planner.external. The host handles the rest.
func (p *nodePlanner) hands(port Port, all, here int) bool {
	return p.routed() && port.onPods(p.family) && all > 0 && (!p.ExternalLocal || here > 0)
}

// ingress plans the traffic that the external bridge sends to the gateway router, and returns where it is sent to.
func (p *nodePlanner) ingress(port Port, entries []entry, all, here int) (routed map[netip.AddrPort]bool) {
	if !p.hands(port, all, here) {
		return nil
	}
	routed = map[netip.AddrPort]bool{}
	for _, e := range entries {
		to := e.to
		if !to.IsValid() {
			if !p.ExternalLocal {
				continue
			}
			var ok bool
			if to, ok = topology.PrefixOf(p.family, p.node.Gateway.Addrs); !ok {
				continue
			}
		}
		i := Ingress{
			To: netip.AddrPortFrom(to.Addr(), e.port), Protocol: port.Protocol,
			Sources: e.sources, Closed: e.restricted && len(e.sources) == 0,
		}
		p.state.Ingress = append(p.state.Ingress, i)
		routed[i.To] = !i.Closed
	}
	return routed
}
