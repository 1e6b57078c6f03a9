package route

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

var (
	ip     = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

func list(t *testing.T) string {
	t.Helper()
	have, err := Kernel{}.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hostfake.DumpRoutes(have)
}

// management creates the link and addresses that the routes need.
func management(ns *netnstest.NS) {
	ns.Veth("mp0", "peer")
	ns.Run("ip", "addr", "add", "10.244.1.2/24", "dev", "mp0")
	ns.Run("ip", "addr", "add", "172.18.0.3/16", "dev", "mp0")
	ns.Run("ip", "-6", "addr", "add", "fd00:10:244:2::2/64", "dev", "mp0", "nodad")
}

func wanted() map[host.Route]host.Hop {
	v4, v6 := host.Hop{Via: ip("10.244.1.1")}, host.Hop{Via: ip("fd00:10:244:2::1")}
	return map[host.Route]host.Hop{
		{Dst: prefix("10.244.0.0/16"), Link: "mp0"}:              v4,
		{Dst: prefix("10.96.0.0/16"), Link: "mp0", Table: 254}:   v4,
		{Dst: prefix("169.254.169.3/32"), Link: "mp0"}:           v4,
		{Dst: prefix("fd00:10:244::/48"), Link: "mp0"}:           v6,
		{Dst: prefix("fd69::3/128"), Link: "mp0"}:                v6,
		{Dst: prefix("0.0.0.0/0"), Link: "mp0", Table: 1000}:     {Via: ip("192.0.2.1"), MTU: 1300},
		{Dst: prefix("::/0"), Link: "mp0", Table: 1000}:          {Via: ip("2001:db8::1")},
		{Dst: prefix("0.0.0.0/0"), Table: 1000}:                  {Drop: true},
		{Dst: prefix("::/0"), Table: 1000}:                       {Drop: true},
		{Dst: prefix("192.0.2.0/24"), Link: "mp0", Table: 1000}:  {Src: ip("172.18.0.3")},
		{Dst: prefix("2001:db8::/32"), Link: "mp0", Table: 1000}: {},
		{Dst: prefix("192.0.2.0/24"), Link: "mp0"}:               {Scope: 253},
		{Dst: prefix("2001:db8::/32"), Link: "mp0"}:              {},
		{Dst: prefix("198.18.0.0/15"), Link: "mp0"}:              {Via: ip("fd00:10:244:2::1")},
		{Dst: prefix("198.51.100.7/24"), Link: "mp0"}:            {Via: ip("10.244.1.1")}, // not masked
	}
}

const golden = `10.96.0.0/16 via 10.244.1.1 dev mp0 proto 79
10.244.0.0/16 via 10.244.1.1 dev mp0 proto 79
169.254.169.3 via 10.244.1.1 dev mp0 proto 79
192.0.2.0/24 dev mp0 proto 79
198.18.0.0/15 via fd00:10:244:2::1 dev mp0 proto 79
198.51.100.0/24 via 10.244.1.1 dev mp0 proto 79
blackhole default table 1000 proto 79
default via 192.0.2.1 dev mp0 table 1000 proto 79 mtu 1300
192.0.2.0/24 dev mp0 table 1000 proto 79 src 172.18.0.3
2001:db8::/32 dev mp0 proto 79
fd00:10:244::/48 via fd00:10:244:2::1 dev mp0 proto 79
fd69::3 via fd00:10:244:2::1 dev mp0 proto 79
blackhole default table 1000 proto 79
default via 2001:db8::1 dev mp0 table 1000 proto 79
2001:db8::/32 dev mp0 table 1000 proto 79
`

func TestRoutes(t *testing.T) {
	ns := netnstest.New(t)
	management(ns)
	ns.Run("ip", "route", "add", "203.0.113.0/24", "via", "10.244.1.1")
	ns.Run("ip", "route", "add", "10.77.0.0/16", "via", "10.244.1.9", "protocol", "79") // of an earlier run
	ns.Run("ip", "route", "add", "10.244.0.0/16", "via", "10.244.1.9")                  // of an administrator

	k := &counting{}
	s := host.NewSet("routes", k, equal)
	apply := func(want map[host.Route]host.Hop) {
		t.Helper()
		if err := s.Apply(t.Context(), "a", want); err != nil {
			t.Fatal(err)
		}
	}
	apply(wanted())
	if !strings.Contains(list(t), "10.77.0.0/16") {
		t.Error("a route of an earlier run was deleted before Sweep")
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := list(t); got != golden {
		t.Errorf("routes:\n%s\nwant:\n%s", got, golden)
	}
	k.writes = 0
	apply(wanted())
	if k.writes != 0 {
		t.Errorf("a no-op pass wrote %d times", k.writes)
	}

	// Another gateway for one route, replaced in place.
	changed := wanted()
	changed[host.Route{Dst: prefix("10.244.0.0/16"), Link: "mp0"}] = host.Hop{Via: ip("10.244.1.9"), MTU: 1400}
	apply(changed)
	if got := list(t); !strings.Contains(got, "10.244.0.0/16 via 10.244.1.9 dev mp0 proto 79 mtu 1400\n") || strings.Count(got, "10.244.0.0/16") != 1 {
		t.Errorf("after a change of gateway:\n%s", got)
	}
	apply(wanted())

	// A link that goes down loses its routes, and its IPv6 addresses as well.
	ns.Run("ip", "link", "set", "mp0", "down")
	ns.Run("ip", "link", "set", "mp0", "up")
	ns.Run("ip", "-6", "addr", "replace", "fd00:10:244:2::2/64", "dev", "mp0", "nodad")
	if err := s.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := list(t); got != golden {
		t.Errorf("after the link was down:\n%s\nwant:\n%s", got, golden)
	}

	ns.Run("ip", "link", "del", "mp0")
	apply(nil) // it is not an error if the route has disappeared with its link
	if got := list(t); got != "" {
		t.Errorf("routes left:\n%s", got)
	}
	management(ns)
	apply(wanted())
	apply(nil)
	if got := list(t); got != "" {
		t.Errorf("routes left:\n%s", got)
	}
}

// counting is a Kernel that counts writes.
type counting struct {
	Kernel
	writes int
}

func (c *counting) Add(ctx context.Context, r host.Route, h host.Hop) error {
	c.writes++
	return c.Kernel.Add(ctx, r, h)
}

func (c *counting) Replace(ctx context.Context, r host.Route, old, h host.Hop) error {
	c.writes++
	return c.Kernel.Replace(ctx, r, old, h)
}

func (c *counting) Delete(ctx context.Context, r host.Route, h host.Hop) error {
	c.writes++
	return c.Kernel.Delete(ctx, r, h)
}
