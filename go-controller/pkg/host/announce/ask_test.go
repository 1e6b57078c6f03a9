package announce

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestAsk asks a real kernel: it answers and has learned the address of the host that asked.
func TestAsk(t *testing.T) {
	ns := neighbours(t)
	far, err := netlink.LinkByName("far0")
	if err != nil {
		t.Fatal(err)
	}
	answers := listen(t, "far0")
	var a Announcer
	for from, neighbour := range map[string]string{"172.18.0.3": "172.18.0.9", "fc00::3": "fc00::9"} {
		if err := a.Solicit("far0", netip.MustParseAddr(from), netip.MustParseAddr(neighbour)); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, neighbour+" to know "+from, func() bool {
			return strings.Contains(ns.Run("ip", "neigh", "show", from), far.Attrs().HardwareAddr.String())
		})
	}
	eventually.True(t, "an answer by ARP", func() bool { return answers() > 0 })
	if err := a.Solicit("none0", netip.MustParseAddr("172.18.0.3"), netip.MustParseAddr("172.18.0.9")); err == nil {
		t.Error("asked on a link that is not there")
	}
}
