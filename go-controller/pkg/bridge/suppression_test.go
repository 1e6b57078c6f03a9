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
		"gate-ipv4":       SuppressARP(plain, four),
		"gate-ipv6":       SuppressARP(plain, six),
		"gate-ipv4-vlan":  SuppressARP(tagged, four),
		"gate-ipv6-vlan":  SuppressARP(tagged, six),
		"held-ipv4":       DeliverToOVN(plain, four, ""),
		"held-ipv6-vlan":  DeliverToOVN(tagged, six, ""),
		"taken-ipv4":      DeliverToOVN(plain, four, "02:42:ac:12:00:04"),
		"taken-ipv6-vlan": DeliverToOVN(tagged, six, "02:42:ac:12:00:04"),
	} {
		t.Run(name, func(t *testing.T) { golden.Check(t, name, dump(flows)) })
	}
}

// TestHeldEarly writes no flow that is none while the node's own MAC address is not
// known.
func TestHeldEarly(t *testing.T) {
	a := netip.MustParseAddr("172.18.0.33")
	if got, want := dump(DeliverToOVN(Bridge{}, a, "02:42:ac:12:00:04")), dump(DeliverToOVN(Bridge{}, a, "")); got != want {
		t.Errorf("has\n%swant\n%s", got, want)
	}
}

// TestUnsnatted names exactly the flows that drop what nothing has translated.
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
		if !strings.HasSuffix(string(f), "actions=drop") {
			t.Errorf("%s drops nothing", f)
		}
	}
}
