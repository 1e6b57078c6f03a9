package bridge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var (
	plain  = Bridge{MAC: "02:42:ac:12:00:03", EncapPort: 6081}
	tagged = Bridge{MAC: "02:42:ac:12:00:03", EncapPort: 6081, VLAN: 7}

	four = Family{
		Family: topology.IPv4, Node: netip.MustParseAddr("172.18.0.3"), Subnet: netip.MustParsePrefix("10.244.1.0/24"),
		Cluster: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}
	six = Family{
		Family: topology.IPv6, Node: netip.MustParseAddr("fc00:f853:ccd:e793::3"), Subnet: netip.MustParsePrefix("fd00:10:244:2::/64"),
		Cluster: []netip.Prefix{netip.MustParsePrefix("fd00:10:244::/48")},
	}
)

func dump(flows []host.Flow) string {
	var out strings.Builder
	for _, f := range flows {
		out.WriteString(string(f) + "\n")
	}
	return out.String()
}

func TestFlows(t *testing.T) {
	marks := DefaultMarks(topology.ConntrackZone)
	for name, flows := range map[string][]host.Flow{
		"early":             InitialFlows(plain),
		"early-vlan":        InitialFlows(tagged),
		"common":            CommonFlows(plain),
		"common-vlan":       CommonFlows(tagged),
		"ipv4":              Flows(plain, four, marks),
		"ipv4-vlan":         Flows(tagged, four, marks),
		"ipv6":              Flows(plain, six, marks),
		"marked-ipv4":       Marked(four, marks),
		"marked-ipv6":       Marked(six, marks),
		"own-address-ipv4":  OwnAddress(four, marks),
		"own-address-ipv6":  OwnAddress(six, marks),
		"own-address-none":  OwnAddress(Family{Family: topology.IPv6}, marks),
		"service-port-ipv4": ServicePort(four, marks),
		"service-port-ipv6": ServicePort(six, marks),
		"another-zone":      Flows(Bridge{MAC: plain.MAC, EncapPort: 6082}, four, DefaultMarks(65000)),
		"ingress-tcp-ipv4":  IngressFlows(plain, Ingress{To: netip.MustParseAddrPort("5.5.5.5:5060"), Protocol: "tcp"}, marks),
		"ingress-udp-vlan": IngressFlows(tagged, Ingress{To: netip.MustParseAddrPort("5.5.5.5:5060"), Protocol: "udp",
			Sources: []netip.Prefix{netip.MustParsePrefix("172.18.0.0/24")}}, marks),
		"ingress-sctp-ipv6": IngressFlows(plain, Ingress{To: netip.MustParseAddrPort("[fd05::5]:5060"), Protocol: "sctp"}, marks),
	} {
		t.Run(name, func(t *testing.T) { golden.Check(t, name, dump(flows)) })
	}
}

// TestNodeWithoutPods: a node without a pod subnet has no flow for its own pods, and all others.
func TestNodeWithoutPods(t *testing.T) {
	bare := four
	bare.Subnet = netip.Prefix{}
	marks := DefaultMarks(topology.ConntrackZone)
	all, fewer := Flows(plain, four, marks), Flows(plain, bare, marks)
	missing := slices.DeleteFunc(slices.Clone(all), func(f host.Flow) bool { return slices.Contains(fewer, f) })
	var what []string
	for _, f := range missing {
		what = append(what, strings.Join(strings.SplitN(string(f), ",", 3)[:2], ","))
	}
	want := []string{"table=0,priority=109", "table=0,priority=108", "table=3,priority=111", "table=0,priority=107", "table=3,priority=110", "table=3,priority=110", "table=3,priority=104", "table=1,priority=16"}
	if !slices.Equal(what, want) || len(fewer) != len(all)-len(want) {
		t.Errorf("missing are %v, want %v", what, want)
	}
}

// TestNoIdentityNAT checks the rule that a packet is never translated to the address that it
// already has: for every flow that translates to an address, a flow with a higher priority excludes
// that address.
func TestNoIdentityNAT(t *testing.T) {
	for _, f := range []Family{four, six} {
		marks := DefaultMarks(topology.ConntrackZone)
		flows := append(Flows(plain, f, marks), Marked(f, marks)...)
		i := slices.IndexFunc(flows, func(x host.Flow) bool { return strings.Contains(string(x), "nat(src="+f.Node.String()+")") })
		exempt := slices.IndexFunc(flows, func(x host.Flow) bool {
			return strings.Contains(string(x), "priority=106,") && strings.Contains(string(x), "_src="+f.Node.String()+",") && !strings.Contains(string(x), "nat(")
		})
		if i < 0 || exempt < 0 || !strings.Contains(string(flows[i]), "priority=105,") {
			t.Errorf("%s: translated by flow %d, exempted by %d", f.Family, i, exempt)
		}
	}
}

func TestResolve(t *testing.T) {
	flows := []host.Flow{
		"table=0,priority=1,in_port=PHYS,actions=output:PATCH,output:LOCAL",
		"table=0,priority=2,in_port=PATCH,actions=output:PHYS",
		"table=0,priority=3,in_port=LOCAL,actions=output:PHYS",
		"table=0,priority=0,actions=NORMAL",
	}
	for _, c := range []struct {
		ports Ports
		want  string
	}{
		{Ports{3, 12}, "table=0,priority=1,in_port=3,actions=output:12,output:LOCAL\n" +
			"table=0,priority=2,in_port=12,actions=output:3\n" +
			"table=0,priority=3,in_port=LOCAL,actions=output:3\n" +
			"table=0,priority=0,actions=NORMAL\n"},
		{Ports{Uplink: 3}, "table=0,priority=3,in_port=LOCAL,actions=output:3\ntable=0,priority=0,actions=NORMAL\n"},
		{Ports{}, "table=0,priority=0,actions=NORMAL\n"},
	} {
		if got := dump(c.ports.Resolve(flows)); got != c.want {
			t.Errorf("%+v:\n%s\nwant:\n%s", c.ports, got, c.want)
		}
	}
}
