package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The node whose flows the page shows.
var (
	exampleBridge = bridge.Bridge{MAC: "MAC", EncapPort: 6081}
	exampleFamily = bridge.Family{
		Family: topology.IPv4, Node: netip.MustParseAddr("172.18.0.3"), Subnet: netip.MustParsePrefix("10.244.1.0/24"),
		Cluster: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}
	exampleMarks = bridge.DefaultMarks(topology.ConntrackZone)
	secondAddr   = netip.MustParseAddr("192.168.50.3")
	egressAddr   = netip.MustParseAddr("172.18.0.33")
	serviceAddr  = netip.MustParseAddrPort("203.0.113.7:80")
	clientRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
)

// planners are the functions of package bridge that return flows.
var planners = map[string]func() []host.Flow{
	"CommonFlows":  func() []host.Flow { return bridge.CommonFlows(exampleBridge) },
	"InitialFlows": func() []host.Flow { return bridge.InitialFlows(exampleBridge) },
	"Flows":        func() []host.Flow { return bridge.Flows(exampleBridge, exampleFamily, exampleMarks) },
	"Suppression":  func() []host.Flow { return bridge.Suppression(exampleBridge) },
	"SuppressARP":  func() []host.Flow { return []host.Flow{bridge.SuppressARP(egressAddr, true)} },
	"DeliverToOVN": func() []host.Flow { return bridge.DeliverToOVN(bridge.Bridge{MAC: "MAC"}, egressAddr, "PREVIOUS") },
	"OwnAddress": func() []host.Flow {
		second := bridge.Family{Family: topology.IPv4, Node: secondAddr}
		return bridge.OwnAddress(second, bridge.DefaultMarks(topology.SecondZone(topology.ConntrackZone)))
	},
	"Marked":      func() []host.Flow { return bridge.Marked(exampleFamily, exampleMarks) },
	"ServicePort": func() []host.Flow { return bridge.ServicePort(exampleFamily, exampleMarks) },
	"IngressFlows": func() []host.Flow {
		tcp := bridge.IngressFlows(exampleBridge, bridge.Ingress{To: serviceAddr, Protocol: "tcp"}, exampleMarks)
		udp := bridge.IngressFlows(exampleBridge, bridge.Ingress{To: serviceAddr, Protocol: "udp"}, exampleMarks)
		restricted := bridge.IngressFlows(exampleBridge, bridge.Ingress{To: serviceAddr, Protocol: "tcp", Sources: clientRanges}, exampleMarks)
		return slices.Concat(tcp, udp, slices.DeleteFunc(restricted, func(f host.Flow) bool { return strings.Contains(string(f), "priority=110,") }))
	},
}

// plannedFlow is a flow and its planner.
type plannedFlow struct {
	table, priority int
	match, actions  string
	planner         string
}

// key returns the key of a flow's description.
func (f plannedFlow) key() string { return fmt.Sprintf("%s/%d/%d", f.planner, f.table, f.priority) }

// flows returns the flows of all planners, in the order in which Open vSwitch matches them.
func flows(exported []string) ([]plannedFlow, error) {
	var out []plannedFlow
	for _, name := range exported {
		plan := planners[name]
		if plan == nil {
			return nil, fmt.Errorf("bridge.%s returns flows, which are not on the page: add it to planners", name)
		}
		for _, f := range plan() {
			p := plannedFlow{planner: name}
			match, actions, _ := strings.Cut(string(f), ",actions=")
			if _, err := fmt.Sscanf(match, "table=%d,priority=%d", &p.table, &p.priority); err != nil {
				return nil, fmt.Errorf("flow %q: %w", f, err)
			}
			parts := strings.Split(match, ",")
			p.match, p.actions = strings.Join(parts[2:], ","), actions
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b plannedFlow) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(b.priority, a.priority), cmp.Compare(a.planner, b.planner))
	})
	return out, nil
}

// plannedChain is an iptables chain and the package that declares it.
type plannedChain struct {
	host.Chain
	pkg string
}

// chains returns the chains of all features, in the order of their jumps.
func chains() []plannedChain {
	declared := map[string]func([]topology.Family) []host.Chain{
		"egressip": egressip.Chains, "egressservice": egressservice.Chains, "gateway": gateway.Chains,
		"noreroute": noreroute.Chains, "service": service.Chains,
	}
	var out []plannedChain
	for pkg, chains := range declared {
		for _, c := range chains([]topology.Family{topology.IPv4}) {
			out = append(out, plannedChain{c, pkg})
		}
	}
	slices.SortFunc(out, func(a, b plannedChain) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Jumps[0].From, b.Jumps[0].From),
			cmp.Compare(a.Position, b.Position), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// jumps describes how a chain is reached.
func (c plannedChain) jumps() string {
	var out []string
	for _, j := range c.Jumps {
		from := "`" + j.From + "`"
		if j.Match != "" {
			from += " `" + j.Match + "`"
		}
		out = append(out, from)
	}
	return strings.Join(out, ", ")
}
