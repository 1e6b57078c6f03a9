package attachment

import (
	"strings"
	"testing"
)

// TestRouteNeedsAnother: a route whose gateway is reached by another route moves with it, in both directions,
// whatever the order in which the kernel lists them.
func TestRouteNeedsAnother(t *testing.T) {
	ns := links(t)
	for _, cmd := range []string{
		"addr add 10.0.0.3/32 dev l1",
		"route add 10.9.9.1/32 dev l1 scope link", "route add default via 10.9.9.1 dev l1",
		"addr add fd01::3/128 dev l1 nodad",
		"-6 route add fd09::1/128 dev l1", "-6 route add default via fd09::1 dev l1",
	} {
		ns.Run("ip", strings.Fields(cmd)...)
	}
	want, err := Read("l1")
	if err != nil {
		t.Fatal(err)
	}
	text := routes(ns, "l1")
	for _, move := range [][2]string{{"l1", "l2"}, {"l2", "l1"}} {
		if _, err := AddAddresses(move[1], want); err != nil {
			t.Fatal(err)
		}
		if _, err := AddRoutes(move[1], move[0], want); err != nil {
			t.Fatal(err)
		}
		if _, err := Strip(move[0], want); err != nil {
			t.Fatal(err)
		}
		if got := routes(ns, move[1]); got != text {
			t.Errorf("%s has routes\n%s\nwant\n%s", move[1], got, text)
		}
	}
}

// TestRouteThatCannotBeAdded: a route that cannot be added is reported, and does not keep the others from being added.
func TestRouteThatCannotBeAdded(t *testing.T) {
	ns := links(t)
	for _, cmd := range []string{
		"addr add 10.0.0.3/24 dev l1", "addr add 10.1.0.3/24 dev l3",
		"route add 10.7.0.0/24 nexthop via 10.0.0.1 dev l1 nexthop via 10.1.0.1 dev l3", "route add 10.8.0.0/24 via 10.0.0.1 dev l1",
	} {
		ns.Run("ip", strings.Fields(cmd)...)
	}
	want, err := Read("l1")
	if err != nil {
		t.Fatal(err)
	}
	ns.Run("ip", "link", "del", "l3")
	if _, err := AddAddresses("l2", want); err != nil {
		t.Fatal(err)
	}
	if n, err := AddRoutes("l2", "l1", want); err == nil || !strings.Contains(err.Error(), "10.7.0.0/24") || n != 1 {
		t.Errorf("%d added, %v", n, err)
	}
	if got := ns.Run("ip", "route", "show", "10.8.0.0/24"); !strings.Contains(got, "via 10.0.0.1 dev l2") {
		t.Errorf("the other route is %q", got)
	}
}
