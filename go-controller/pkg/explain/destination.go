package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// way is how a pod reaches a destination inside the cluster, distinguished by the address that the
// other side sees.
type way int

// The ways.
const (
	wayOutside way = iota // egress features may apply
	wayDirect             // the other side sees the pod's own address
	wayOwnHost            // the pod's own node, which sees the pod's own address
	wayNode               // the other side sees the address of the pod's own node
	wayNowhere            // nothing is forwarded
)

// inside reports whether egress features do not apply to a destination, and if so sets the
// outcome.
func (v *view) inside(to netip.AddrPort) bool {
	var ways map[way]netip.Addr
	var why string
	at, ok := v.serviceAt(to)
	switch {
	case ok && at.outside && to.Port() == 0:
		v.note = fmt.Sprintf("%s is %s of Service %s: at the ports of that pods reach its endpoints; the answer is about other ports", to.Addr(), at.what, at.Key)
		return false
	case ok:
		ways, why = v.viaService(at, to.Addr())
		if _, outside := ways[wayOutside]; outside {
			v.note = fmt.Sprintf("%s is %s of Service %s, which has endpoints outside the cluster: the answer is about these", to.Addr(), at.what, at.Key)
			return false
		}
	default:
		var by way
		var source netip.Addr
		if by, source, why = v.wayTo(to.Addr()); by == wayOutside {
			v.unserved(to)
			return false
		}
		ways = map[way]netip.Addr{by: source}
	}
	f := v.out
	f.Outcome, f.Why = OutcomeInside, why
	for _, by := range []way{wayDirect, wayOwnHost, wayNode} {
		s := Source{Address: ways[by].String(), Node: v.node.Name}
		if ways[by].IsValid() && !slices.Contains(f.Sources, s) {
			f.Sources = append(f.Sources, s)
		}
	}
	return true
}

// unserved records a destination inside the cluster that nothing serves. Packets to
// an egress address are routed like all others.
func (v *view) unserved(to netip.AddrPort) {
	a := to.Addr()
	if within(v.c.snap.Settings.Services, a) {
		port := ""
		if to.Port() != 0 {
			port = fmt.Sprintf(" at port %d", to.Port())
		}
		v.unservedReason = fmt.Sprintf("%s is in the range of Services inside the cluster, and no Service has it%s", a, port)
		return
	}
	for _, e := range v.c.requestedBy(a) {
		for _, p := range v.c.placed[e.Name].Placements {
			if p.Addr == a && p.Node != "" && p.Primary {
				v.note = fmt.Sprintf("%s is an address of EgressIP/%s: OVN takes replies there, and drops what else is sent to it", a, e.Name)
			}
		}
	}
}

// noService sets the outcome for an address of a nonexistent Service, whatever
// selects the pod: the cluster router drops the traffic.
func (v *view) noService() {
	f := v.out
	if v.unservedReason == "" {
		return
	}
	f.Outcome, f.By, f.Sources, f.ImplementedBy = OutcomeInside, "", nil, nil
	f.Why = v.unservedReason + ": a policy of priority " + strconv.Itoa(topology.PriorityNoPod) + " drops what is sent there"
	for i := range f.Selected {
		if f.Selected[i].Wins {
			f.Selected[i].Wins, f.Selected[i].Why = false, "it is about what leaves the cluster"
		}
	}
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// wayTo returns how the pod reaches an address according to the policies of package noreroute, the
// address that the other side sees, and the reason.
func (v *view) wayTo(to netip.Addr) (way, netip.Addr, string) {
	owners := v.c.addresses.Owners(to)
	host := slices.IndexFunc(owners, reserved.Owner.IsHost)
	switch s := v.c.snap.Settings; {
	case within(s.Pods, to):
		return wayDirect, v.addr, to.String() + " is in the pod network: pods see each other's addresses"
	case within(s.Join, to):
		return wayDirect, v.addr, to.String() + " is in the join network: routers of the cluster see the addresses of pods"
	case to.Is6() && to.IsLinkLocalUnicast():
		return wayNowhere, netip.Addr{}, to.String() + " is on the pod's own link: no router forwards it"
	case within(v.c.nodeLocal, to):
		return wayNode, v.nodeAddrTo(to), to.String() + " means another machine on each node: it is reached by the pod's own node, with that node's address"
	case v.onOwnNode(to, owners):
		return wayOwnHost, v.addr, to.String() + " is an address of the pod's own node, which sees the pod's address"
	case host >= 0:
		return wayNode, v.nodeAddrTo(to), strings.Replace(owners[host].Refuse().Message, "it is", to.String()+" is", 1) + ": pods call hosts with the address of their own node"
	}
	return wayOutside, netip.Addr{}, ""
}

// onOwnNode reports whether an address is one of the pod's own node that receives packets of the
// pod from OVN. In shared gateway mode these are the addresses shared with its gateway router: packets to
// others leave by the external bridge, unless the pod has external gateways.
func (v *view) onOwnNode(to netip.Addr, owners []reserved.Owner) bool {
	if !v.byKernel() {
		return slices.Contains(v.node.GatewayAddresses(v.fam), to)
	}
	return slices.ContainsFunc(owners, func(o reserved.Owner) bool { return o.Kind == reserved.Node && o.Name == v.node.Name })
}

// byKernel reports whether the kernel of its own node forwards what the pod sends to nodes: in local gateway mode and, in both modes, if
// the pod has external gateways, to which its routes would lead that otherwise.
func (v *view) byKernel() bool {
	if v.node.Gateway.Mode == topology.GatewayLocal {
		return true
	}
	return slices.Contains(externalroute.Routed(externalroute.NodeRows(v.c.routeConfig, v.c.routes, v.routeSnapshot())), v.addr)
}

// viaService returns how the pod reaches the endpoints of a Service, with the addresses that they see.
func (v *view) viaService(at served, to netip.Addr) (map[way]netip.Addr, string) {
	ways := map[way]netip.Addr{}
	for _, e := range v.endpoints(at) {
		by, source, _ := v.wayTo(e.To.Addr())
		ways[by] = source
	}
	has := func(w way) bool { _, ok := ways[w]; return ok }
	why := fmt.Sprintf("%s is %s of Service %s", to, at.what, at.Key)
	switch direct := has(wayDirect) || has(wayOwnHost); {
	case len(ways) == 0:
		ways[wayNowhere] = netip.Addr{}
		return ways, why + at.without()
	case direct && has(wayNode):
		why += ": its pods, and the pod's own node, see the pod's address, and other hosts that of the pod's own node"
	case has(wayNode):
		why += ", whose endpoints are hosts: they see the address of the pod's own node"
	case has(wayOwnHost) && !has(wayDirect):
		why += ", whose endpoint is the pod's own node: it sees the pod's address"
	default:
		why += ": its pods see the pod's address"
	}
	return ways, why
}

// fromHost sets the outcome for a pod on the host's network. Its node reaches pods through its management port, and
// Services as well, unless their endpoints are hosts.
func (v *view) fromHost(to netip.AddrPort) {
	f := v.out
	f.Outcome, f.Why = OutcomeNode, "the pod is on the host's network: it sends as its node does, and no egress feature is about it"
	at, ok := v.serviceAt(to)
	reached, hosts := v.endpoints(at), false
	for _, e := range reached {
		hosts = hosts || !e.Pod
	}
	switch s := v.c.snap.Settings; {
	case ok && at.outside && to.Port() == 0, hosts: // other ports, or the kernel sends it to the hosts
		v.fromNode()
	case ok && len(reached) == 0:
		f.Outcome, f.Why = OutcomeInside, fmt.Sprintf("%s is %s of Service %s%s", to.Addr(), at.what, at.Key, at.without())
	case ok, within(s.Pods, to.Addr()):
		f.Outcome, f.Why = OutcomeInside, "the pod is on the host's network: its node reaches pods through its management port, with the address of that"
		if a, ok := topology.AddrOf(v.fam, v.node.ManagementAddrs()); ok {
			f.Sources = []Source{{Address: a.String(), Node: v.node.Name}}
		}
	case within(s.Services, to.Addr()):
		v.unserved(to)
		v.noService()
	default:
		v.fromNode()
	}
}

// served is an address at which OVN serves a Service.
type served struct {
	service.Service
	serviceAddr
	// ports are the ports that the destination may be.
	ports []service.Port
}

// local reports whether only endpoints on the client's node serve at the address.
func (s served) local() bool { return s.InternalLocal && !s.outside && !s.nodePort }

// without says that no endpoint serves.
func (s served) without() string {
	if s.local() {
		return ", which has no endpoints that serve on the pod's own node, and internalTrafficPolicy is Local"
	}
	return ", which has no endpoints that serve"
}

// endpoints returns the endpoints that serve the pod's family at an address of a Service.
func (v *view) endpoints(at served) []service.Endpoint {
	var all []service.Endpoint
	for _, p := range at.ports {
		if at.local() {
			all = append(all, p.Local(v.fam, v.node.Name)...)
		} else {
			all = append(all, p.Endpoints(v.fam)...)
		}
	}
	return all
}

// serviceAt returns the Service that OVN serves at an address and port, port 0 for any. If there are several,
// it returns the first by name.
func (v *view) serviceAt(to netip.AddrPort) (served, bool) {
	var all []served
	for _, svc := range v.c.snap.Services {
		all = append(all, v.servedAt(svc, to)...)
	}
	if len(all) == 0 {
		return served{}, false
	}
	return slices.MinFunc(all, func(a, b served) int { return strings.Compare(a.Key, b.Key) }), true
}

// servedAt returns what OVN serves of a Service at an address and port, as its planner decides.
func (v *view) servedAt(svc *corev1.Service, to netip.AddrPort) []served {
	asked := slices.DeleteFunc(serviceAddrs(svc), func(a serviceAddr) bool { return a.proxied || !is(a.text, to.Addr()) })
	if v.node.Gateway.NodePort && to.Port() != 0 && to.Addr() == v.nodeAddr() {
		asked = append(asked, serviceAddr{text: to.Addr().String(), what: "an address of the pod's own node, at a node port", nodePort: true})
	}
	if len(asked) == 0 {
		return nil
	}
	s, ok := v.c.decodeService(svc)
	if !ok {
		return nil
	}
	var all []served
	for _, a := range asked {
		at := served{Service: s, serviceAddr: a}
		for _, p := range s.Ports {
			if at.has(p, to) {
				at.ports = append(at.ports, p)
			}
		}
		if len(at.ports) > 0 {
			all = append(all, at)
		}
	}
	return all
}

// has reports whether a port of the Service is served at a destination, port 0 for any.
func (s served) has(p service.Port, to netip.AddrPort) bool {
	switch {
	case s.nodePort:
		return p.NodePort == to.Port()
	case to.Port() != 0 && p.Port != to.Port():
		return false
	case s.outside:
		return !slices.Contains(p.Refused, to.Addr()) &&
			slices.ContainsFunc(s.External, func(e service.External) bool { return e.Addr == to.Addr() })
	}
	return slices.Contains(s.ClusterIPs, to.Addr())
}

// decodeService decodes a Service as master and nodes do; ok is false if OVN does not serve it.
func (c *Cluster) decodeService(svc *corev1.Service) (s service.Service, ok bool) {
	set := c.snap.Settings
	return service.Decode(service.Snapshot{Service: svc, Slices: c.index.slices[svc.Namespace+"/"+svc.Name], Others: others{c}},
		service.Config{Cluster: set.Pods, Services: set.Services, Join: set.Join, Masquerade: set.Masquerade,
			HostPorts: slices.Concat(service.DefaultHostPorts, set.HostPorts), NodePorts: c.nodePorts()})
}

// nodePorts reports whether node ports are served, according to the nodes.
func (c *Cluster) nodePorts() bool {
	return slices.ContainsFunc(c.ordered, func(n place.Node) bool { return n.Gateway.NodePort })
}

// others provides what belongs to other objects than a Service, from the snapshot.
type others struct{ c *Cluster }

// Owners returns the owners of an address that are not Services.
func (o others) Owners(a netip.Addr) []reserved.Owner { return o.c.addresses.Owners(a) }

// ClusterAddr returns the Service whose cluster address it is.
func (o others) ClusterAddr(a netip.Addr) string {
	for _, svc := range o.with(service.ClusterAddrClaim(a)) {
		return svc.Namespace + "/" + svc.Name
	}
	return ""
}

// At returns the Services that request a port of an external address.
func (o others) At(to netip.AddrPort, protocol string) []*corev1.Service {
	return o.with(service.AtClaim(to, protocol))
}

// OnPort returns the Services that have a node port or health port.
func (o others) OnPort(protocol string, port uint16) []*corev1.Service {
	return o.with(service.PortClaim(protocol, port))
}

func (o others) with(claim string) []*corev1.Service {
	return slices.DeleteFunc(slices.Clone(o.c.snap.Services), func(svc *corev1.Service) bool {
		return !slices.Contains(service.Claims(svc), claim)
	})
}
