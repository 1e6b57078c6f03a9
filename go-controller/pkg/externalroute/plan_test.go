package externalroute

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func attached(name string, ips ...string) func(*GatewayPod) {
	return func(p *GatewayPod) { p.Networks = []topology.Attachment{{Name: name, Addrs: addrs(ips...)}} }
}

func onHost(ips ...string) func(*GatewayPod) {
	return func(p *GatewayPod) { p.HostNetwork, p.HostAddrs = true, addrs(ips...) }
}

// states are the states of the golden files.
var states = map[string]state{
	"nothing": dual(topology.GatewayLocal),
	"static-shared": dual(topology.GatewayShared,
		policy("p", 1, gws, static("172.18.0.51", bfd), static("172.18.0.52", bfd), static("fc00::51"))),
	"static-local": dual(topology.GatewayLocal,
		policy("p", 1, onlyRed, static("172.18.0.51", bfd), static("172.18.0.52", timers(100, 200, 5)), static("fc00::51"))),
	"skip-snat": dual(topology.GatewayLocal,
		policy("p", 1, onlyRed, static("172.18.0.51", skip), static("172.18.0.52"), static("fc00::51"))),
	"disable-snat": dual(topology.GatewayShared, disableSNAT,
		policy("p", 1, onlyRed, static("172.18.0.51", skip), static("172.18.0.52"))),
	"dynamic": dual(topology.GatewayShared,
		policy("p", 1, onlyRed, dynamic("sriov1", bfd), dynamic("")),
		gateway("attached", attached("gw/sriov1", "172.18.0.61", "fc00::61")),
		gateway("elsewhere", attached("gw/sriov2", "172.18.0.69")),
		gateway("no-address", attached("sriov1")),
		gateway("unparsable", func(p *GatewayPod) { p.NetworksErr = "unexpected end" }),
		gateway("unready", func(p *GatewayPod) { attached("gw/sriov1", "172.18.0.62")(p); p.Ready = false }),
		gateway("of-the-node", onHost("172.18.0.3", "fc00::3"))),
	"annotations": dual(topology.GatewayShared,
		annotated("red", true, "172.18.0.51", "fc00::51"),
		gateway("announced", func(p *GatewayPod) {
			attached("gw/net1", "172.18.0.61")(p)
			p.Routing, p.RoutingNetwork = []string{"red", "blue", "absent"}, "net1"
		})),
	"bad-input": dual(topology.GatewayLocal,
		policy("p", 1, onlyRed, static("172.18.0.51"), static("0.0.0.0"), static("224.0.0.5"), static("::"), static("ff02::1"),
			static("127.0.0.1"), static("fe80::1"), static("10.244.7.7"), static("10.96.0.1"), static("100.64.0.1"), static("255.255.255.255"),
			static("172.18.0.4"), static("no address"), static("172.18.0.51", bfd), dynamic("sriov1")),
		policy("selects-nothing", 2, map[string]string{"color": "green"}, static("172.18.0.51")),
		policy("no-hops", 3, onlyRed)),
	"conflicts": dual(topology.GatewayShared,
		policy("older", 9, onlyRed, static("172.18.0.51", timers(100, 100, 3)), static("172.18.0.52", skip)),
		policy("younger", 1, gws, static("172.18.0.51", timers(500, 500, 3)), static("172.18.0.52", bfd), static("172.18.0.53")),
		annotated("red", true, "172.18.0.51", "172.18.0.53")),
	"disable-snat-rerouted": dual(topology.GatewayLocal, disableSNAT, policy("p", 1, onlyRed, static("172.18.0.51")),
		func(s *state) { s.rerouted = []string{"10.244.0.5", "10.244.0.6"} }),
	"disable-snat-translated": dual(topology.GatewayShared, disableSNAT, policy("p", 1, onlyRed, static("172.18.0.51")), func(s *state) {
		s.rerouted = []string{"10.244.0.5", "10.244.0.6"}
		s.translated = s.rerouted
	}),
	"second-uplink": dual(topology.GatewayShared, secondUplink,
		policy("p", 1, onlyRed, static("172.18.0.51", bfd), static("192.168.50.51", bfd), static("fd00:50::51", skip))),
	"second-uplink-down": dual(topology.GatewayLocal, secondUplink, policy("p", 1, onlyRed, static("192.168.50.51", bfd)),
		func(s *state) { s.watched = true }),
	"second-uplink-of-the-node": dual(topology.GatewayLocal, secondUplink, policy("p", 1, onlyRed, static("192.168.50.3"))),
	"rerouted-shared": dual(topology.GatewayShared, policy("p", 1, onlyRed, static("172.18.0.51")),
		func(s *state) { s.rerouted = []string{"10.244.0.5", "10.244.0.6"} }),
}

func TestGoldens(t *testing.T) {
	for name, s := range states {
		t.Run(name, func(t *testing.T) { golden.Check(t, name, s.text(t)) })
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, s := range states {
		want := s.text(t)
		for range 20 {
			if got := s.shuffled(rng).text(t); got != want {
				t.Fatalf("%s depends on the order of what is read:\n%s\nwas\n%s", name, got, want)
			}
		}
	}
}

// TestPlanIsStable: plans of the same objects are equal, including their
// messages; differences are reported again.
func TestPlanIsStable(t *testing.T) {
	s := dual(topology.GatewayShared, policy("older", 2, nil, static("172.18.0.51")),
		policy("younger", 1, nil, static("172.18.0.52", skip)))
	want := s.decide()
	for range 50 {
		if got := s.decide(); !reflect.DeepEqual(got, want) {
			t.Fatalf("plan\n%+v\nwas\n%+v", got, want)
		}
	}
}

// TestPaths goes through the states in many orders: the final rows are
// those of the last state, and applying a state again writes nothing.
func TestPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	names := slices.Sorted(maps.Keys(states))
	w := nbfake.New()
	w.AnyParent = true
	for range 40 {
		name := names[rng.IntN(len(names))]
		states[name].apply(t, w)
		if n := states[name].apply(t, w); n != 0 {
			t.Fatalf("%s again took %d transactions", name, n)
		}
		fresh := nbfake.New()
		fresh.AnyParent = true
		states[name].apply(t, fresh)
		if got, want := w.Dump(), fresh.Dump(); got != want {
			t.Fatalf("%s after other states:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestMigration moves a namespace from annotations to a policy, with both in between.
func TestMigration(t *testing.T) {
	pod := gateway("announced", func(p *GatewayPod) {
		attached("gw/net1", "172.18.0.61")(p)
		p.Routing, p.RoutingNetwork, p.BFD = []string{"red"}, "net1", true
	})
	notAnnounced := gateway("announced", attached("gw/net1", "172.18.0.61"))
	annotation := annotated("red", true, "172.18.0.51", "fc00::51")
	same := policy("p", 1, onlyRed, static("172.18.0.51", bfd), static("fc00::51", bfd), dynamic("net1", bfd))
	for _, mode := range []topology.GatewayMode{topology.GatewayLocal, topology.GatewayShared} {
		w := nbfake.New()
		w.AnyParent = true
		if n := dual(mode, annotation, pod).apply(t, w); n == 0 {
			t.Fatal("nothing was written")
		}
		for step, s := range []state{dual(mode, annotation, pod, same), dual(mode, notAnnounced, same)} {
			if n := s.apply(t, w); n != 0 {
				t.Errorf("%s: step %d wrote %d transactions", mode, step, n)
			}
		}
	}
}

func TestNodeWithoutGatewayHasNoRows(t *testing.T) {
	s := states["static-local"]
	n := testNode(0, s.mode)
	n.Chassis = ""
	if rows := NodeRows(s.cfg, s.decide(), NodeSnapshot{Node: n, Pods: s.pods}); len(rows) != 0 {
		t.Errorf("rows: %v", rows)
	}
}

func TestTransitionTimes(t *testing.T) {
	plan := states["bad-input"].decide()
	first := Status(plan.Policies["p"], Served{Pods: 1}, v1.AdminPolicyBasedExternalRouteStatus{})
	for i := range first.Conditions {
		if !first.Conditions[i].LastTransitionTime.IsZero() {
			t.Errorf("%s has a time", first.Conditions[i].Type)
		}
		first.Conditions[i].LastTransitionTime.Time = states["conflicts"].policies[0].CreationTimestamp.Time
	}
	again := Status(states["static-shared"].decide().Policies["p"], Served{Pods: 1}, first)
	for i, c := range again.Conditions {
		changed := c.Status != first.Conditions[i].Status
		if c.LastTransitionTime.IsZero() != changed {
			t.Errorf("%s: changed %v, time %v", c.Type, changed, c.LastTransitionTime)
		}
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	var hops []any
	for range 500 {
		hops = append(hops, static("no address"+strings.Repeat("x", len(hops)%7)))
	}
	p := dual(topology.GatewayShared, policy("p", 1, onlyRed, hops...)).decide().Policies["p"]
	for _, c := range Status(p, Served{}, v1.AdminPolicyBasedExternalRouteStatus{}).Conditions {
		if len(c.Message) > conditions.MaxMessage || c.Message == "" {
			t.Errorf("%s: message of %d bytes", c.Type, len(c.Message))
		}
	}
}

func TestStale(t *testing.T) {
	g1, g2, g6 := netip.MustParseAddr("172.18.0.51"), netip.MustParseAddr("172.18.0.52"), netip.MustParseAddr("fc00::51")
	pod := netip.MustParseAddr("10.244.0.5")
	both := map[netip.Addr]string{g1: "m1", g2: "m2", g6: "m6"}
	for _, c := range []struct {
		name        string
		used        []netip.Addr
		now, before map[netip.Addr]string
		stale       string
	}{
		{"all in use", []netip.Addr{g1, g2, g6}, both, both, "m6 m9"},
		{"one left", []netip.Addr{g1}, both, both, "m2 m6 m9"},
		{"none in use", nil, nil, nil, "m1 m2 m6 m9"},
		{"one in use is silent, nothing known", []netip.Addr{g1, g2}, map[netip.Addr]string{g1: "m1"}, nil, ""},
		{"one in use is silent, another left", []netip.Addr{g1}, nil, both, "m2"},
		{"after a restart", []netip.Addr{g1}, map[netip.Addr]string{g1: "m1"}, nil, "m2 m6 m9"},
		{"the one in use got another address", []netip.Addr{g1}, map[netip.Addr]string{g1: "m9"}, both, "m1 m2 m6"},
		{"two addresses of one machine", []netip.Addr{g1}, map[netip.Addr]string{g1: "m1"}, map[netip.Addr]string{g2: "m1"}, "m2 m6 m9"},
	} {
		stale := Stale(pod, c.used, Neighbors{Now: c.now, Before: c.before})
		var got []string
		for _, mac := range []string{"m1", "m2", "m6", "m9"} {
			if stale(mac) {
				got = append(got, mac)
			}
		}
		if text := strings.Join(got, " "); text != c.stale {
			t.Errorf("%s: stale %q, want %q", c.name, text, c.stale)
		}
	}
}
