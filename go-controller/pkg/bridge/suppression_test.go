package bridge

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func TestGate(t *testing.T) {
	four, six := netip.MustParseAddr("172.18.0.33"), netip.MustParseAddr("fc00:f853:ccd:e793::33")
	for name, flows := range map[string][]host.Flow{
		"gates":           Suppression(plain),
		"gates-vlan":      Suppression(tagged),
		"gate":            {SuppressARP(four, false), SuppressARP(six, false), SuppressARP(four, true), SuppressARP(six, true)},
		"held-ipv4":       DeliverToOVN(plain, four, ""),
		"held-ipv6-vlan":  DeliverToOVN(tagged, six, ""),
		"taken-ipv4":      DeliverToOVN(plain, four, "02:42:ac:12:00:04"),
		"taken-ipv6-vlan": DeliverToOVN(tagged, six, "02:42:ac:12:00:04"),
	} {
		t.Run(name, func(t *testing.T) { golden.Check(t, name, dump(flows)) })
	}
}

// TestHeldEarly: no malformed flow is written while the node's own MAC address is not known.
func TestHeldEarly(t *testing.T) {
	a := netip.MustParseAddr("172.18.0.33")
	if got, want := dump(DeliverToOVN(Bridge{}, a, "02:42:ac:12:00:04")), dump(DeliverToOVN(Bridge{}, a, "")); got != want {
		t.Errorf("has\n%swant\n%s", got, want)
	}
}

// TestUnsnatted lists exactly the flows that keep untranslated packets from leaving.
func TestUnsnatted(t *testing.T) {
	var found []host.Flow
	for _, f := range []Family{four, six} {
		for _, flow := range append(Flows(plain, f, DefaultMarks(topology.ConntrackZone)), Marked(f, DefaultMarks(topology.ConntrackZone))...) {
			if strings.HasPrefix(string(flow), fmt.Sprintf("table=0,priority=%d,", PriorityUnsnatted)) {
				found = append(found, flow)
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("found %v", found)
	}
	for _, f := range found {
		if !strings.HasSuffix(string(f), fmt.Sprintf("actions=resubmit(,%d)", TableForgotten)) {
			t.Errorf("%s withholds nothing", f)
		}
	}
}

// TestForgotten: withheld packets go only to the host, and only with a time to live of 1.
func TestForgotten(t *testing.T) {
	for _, b := range []Bridge{plain, tagged} {
		for _, f := range []Family{four, six} {
			drops := 0
			for _, flow := range Flows(b, f, DefaultMarks(topology.ConntrackZone)) {
				text := string(flow)
				if !strings.HasPrefix(text, fmt.Sprintf("table=%d,", TableForgotten)) {
					continue
				}
				match, actions, _ := strings.Cut(text, ",actions=")
				if actions == "drop" {
					drops++
					continue
				}
				to := strings.Join(append([]string{""}, b.toHost()...), ",")
				if !strings.HasSuffix(actions, ",mod_nw_ttl:1"+to) || strings.Count(actions, "output:") != 1 ||
					!strings.Contains(match, "_src="+f.Cluster[0].String()) || !strings.Contains(match, "+fin-syn-rst") {
					t.Errorf("%s", text)
				}
			}
			if drops != 1 {
				t.Errorf("%d flows drop the rest", drops)
			}
		}
	}
}

// TestEgressAddrs reads egress addresses from flows as ovs-ofctl prints them.
func TestEgressAddrs(t *testing.T) {
	const cookie = " cookie=0x6f766e6b, "
	delivered, suppressed := EgressAddrs(cookie + "table=0, priority=101,ip,in_port=2 actions=drop\n" +
		cookie + "table=0, priority=104,ip,in_port=2,nw_src=172.18.0.99 actions=drop\n" +
		cookie + "table=0, priority=150,arp,in_port=1,arp_tpa=172.18.0.44 actions=LOCAL\n" +
		cookie + "table=5, priority=150,reg1=0xa0c002c actions=load:0x1->NXM_NX_REG2[0..1]\n" +
		cookie + "table=5, priority=150,reg4=0xfc00f853,reg5=0xccde793,reg6=0,reg7=0x44 actions=load:0x3->NXM_NX_REG2[0..1]\n" +
		cookie + "table=1, priority=102,ct_state=+est+trk,ct_mark=0x1,ip,in_port=1,nw_dst=172.18.0.33 actions=output:2\n" +
		cookie + "table=1, priority=101,ip,in_port=1,nw_dst=172.18.0.33 actions=output:2\n" +
		cookie + "table=1, priority=101,ipv6,in_port=1,ipv6_dst=fc00:f853:ccd:e793::33 actions=output:2\n" +
		cookie + "table=1, priority=15,ip,nw_dst=10.244.0.0/16 actions=output:2\n" +
		cookie + "table=1, priority=101,ip,nw_dst=10.244.0.0/16 actions=output:2\n")
	const want = "[172.18.0.33 fc00:f853:ccd:e793::33] [10.12.0.44 fc00:f853:ccd:e793::44]"
	if got := fmt.Sprint(delivered, suppressed); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
