package attachment

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// links makes the links l1, l2 and l3.
func links(t *testing.T) *netnstest.NS {
	t.Helper()
	ns := netnstest.New(t)
	ns.Veth("l1", "p1")
	ns.Veth("l2", "p2")
	ns.Veth("l3", "p3")
	return ns
}

// routes prints the routes through a link as ip does, without those that every link has.
func routes(ns *netnstest.NS, link string) string {
	var out []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(ns.Run("ip", family, "route", "show", "table", "all") + "\n") {
			line = strings.Join(strings.Fields(line), " ")
			if strings.Contains(line, "dev "+link) && !strings.Contains(line, "table local") && !strings.Contains(line, "fe80::/64") &&
				!strings.HasPrefix(line, "multicast") {
				out = append(out, strings.ReplaceAll(line, "dev "+link, "dev X"))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestMove moves all kinds of addresses and routes there and back.
func TestMove(t *testing.T) {
	ns := links(t)
	for _, cmd := range []string{
		"addr add 10.0.0.3/24 dev l1", "addr add 10.0.0.4/24 dev l1", "addr add 10.5.0.1/32 dev l1 scope host",
		"addr add 10.6.0.3/24 dev l1 noprefixroute", "route add 10.6.0.0/24 dev l1 proto kernel scope link src 10.6.0.3 metric 100",
		"route add 10.9.9.9/32 dev l1 scope link", "route add default via 10.9.9.9 dev l1 onlink metric 50",
		"route add default via 10.0.0.1 dev l1 metric 100 mtu 1400 advmss 1300",
		"route add 192.0.2.0/24 nexthop via 10.0.0.1 dev l1 weight 3 nexthop via 10.0.0.2 dev l1",
		"route add 198.51.100.0/24 via 10.0.0.1 dev l1 src 10.0.0.4 table 1000 proto static",
		"-4 route add default via inet6 fe80::1 dev l1 metric 200", "route add 192.0.3.0/24 nexthop via inet6 fe80::1 dev l1 nexthop via 10.0.0.2 dev l1",
		"route add 203.0.113.0/24 tos 0x10 via 10.0.0.1 dev l1",
		"route add 203.0.114.0/24 via 10.0.0.1 dev l1 proto 79",
		"addr add fd01::3/64 dev l1 nodad", "addr add fd06::3/64 dev l1 nodad noprefixroute",
		"-6 route add default via fd01::1 dev l1 metric 1024", "-6 route add fd02::/64 via fd01::1 dev l1 table 1000 proto ra",
		"-6 route add fd03::/64 nexthop via fd01::1 dev l1 nexthop via fd01::2 dev l1",
		"-6 route add fd04::/64 via fe80::1 dev l1",
	} {
		ns.Run("ip", strings.Fields(cmd)...)
	}
	before, err := Read("l1")
	if err != nil {
		t.Fatal(err)
	}
	text := routes(ns, "l1")
	move := func(from, to string) {
		t.Helper()
		if _, err := AddAddresses(to, before); err != nil {
			t.Fatal(err)
		}
		if _, err := AddRoutes(to, from, before); err != nil {
			t.Fatal(err)
		}
		if _, err := Strip(from, before); err != nil {
			t.Fatal(err)
		}
		if left, err := Read(from); err != nil || len(left.Addrs)+len(left.Routes) > 0 {
			t.Errorf("%s keeps %+v, %v", from, left, err)
		}
		moved, err := Read(to)
		if err != nil || !reflect.DeepEqual(sorted(moved.Addrs), sorted(before.Addrs)) || len(moved.Routes) != len(before.Routes) {
			t.Errorf("%s has %+v, %v\nwant %+v", to, moved, err, before)
		}
		// Our routes do not belong to the host and disappeared with the addresses.
		want := strings.Split(text, "\n")
		want = slices.DeleteFunc(want, func(l string) bool { return strings.Contains(l, "proto 79") })
		if got := routes(ns, to); got != strings.Join(want, "\n") {
			t.Errorf("%s has routes\n%s\nwant\n%s", to, got, strings.Join(want, "\n"))
		}
	}
	move("l1", "l2")
	for what, f := range map[string]func() (int, error){
		"AddAddresses": func() (int, error) { return AddAddresses("l2", before) },
		"AddRoutes":    func() (int, error) { return AddRoutes("l2", "l1", before) },
		"Strip":        func() (int, error) { return Strip("l1", before) },
	} {
		if n, err := f(); n != 0 || err != nil {
			t.Errorf("%s again: %d, %v", what, n, err)
		}
	}
	move("l2", "l1")
}

func sorted[T any](s []T) []T {
	out := slices.Clone(s)
	slices.SortFunc(out, func(a, b T) int {
		return strings.Compare(reflect.ValueOf(a).Field(0).Interface().(netip.Prefix).String(), reflect.ValueOf(b).Field(0).Interface().(netip.Prefix).String())
	})
	return out
}

// TestStripLater: an address and a route that somebody adds after the link was read stay.
func TestStripLater(t *testing.T) {
	ns := links(t)
	ns.Run("ip", "addr", "add", "10.0.0.3/24", "dev", "l1")
	ns.Run("ip", "route", "add", "default", "via", "10.0.0.1", "dev", "l1")
	moved, err := Read("l1")
	if err != nil {
		t.Fatal(err)
	}
	ns.Run("ip", "addr", "add", "10.3.0.3/24", "dev", "l1")
	ns.Run("ip", "route", "add", "10.4.0.0/16", "via", "10.3.0.1", "dev", "l1")
	if n, err := Strip("l1", moved); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if got, want := strings.Join(strings.Fields(routes(ns, "l1")), " "), "10.3.0.0/24 dev X proto kernel scope link src 10.3.0.3 10.4.0.0/16 via 10.3.0.1 dev X"; got != want {
		t.Errorf("routes are %s\nwant %s", got, want)
	}
}

// TestThirdLink checks that a route of another link to the same destination keeps precedence.
func TestThirdLink(t *testing.T) {
	ns := links(t)
	ns.Run("ip", "addr", "add", "10.0.0.3/24", "dev", "l1")
	ns.Run("ip", "addr", "add", "10.1.0.3/24", "dev", "l3")
	ns.Run("ip", "route", "add", "default", "via", "10.1.0.1", "dev", "l3")
	ns.Run("ip", "route", "append", "default", "via", "10.0.0.1", "dev", "l1")
	want, err := Read("l1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddAddresses("l2", want); err != nil {
		t.Fatal(err)
	}
	if _, err := AddRoutes("l2", "l1", want); err != nil {
		t.Fatal(err)
	}
	if _, err := Strip("l1", want); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(ns.Run("ip", "route", "show", "default")), " ")
	if got != "default via 10.1.0.1 dev l3 default via 10.0.0.1 dev l2" {
		t.Errorf("default routes are %s", got)
	}
}

func TestLinks(t *testing.T) {
	ns := links(t)
	if _, err := DefaultLink(); !errors.Is(err, ErrNoDefaultRoute) {
		t.Errorf("no default route: %v", err)
	}
	ns.Run("ip", "addr", "add", "fd01::3/64", "dev", "l3", "nodad")
	ns.Run("ip", "-6", "route", "add", "default", "via", "fd01::1", "dev", "l3")
	ns.Run("ip", "addr", "add", "10.0.0.3/24", "dev", "l1")
	if got, err := DefaultLink(); got != "l3" || err != nil {
		t.Errorf("IPv6 only: %s, %v", got, err)
	}
	ns.Run("ip", "route", "add", "default", "via", "10.0.0.1", "dev", "l1", "metric", "200")
	if got, err := DefaultLink(); got != "l1" || err != nil {
		t.Errorf("IPv4 first: %s, %v", got, err)
	}
	ns.Run("ip", "addr", "add", "10.1.0.3/24", "dev", "l2")
	ns.Run("ip", "route", "add", "default", "via", "10.1.0.1", "dev", "l2", "metric", "100")
	if got, err := DefaultLink(); got != "l2" || err != nil {
		t.Errorf("least metric: %s, %v", got, err)
	}
	ns.Run("ip", "link", "set", "l2", "down")
	got, err := Addresses()
	if err != nil || !slices.Contains(got["l1"], netip.MustParsePrefix("10.0.0.3/24")) || !slices.Contains(got["l3"], netip.MustParsePrefix("fd01::3/64")) || got["l2"] != nil {
		t.Errorf("addresses are %v, %v", got, err)
	}
}
