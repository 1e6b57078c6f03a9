package neighbor

import (
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestResolve asks a machine on the other end of a wire for its addresses.
func TestResolve(t *testing.T) {
	ns := netnstest.New(t)
	run := ns.Run
	run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "address", "02:42:ac:12:00:33")
	run("ip", "addr", "add", "192.0.2.1/24", "dev", "here")
	run("ip", "addr", "add", "2001:db8::1/64", "dev", "here", "nodad")
	run("ip", "link", "set", "here", "up")
	run("ip", "link", "set", "there", "up")
	run("ip", "neigh", "add", "192.0.2.51", "lladdr", "02:42:ac:12:00:33", "dev", "here", "nud", "stale")
	run("ip", "neigh", "add", "2001:db8::51", "lladdr", "02:42:ac:12:00:33", "dev", "here", "nud", "permanent")
	want := map[string]string{"192.0.2.51": "02:42:ac:12:00:33", "2001:db8::51": "02:42:ac:12:00:33"}
	var ask []netip.Addr
	for _, a := range []string{"192.0.2.51", "2001:db8::51", "192.0.2.99", "198.51.100.1"} {
		ask = append(ask, netip.MustParseAddr(a))
	}
	got, err := Resolve(t.Context(), ask)
	if err != nil || len(got) != len(want) {
		t.Fatalf("resolved %v (%v), want %v", got, err, want)
	}
	for a, mac := range want {
		if got[netip.MustParseAddr(a)] != mac {
			t.Errorf("%s has %s, want %s", a, got[netip.MustParseAddr(a)], mac)
		}
	}
}
