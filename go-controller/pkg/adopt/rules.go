package adopt

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// claim is the owner of a row, and its id among the owner's rows. Without an id it is a row that the owner does not
// want in this form.
type claim struct {
	owner nb.Owner
	id    string
}

// rules recognize the rows of a table.
var rules = map[string]func(*database, nb.Stored) (claim, bool){
	nbdb.LogicalRouterTable:            (*database).router,
	nbdb.LogicalSwitchTable:            (*database).logicalSwitch,
	nbdb.LogicalRouterPortTable:        (*database).routerPort,
	nbdb.LogicalSwitchPortTable:        (*database).switchPort,
	nbdb.GatewayChassisTable:           (*database).gatewayChassis,
	nbdb.LogicalRouterStaticRouteTable: (*database).route,
	nbdb.LogicalRouterPolicyTable:      (*database).policy,
	nbdb.NATTable:                      (*database).nat,
	nbdb.BFDTable:                      (*database).bfd,
	nbdb.LoadBalancerTable:             (*database).loadBalancer,
	nbdb.ChassisTemplateVarTable:       (*database).variables,
}

// clusterWide are the names of rows that exist only once.
var clusterWide = []string{topology.ClusterRouter, topology.JoinSwitch, topology.ClusterRouterToJoin, topology.JoinToClusterRouter}

// named recognizes a row of the base network by its name, which is its id.
func (d *database) named(r nb.Stored, ofNode ...func(node string) string) (claim, bool) {
	name := r.Value("name")
	if slices.Contains(clusterWide, name) {
		return claim{network.Owner(""), name}, true
	}
	for of := range d.nodes {
		if slices.ContainsFunc(ofNode, func(f func(string) string) bool { return f(of) == name }) {
			return claim{network.Owner(of), name}, true
		}
	}
	return claim{}, false
}

func (d *database) router(r nb.Stored) (claim, bool) { return d.named(r, topology.GatewayRouter) }

func (d *database) logicalSwitch(r nb.Stored) (claim, bool) {
	return d.named(r, topology.NodeSwitch, topology.ExternalSwitch, topology.ExternalGatewaySwitch)
}

func (d *database) routerPort(r nb.Stored) (claim, bool) {
	return d.named(r, topology.RouterToSwitch, topology.GatewayToJoin, topology.GatewayToExternal, topology.ExternalGatewayPort)
}

func (d *database) switchPort(r nb.Stored) (claim, bool) {
	if key, ok := d.podOf(r); ok {
		return claim{pod.Owner(key), r.Value("name")}, true
	}
	for of := range d.nodes {
		on := parent(r).Name
		if r.Value("type") == "localnet" && (on == topology.ExternalSwitch(of) || on == topology.ExternalGatewaySwitch(of)) {
			return claim{network.Owner(of), r.Value("name")}, true
		}
	}
	return d.named(r, topology.SwitchToRouter, topology.ManagementLSP, topology.JoinToGateway, topology.ExternalToGateway, topology.ExternalGatewayPeer)
}

func (d *database) gatewayChassis(r nb.Stored) (claim, bool) {
	for of := range d.nodes {
		if parent(r).Name == topology.RouterToSwitch(of) {
			return claim{network.Owner(of), r.Value("name")}, true
		}
	}
	return claim{}, false
}

// route recognizes routes between the routers, to the outside, and to external gateways.
func (d *database) route(r nb.Stored) (claim, bool) {
	to, okTo := prefix(r.Value("ip_prefix"))
	via, okVia := addr(r.Value("nexthop"))
	if !okTo || !okVia {
		return claim{}, false
	}
	bySource := r.Value("policy") == nbdb.LogicalRouterStaticRoutePolicySrcIP
	on := parent(r).Name
	if on == topology.ClusterRouter {
		return d.clusterRoute(to, via, bySource)
	}
	of, ok := d.gatewayRouter(on)
	if !ok {
		return claim{}, false
	}
	port := r.Value("output_port")
	outside := port == topology.GatewayToExternal(of)
	switch {
	case bySource && isUplink(of, port) && to.IsSingleIP():
		return claim{externalroute.Owner(of), to.Addr().String() + " via " + via.String()}, true
	case !bySource && outside && to.Bits() == 0, !bySource && d.inCluster(to) && slices.Contains(d.join, via):
		return claim{network.Owner(of), to.String() + " via " + via.String()}, true
	}
	return claim{}, false
}

// isUplink reports whether a port of a node's gateway router leads to external gateways.
func isUplink(node, port string) bool {
	return port == topology.GatewayToExternal(node) || port == topology.ExternalGatewayPort(node)
}

func (d *database) clusterRoute(to netip.Prefix, via netip.Addr, bySource bool) (claim, bool) {
	if of, ok := d.nodeOf(to); ok && bySource {
		return claim{network.Owner(of), nbdb.LogicalRouterStaticRoutePolicySrcIP + " " + to.String() + " via " + via.String()}, true
	}
	for of, n := range d.nodes {
		if !bySource && to == topology.HostPrefix(via) && slices.Contains(n.join, via) {
			return claim{network.Owner(of), via.String() + " via " + via.String()}, true
		}
	}
	return claim{}, false
}

// Matches of policies.
var (
	toOwnNode  = regexp.MustCompile(`^inport == "rtos-([^"]+)" && ip[46]\.dst == ([0-9a-f.:]+)( /\*.*\*/)?$`)
	fromPods   = regexp.MustCompile(`^inport == "rtos-([^"]+)" && (ip[46])\.src == \$`)
	between    = regexp.MustCompile(`^ip[46]\.src == ([0-9a-f.:/]+) && ip[46]\.dst == ([0-9a-f.:/]+)$`)
	podsToNode = regexp.MustCompile(`^\(ip[46]\.src == \$\S+ \|\| ip[46]\.src == \$\S+\) && ip[46]\.dst == \$\S+$`)
	fromOne    = regexp.MustCompile(`^ip[46]\.src == ([0-9a-f.:]+)$`)
)

// policy recognizes the policies of the cluster router by priority and match, and those of an EgressIP or
// EgressService also by their external_ids.
func (d *database) policy(r nb.Stored) (claim, bool) {
	if parent(r).Name != topology.ClusterRouter {
		return claim{}, false
	}
	match, ids := r.Value("match"), r.Maps["external_ids"]
	find := func(e *regexp.Regexp) []string { return e.FindStringSubmatch(match) }
	switch priority, _ := strconv.Atoi(r.Value("priority")); priority {
	case topology.PriorityNodeLocal:
		if m := find(toOwnNode); m != nil && d.nodes[m[1]] != nil {
			a, ok := addr(m[2])
			return claim{network.Owner(m[1]), a.String()}, ok
		}
	case topology.PriorityHybridRoute:
		if m := find(fromPods); m != nil && d.nodes[m[1]] != nil {
			return claim{externalroute.Owner(m[1]), "hybrid " + m[2]}, true
		}
	case topology.PriorityNoReroute:
		if m := find(between); m != nil {
			from, ok := prefix(m[1])
			return claim{noreroute.PolicyOwner, match}, ok && d.inCluster(from)
		}
		return claim{owner: noreroute.PolicyOwner}, find(podsToNode) != nil // ours refers to other sets
	case topology.PriorityEgressService:
		if m := find(fromOne); m != nil && ids["EgressSVC"] != "" {
			a, ok := addr(m[1])
			return claim{egressservice.Owner(ids["EgressSVC"]), a.String()}, ok
		}
	case topology.PriorityEgressIP:
		if m := find(fromOne); m != nil && ids["name"] != "" {
			a, ok := addr(m[1])
			return claim{egressip.Owner(d.podKey(a)), a.String()}, ok
		}
	}
	return claim{}, false
}

// nat recognizes translations to addresses of nodes and to egress addresses.
func (d *database) nat(r nb.Stored) (claim, bool) {
	of, ok := d.gatewayRouter(parent(r).Name)
	from, okFrom := prefix(r.Value("logical_ip"))
	to, okTo := addr(r.Value("external_ip"))
	if !ok || !okFrom || !okTo || r.Value("type") != nbdb.NATTypeSNAT {
		return claim{}, false
	}
	switch port := r.Value("logical_port"); {
	case port == topology.ManagementLSP(of) && r.Maps["external_ids"]["name"] != "" && from.IsSingleIP():
		return claim{egressip.Owner(d.podKey(from.Addr())), from.Addr().String() + "@" + of}, true
	case port != "" || !slices.Contains(d.nodes[of].external, to) || !d.inCluster(from):
		return claim{}, false
	case !from.IsSingleIP():
		return claim{network.Owner(of), from.String()}, true
	case d.config.MultiExternalGateway:
		return claim{externalroute.Owner(of), from.Addr().String()}, true
	default:
		return claim{pod.Owner(d.podKey(from.Addr())), from.Addr().String()}, true
	}
}

func (d *database) bfd(r nb.Stored) (claim, bool) {
	for of := range d.nodes {
		if isUplink(of, r.Value("logical_port")) {
			return claim{externalroute.Owner(of), r.Value("dst_ip")}, true
		}
	}
	return claim{}, false
}

// loadBalancer recognizes the load balancers of Services. One that is attached in several places is not recognized:
// ours are attached in one.
func (d *database) loadBalancer(r nb.Stored) (claim, bool) {
	key, place, ok := service.KeyOf(r.Value("name"))
	if ok && len(r.Parents) != 1 {
		place = ""
	}
	return claim{service.Owner(key), place}, ok
}

func (d *database) variables(r nb.Stored) (claim, bool) {
	of, ok := d.chassis[r.Value("chassis")]
	return claim{service.NodeOwner(of), r.Value("chassis")}, ok
}
