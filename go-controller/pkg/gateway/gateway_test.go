package gateway

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// parse parses an attachment, with one address ("172.18.0.3/16") or route ("default4
// via 172.18.0.1 metric 100") per item.
func parse(t *testing.T, items ...string) host.Attachment {
	t.Helper()
	var a host.Attachment
	for _, item := range items {
		w := strings.Fields(strings.NewReplacer("default4", "0.0.0.0/0", "default6", "::/0").Replace(item))
		p, err := netip.ParsePrefix(w[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(w) == 1 {
			a.Addrs = append(a.Addrs, host.LinkAddress{Prefix: p})
			continue
		}
		r := host.LinkRoute{Dst: p, Table: topology.MainTable}
		for i := 1; i+1 < len(w); i += 2 {
			switch w[i] {
			case "src":
				r.Src = netip.MustParseAddr(w[i+1])
			case "via":
				r.Via = netip.MustParseAddr(w[i+1])
			case "hop":
				r.Hops = append(r.Hops, host.LinkHop{Via: netip.MustParseAddr(w[i+1])})
			case "metric":
				_, err = fmt.Sscan(w[i+1], &r.Metric)
			case "table":
				_, err = fmt.Sscan(w[i+1], &r.Table)
			default:
				err = fmt.Errorf("unknown word %q", w[i])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		a.Routes = append(a.Routes, r)
	}
	return a
}

func TestTakeOver(t *testing.T) {
	for _, c := range []struct {
		name          string
		from, to, rec []string
		lost          bool
		want          []string
	}{
		{name: "first start", from: []string{"10.0.0.3/24", "default4 via 10.0.0.1", "fc00::3/64"}, lost: true,
			want: []string{"10.0.0.3/24", "default4 via 10.0.0.1", "fc00::3/64"}},
		{name: "restart", to: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}, rec: []string{"10.0.0.3/24", "default4 via 10.0.0.1"},
			want: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}},
		{name: "the administrator took an address away", to: []string{"10.0.0.3/24"}, rec: []string{"10.0.0.3/24", "10.0.0.4/24", "default4 via 10.0.0.1"},
			want: []string{"10.0.0.3/24"}},
		{name: "and added one", to: []string{"10.0.0.3/24", "10.0.0.9/24"}, rec: []string{"10.0.0.3/24"},
			want: []string{"10.0.0.3/24", "10.0.0.9/24"}},
		{name: "half moved", from: []string{"10.0.0.4/24"}, to: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}, rec: []string{"10.0.0.3/24", "10.0.0.4/24"},
			want: []string{"10.0.0.4/24", "10.0.0.3/24", "default4 via 10.0.0.1"}},
		{name: "reboot with other addresses", from: []string{"10.0.0.7/24", "default4 via 10.0.0.2"}, rec: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}, lost: true,
			want: []string{"10.0.0.7/24", "default4 via 10.0.0.2"}},
		{name: "reboot without", rec: []string{"10.0.0.3/24", "default4 via 10.0.0.1", "fc00::3/64"}, lost: true,
			want: []string{"10.0.0.3/24", "default4 via 10.0.0.1", "fc00::3/64"}},
		{name: "one family lost", to: []string{"10.0.0.3/24"}, rec: []string{"10.0.0.3/24", "fc00::3/64", "default6 via fc00::1"},
			want: []string{"10.0.0.3/24", "fc00::3/64", "default6 via fc00::1"}},
		{name: "routes lost when it was down", to: []string{"10.0.0.3/24"}, rec: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}, lost: true,
			want: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}},
		{name: "a route in another table is another route", from: []string{"10.0.0.3/24", "default4 via 10.0.0.1"}, to: []string{"default4 via 10.0.0.2 table 7", "default4 via 10.0.0.9"},
			want: []string{"10.0.0.3/24", "default4 via 10.0.0.1", "default4 via 10.0.0.2 table 7"}},
		{name: "routes on link come first", from: []string{"10.0.0.3/32", "default4 via 10.9.0.1", "10.9.0.1/32 table 254"},
			want: []string{"10.0.0.3/32", "10.9.0.1/32 table 254", "default4 via 10.9.0.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := TakeOver(parse(t, c.from...), parse(t, c.to...), parse(t, c.rec...), c.lost)
			if want := parse(t, c.want...); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			// Taking over again changes nothing.
			if again := TakeOver(host.Attachment{}, got, got, false); !reflect.DeepEqual(again, got) {
				t.Errorf("the next pass changes it to %+v", again)
			}
		})
	}
}

// TestVirtualAddress: the record follows an address that somebody adds to the bridge beside the one with its network, such
// as VRRP does, but it is not restored: when the bridge has lost it, another host may have it.
func TestVirtualAddress(t *testing.T) {
	host4, host6 := []string{"10.0.0.3/24", "10.0.0.5/32", "default4 via 10.0.0.1"}, []string{"fc00::3/64"}
	own := parse(t, append(host4, host6...)...)
	rec := TakeOver(own, host.Attachment{}, host.Attachment{}, true)
	now := parse(t, slices.Concat(host4, host6, []string{"10.0.0.9/32", "fc00::9/128", "192.0.2.7/32"})...)
	with := TakeOver(host.Attachment{}, now, rec, false)
	if len(with.Addrs) != len(now.Addrs) {
		t.Errorf("with it the bridge is to have %+v", with.Addrs)
	}
	if again := TakeOver(host.Attachment{}, now, with, false); !reflect.DeepEqual(again, with) {
		t.Errorf("the next pass changes it to %+v", again)
	}
	// The one outside the host's networks did not come from such a protocol.
	want := parse(t, slices.Concat(host4, host6, []string{"192.0.2.7/32"})...)
	got := TakeOver(host.Attachment{}, host.Attachment{}, with, true)
	if missing, more := Without(want, got), Without(got, want); len(missing.Addrs)+len(missing.Routes)+len(more.Addrs)+len(more.Routes) > 0 {
		t.Errorf("after the loss it lacks %+v and has %+v in addition", missing, more)
	}
	if got := TakeOver(host.Attachment{}, now, with, true); !reflect.DeepEqual(got, with) {
		t.Errorf("of what is still there it takes %+v", got)
	}
	// A bridge that was down keeps its IPv4 addresses, not its routes.
	vip := parse(t, append(host4[:2:2], "10.0.0.9/32", "default4 via 10.0.0.1 src 10.0.0.9")...)
	held := TakeOver(host.Attachment{}, vip, parse(t, host4...), false)
	for what, c := range map[string][2][]string{
		"that is still there": {{"10.0.0.3/24", "10.0.0.5/32", "10.0.0.9/32"}, {"10.0.0.3/24", "10.0.0.5/32", "10.0.0.9/32", "default4 via 10.0.0.1 src 10.0.0.9"}},
		"that is gone":        {nil, {"10.0.0.3/24", "10.0.0.5/32", "default4 via 10.0.0.1"}},
	} {
		got, want := TakeOver(host.Attachment{}, parse(t, c[0]...), held, true), parse(t, c[1]...)
		if missing, more := Without(want, got), Without(got, want); len(missing.Addrs)+len(missing.Routes)+len(more.Addrs)+len(more.Routes) > 0 {
			t.Errorf("with a route from an address %s it lacks %+v and has %+v in addition", what, missing, more)
		}
	}
	// An address that a client leases on the bridge is the host's.
	lease := parse(t, append(host4, "10.0.0.7/32")...)
	lease.Addrs[2].Leased = true
	if got := TakeOver(host.Attachment{}, lease, parse(t, host4...), false); got.Addrs[2].Virtual {
		t.Errorf("leased is %+v", got.Addrs[2])
	}
	if got := TakeOver(host.Attachment{}, own, with, false); !reflect.DeepEqual(got, rec) {
		t.Errorf("without it the bridge is to have %+v", got)
	}
}

// TestWithout: parts that already exist need not be added, even if they are deleted
// in the next moment.
func TestWithout(t *testing.T) {
	all := parse(t, "10.0.0.3/24", "fc00::3/64", "default4 via 10.0.0.1", "default6 via fc00::1", "default4 via 10.0.0.2 table 7")
	for _, c := range []struct{ there, want []string }{
		{want: []string{"10.0.0.3/24", "fc00::3/64", "default4 via 10.0.0.1", "default6 via fc00::1", "default4 via 10.0.0.2 table 7"}},
		{there: []string{"10.0.0.3/24", "default4 via 10.0.0.2 table 7", "default4 via 10.0.0.9"},
			want: []string{"fc00::3/64", "default4 via 10.0.0.1", "default6 via fc00::1"}},
	} {
		if got, want := Without(all, parse(t, c.there...)), parse(t, c.want...); !reflect.DeepEqual(got, want) {
			t.Errorf("without %v: %+v\nwant %+v", c.there, got, want)
		}
	}
	if rest := Without(all, all); len(rest.Addrs)+len(rest.Routes) > 0 {
		t.Errorf("without itself: %+v", rest)
	}
}

func TestRecord(t *testing.T) {
	r := Record{Uplink: "eth0", Created: true, Link: 5, Host: parse(t, "10.0.0.3/24", "fc00::3/64", "default4 via 10.0.0.1 metric 100", "default6 hop fc00::1 hop fc00::2")}
	if got, err := ParseRecord(r.String()); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("reads back as %+v, %v", got, err)
	}
	if got, err := ParseRecord(""); err != nil || !reflect.DeepEqual(got, Record{}) {
		t.Errorf("nothing reads as %+v, %v", got, err)
	}
	if _, err := ParseRecord("{"); err == nil {
		t.Error("half a record is accepted")
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(Record{Uplink: "eth0"}.String())
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecord(text)
		if err != nil {
			return
		}
		if again, err := ParseRecord(r.String()); err != nil || again.String() != r.String() {
			t.Errorf("%q reads back as %v, %v", text, again, err)
		}
	})
}

func TestPrimary(t *testing.T) {
	a := parse(t, "10.0.0.100/32", "10.0.0.3/24", "10.0.0.4/24", "fc00::4/64", "fc00::3/64")
	for _, c := range []struct {
		families []topology.Family
		internal []netip.Addr
		want     []netip.Prefix
	}{
		{topology.Families, nil, prefixes("10.0.0.3/24", "fc00::4/64")},
		{topology.Families, addrs("10.0.0.4", "fc00::3"), prefixes("10.0.0.4/24", "fc00::3/64")},
		{topology.Families, addrs("10.0.0.100"), prefixes("10.0.0.100/32", "fc00::4/64")},
		{topology.Families[:1], nil, prefixes("10.0.0.3/24")},
		{topology.Families, addrs("192.0.2.1"), prefixes("10.0.0.3/24", "fc00::4/64")},
	} {
		if got := Primary(a, c.families, c.internal); !slices.Equal(got, c.want) {
			t.Errorf("%v %v: got %v, want %v", c.families, c.internal, got, c.want)
		}
	}
	if got := Primary(parse(t, "10.0.0.3/24"), topology.Families, nil); len(got) != 1 {
		t.Errorf("a family without address: got %v", got)
	}
}

func TestNextHops(t *testing.T) {
	a := parse(t, "default4 via 10.0.0.9 metric 200", "default4 via 10.0.0.1 metric 100", "default4 via 10.0.0.7 table 7", "default6 hop fc00::1 hop fc00::2")
	for _, c := range []struct {
		families   []topology.Family
		configured []netip.Addr
		want       []netip.Addr
	}{
		{topology.Families, nil, addrs("10.0.0.1", "fc00::1", "fc00::2")},
		{topology.Families, addrs("10.0.0.5"), addrs("10.0.0.5", "fc00::1", "fc00::2")},
		{topology.Families[1:], addrs("10.0.0.5"), addrs("fc00::1", "fc00::2")},
	} {
		if got := NextHops(a, c.families, c.configured); !slices.Equal(got, c.want) {
			t.Errorf("%v %v: got %v, want %v", c.families, c.configured, got, c.want)
		}
	}
	if got := NextHops(parse(t, "default4 via fe80::1"), topology.Families, nil); len(got) != 0 {
		t.Errorf("IPv4 by an IPv6 gateway: %v", got)
	}
	if got := NextHops(host.Attachment{}, topology.Families, nil); len(got) != 0 {
		t.Errorf("without a default route: %v", got)
	}
}

// TestHost prints the complete state of a node's host, like iptables-save and ip.
func TestHost(t *testing.T) {
	subnets := prefixes("10.244.1.0/24", "fd00:10:244:2::/64")
	egress := host.Chain{ChainKey: host.ChainKey{Family: topology.IPv4, Table: "nat", Name: "OVN-KUBE-EGRESS-SVC"},
		Jumps: []host.Jump{{From: "POSTROUTING"}}, Position: 10}
	chains := hostfake.NewChains(append(Chains(topology.Families), egress))
	if err := chains.Apply(t.Context(), Contributor, Rules(subnets)); err != nil {
		t.Fatal(err)
	}
	routes := Routes(subnets, prefixes("10.244.0.0/16", "fd00:10:244::/48"), prefixes("10.96.0.0/16", "fd00:10:96::/112"),
		prefixes("169.254.169.0/29", "fd69::/125"))
	golden.Check(t, "host", chains.Dump(topology.IPv4)+chains.Dump(topology.IPv6)+hostfake.DumpRoutes(routes))
	if got, want := ManagementPort(subnets, 1400), (Management{MAC: "0a:58:0a:f4:01:02", MTU: 1400, Addrs: prefixes("10.244.1.2/24", "fd00:10:244:2::2/64")}); !reflect.DeepEqual(got, want) {
		t.Errorf("management port %+v, want %+v", got, want)
	}
	only4 := Routes(subnets[:1], prefixes("10.244.0.0/16", "fd00:10:244::/48"), nil, nil)
	if len(only4) != 1 {
		t.Errorf("a node without IPv6 gets %v", only4)
	}
}

func TestUplinkMTU(t *testing.T) {
	if a, b := UplinkMTU(1400, topology.IPv4), UplinkMTU(1400, topology.IPv6); a != 1458 || b != 1478 {
		t.Errorf("pods of 1400 need %d and %d", a, b)
	}
}

func TestHostAddresses(t *testing.T) {
	got := HostAddresses(map[string][]netip.Prefix{
		"lo":          prefixes("127.0.0.1/8", "192.0.2.9/32"),
		"breth0":      prefixes("172.18.0.3/16", "fe80::1/64", "fc00::3/64"),
		"ovn-k8s-mp0": prefixes("10.244.1.2/24"),
		"eth1":        prefixes("10.1.0.3/24", "169.254.169.2/29", "10.1.0.3/24"),
		"br-int":      prefixes("10.7.0.1/24"),
	}, prefixes("169.254.169.0/29"))
	if want := prefixes("10.1.0.3/24", "172.18.0.3/16", "fc00::3/64"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := HostAddresses(nil, nil); got == nil || len(got) != 0 {
		t.Errorf("nothing gives %#v", got)
	}
}

// TestMergeMappings: what others have mapped comes from both values, and of one network from the first.
func TestMergeMappings(t *testing.T) {
	for _, c := range []struct{ have, other, want string }{
		{"", "", ""},
		{"", "physnet:breth0,foo:br-foo", "physnet:breth0,foo:br-foo"},
		{"foo:br-foo", "", "foo:br-foo"},
		{"foo:br-1", "bar:br-bar,foo:br-2,", "foo:br-1,bar:br-bar"},
	} {
		if got := MergeMappings(c.have, c.other); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.have, c.other, got, c.want)
		}
	}
}

func TestBridgeMappings(t *testing.T) {
	one := map[string]string{topology.PhysicalNetwork: "breth0"}
	two := map[string]string{topology.PhysicalNetwork: "breth0", topology.ExternalGatewayNetwork: "breth1"}
	for _, c := range []struct{ have, one, two, none, second string }{
		{"", "physnet:breth0", "physnet:breth0,exgatewayphysnet:breth1", "", ""},
		{"physnet:breth0", "physnet:breth0", "physnet:breth0,exgatewayphysnet:breth1", "", ""},
		{"physnet:old,dc:br1", "physnet:breth0,dc:br1", "physnet:breth0,exgatewayphysnet:breth1,dc:br1", "dc:br1", ""},
		{"dc:br1,exgatewayphysnet:br9,other:br2", "physnet:breth0,dc:br1,other:br2",
			"physnet:breth0,exgatewayphysnet:breth1,dc:br1,other:br2", "dc:br1,other:br2", "br9"},
	} {
		for _, want := range []struct {
			bridges map[string]string
			text    string
		}{{one, c.one}, {two, c.two}, {nil, c.none}} {
			if got := BridgeMappings(c.have, want.bridges); got != want.text {
				t.Errorf("%q with %v: %q, want %q", c.have, want.bridges, got, want.text)
			}
		}
		if got := MappedBridge(c.have, topology.ExternalGatewayNetwork); got != c.second {
			t.Errorf("%q maps the network of external gateways to %q, want %q", c.have, got, c.second)
		}
	}
}

// TestMemoryOfTwoBridges stores each bridge under its network, and still reads the format for
// a single bridge.
func TestMemoryOfTwoBridges(t *testing.T) {
	m, err := ParseMemory([]byte(`{"node":"n","bridge":"breth0","record":{"uplink":"eth0","host":{}}}`))
	if err != nil || m.Of(topology.PhysicalNetwork).Bridge != "breth0" || m.Of(topology.ExternalGatewayNetwork).Bridge != "" || len(m.Bridges()) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	second := Remembered{Bridge: "breth1", Record: Record{Uplink: "eth1"}.For(topology.ExternalGatewayNetwork)}
	m.Keep(topology.ExternalGatewayNetwork, second)
	again, err := ParseMemory(m.Encode())
	if err != nil || again.Of(topology.PhysicalNetwork).Record.Uplink != "eth0" || again.Of(topology.ExternalGatewayNetwork).Record.Uplink != "eth1" {
		t.Fatalf("%s: %+v, %v", m.Encode(), again, err)
	}
	for _, r := range again.Bridges() {
		if ordinary := r.Record.On(topology.PhysicalNetwork); ordinary != (r.Bridge == "breth0") {
			t.Errorf("%+v is ordinary: %v", r, ordinary)
		}
	}
	m.Keep(topology.ExternalGatewayNetwork, Remembered{})
	if len(m.Bridges()) != 1 {
		t.Errorf("%s", m.Encode())
	}
}

func TestZones(t *testing.T) {
	ids := ZoneIDs("681dfdf1_snat 1\ndefault_pod 7\n681dfdf1_dnat 3\n\nodd\n")
	want := map[string]string{"ct-zone-681dfdf1_snat": "1", "ct-zone-default_pod": "7", "ct-zone-681dfdf1_dnat": "3"}
	if !maps.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if LacksZones(ids) {
		t.Error("zones of a router are not seen")
	}
	for _, ids := range []map[string]string{nil, {"ovn-nb-cfg": "3"}, {"ct-zone-default_pod": "7", "other_dnat": "1"}} {
		if !LacksZones(ids) {
			t.Errorf("%v has zones of a router", ids)
		}
	}
}
