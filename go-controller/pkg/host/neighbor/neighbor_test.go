package neighbor

import (
	"net/netip"
	"strings"
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

// TestPermanent corrects the permanent entries of a link, and leaves the entries that the kernel
// has learned.
func TestPermanent(t *testing.T) {
	const mac, other = "0a:58:0a:f4:01:05", "0a:58:0a:f4:01:06"
	ns := netnstest.New(t)
	run := ns.Run
	if err := SetPermanent("here", map[netip.Addr]string{netip.MustParseAddr("192.0.2.5"): mac}); err != nil {
		t.Errorf("a link that does not exist: %v", err)
	}
	run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "address", "02:42:ac:12:00:33")
	run("ip", "link", "add", "else", "type", "veth", "peer", "name", "where")
	for _, dev := range []string{"here", "there", "else"} {
		run("ip", "link", "set", dev, "up")
	}
	run("ip", "addr", "add", "192.0.2.1/24", "dev", "here")
	run("ip", "addr", "add", "2001:db8::1/64", "dev", "here", "nodad")
	run("ip", "neigh", "add", "192.0.2.51", "lladdr", other, "dev", "here", "nud", "stale")
	run("ip", "neigh", "add", "192.0.2.5", "lladdr", other, "dev", "here", "nud", "stale")
	run("ip", "neigh", "add", "2001:db8::7", "lladdr", other, "dev", "here", "nud", "permanent")
	run("ip", "neigh", "add", "192.0.2.9", "lladdr", other, "dev", "else", "nud", "permanent")
	want := map[netip.Addr]string{netip.MustParseAddr("192.0.2.5"): mac, netip.MustParseAddr("2001:db8::5"): mac}
	state := func() string {
		return run("ip", "neigh", "show", "nud", "permanent") + run("ip", "neigh", "show", "nud", "stale")
	}
	for range 2 {
		if err := SetPermanent("here", want); err != nil {
			t.Fatal(err)
		}
		is := state()
		for _, line := range []string{"192.0.2.5 dev here lladdr " + mac + " PERMANENT", "2001:db8::5 dev here lladdr " + mac + " PERMANENT",
			"192.0.2.51 dev here lladdr " + other + " STALE", "192.0.2.9 dev else lladdr " + other + " PERMANENT"} {
			if !strings.Contains(is, line) {
				t.Errorf("there is no %q in\n%s", line, is)
			}
		}
		if strings.Contains(is, "2001:db8::7") {
			t.Errorf("an entry that is not wanted stays:\n%s", is)
		}
	}
	want = map[netip.Addr]string{netip.MustParseAddr("2001:db8::5"): other}
	if err := SetPermanent("here", want); err != nil {
		t.Fatal(err)
	}
	if is := state(); strings.Contains(is, "192.0.2.5 ") || !strings.Contains(is, "2001:db8::5 dev here lladdr "+other+" PERMANENT") {
		t.Errorf("entries that changed:\n%s", is)
	}
}
