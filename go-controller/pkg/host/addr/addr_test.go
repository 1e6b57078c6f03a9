package addr

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

func address(link, p string) host.Address {
	return host.Address{Link: link, Prefix: netip.MustParsePrefix(p)}
}

func TestAddresses(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("mp0", "peer")
	ns.Veth("eth1", "wire")
	ns.Run("ip", "addr", "add", "192.0.2.10/24", "dev", "eth1") // the host's
	ns.Run("ip", "addr", "add", "2001:db8::10/64", "dev", "eth1", "nodad")
	ns.Run("ip", "addr", "add", "2001:db8::50/128", "dev", "eth1") // as an earlier version added it
	ns.Run("ip", "addr", "add", "192.0.2.99/32", "dev", "eth1")    // recorded by an earlier run
	ns.Run("ip", "addr", "add", "10.244.9.2/24", "dev", "mp0")     // from an earlier subnet
	ns.Run("ip", "addr", "add", "fd00:9::2/64", "dev", "mp0")

	recorded := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.99"),
		netip.MustParseAddr("192.0.2.50"), netip.MustParseAddr("2001:db8::50")}
	k := New(func() []netip.Addr { return recorded }, "mp0")
	s := NewSet(k)
	want := map[host.Address]host.AddressUse{
		address("mp0", "10.244.1.2/24"):       {},
		address("mp0", "fd00:10:244:2::2/64"): {},
		address("eth1", "192.0.2.50/32"):      {NotPreferred: true},
		address("eth1", "2001:db8::50/128"):   {NotPreferred: true},
	}
	if err := s.Apply(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	have, err := k.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const golden = `eth1 192.0.2.50/32 deprecated
eth1 2001:db8::50/128 deprecated
mp0 10.244.1.2/24
mp0 fd00:10:244:2::2/64
`
	if got := hostfake.DumpAddresses(have); got != golden {
		t.Errorf("addresses:\n%s\nwant:\n%s", got, golden)
	}
	if got := ns.Run("ip", "-o", "addr", "show", "dev", "eth1", "to", "192.0.2.10"); got == "" {
		t.Error("the host's own address is gone")
	}
	if got := ns.Run("ip", "-6", "addr", "show", "tentative", "scope", "global"); got != "" {
		t.Errorf("addresses that cannot be used yet:\n%s", got)
	}
	for to, want := range map[string]string{"192.0.2.1": "src 192.0.2.10", "2001:db8::1": "src 2001:db8::10"} {
		if got := ns.Run("ip", "route", "get", to); !strings.Contains(got, want+" ") {
			t.Errorf("the host chooses another source than its own: %s", got)
		}
	}
	if got := ns.Run("ip", "-6", "addr", "show", "dev", "mp0", "scope", "link"); got == "" {
		t.Error("the link-local address is gone")
	}

	ns.Run("ip", "addr", "flush", "dev", "mp0")
	ns.Run("ip", "addr", "add", "10.7.7.7/24", "dev", "mp0")
	if err := s.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have, err = k.List(t.Context()); err != nil || hostfake.DumpAddresses(have) != golden {
		t.Errorf("after drift:\n%s (%v)", hostfake.DumpAddresses(have), err)
	}
	ns.Run("ip", "link", "del", "mp0")
	if err := s.Apply(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if have, err = k.List(t.Context()); err != nil || len(have) != 0 {
		t.Errorf("left: %v (%v)", have, err)
	}
}

// TestUseChangedByOthers: an address that others have made a preferred source, or the other way round, is put right
// without being removed for a moment: what depends on it stays.
func TestUseChangedByOthers(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth1", "wire")
	ns.Run("ip", "addr", "add", "192.0.2.10/24", "dev", "eth1")
	ns.Run("ip", "addr", "add", "2001:db8::10/64", "dev", "eth1", "nodad")
	k := New(func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("192.0.2.50"), netip.MustParseAddr("2001:db8::50")}
	})
	s := NewSet(k)
	for _, notPreferred := range []bool{true, false} {
		want, preferred := map[host.Address]host.AddressUse{}, "0"
		for _, p := range []string{"192.0.2.50/32", "2001:db8::50/128"} {
			want[address("eth1", p)] = host.AddressUse{NotPreferred: notPreferred}
		}
		if notPreferred {
			preferred = "forever"
		}
		if err := s.Apply(t.Context(), "a", want); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ family, addr, to string }{
			{"-4", "192.0.2.50/32", "198.51.100.0/24"}, {"-6", "2001:db8::50/128", "2001:db8:1::/64"},
		} {
			ns.Run("ip", c.family, "addr", "change", c.addr, "dev", "eth1", "valid_lft", "forever", "preferred_lft", preferred)
			ns.Run("ip", c.family, "route", "replace", c.to, "dev", "eth1", "src", strings.Split(c.addr, "/")[0])
		}
		if err := s.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if have, err := k.List(t.Context()); err != nil || !maps.Equal(have, want) {
			t.Errorf("the addresses are %v, %v, want %v", have, err, want)
		}
		for family, to := range map[string]string{"-4": "198.51.100.0/24", "-6": "2001:db8:1::/64"} {
			if got := ns.Run("ip", family, "route", "show", to); !strings.Contains(got, " src ") {
				t.Errorf("the route to %s that depends on the address is %q", to, got)
			}
		}
	}
}
