package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const base = "base"

var at = Attachment{
	Bridge: "breth0", Uplink: "eth0", Patch: "patch", Facts: bridge.Bridge{MAC: "02:00:00:00:00:01", EncapPort: 6081},
}

var (
	baseFlows    = []host.Flow{"table=0,priority=9,in_port=PATCH,actions=output:PHYS"}
	serviceFlows = []host.Flow{"table=0,priority=110,in_port=PHYS,tcp,nw_dst=5.5.5.5,tp_dst=80,actions=output:PATCH"}
)

// fakeWriter is a hostfake.Flows with the interface of the driver.
type fakeWriter struct{ *hostfake.Flows }

func (fakeWriter) Run(context.Context) {}

func (w fakeWriter) Settle(context.Context) error { return nil }

func (w fakeWriter) Blank(context.Context) (bool, error) { return w.Dump() == "", nil }

func (fakeWriter) Packets(context.Context) (map[host.FlowLevel]uint64, error) { return nil, nil }

// fixture is a Manager over fakes.
type fixture struct {
	t     *testing.T
	db    *hostfake.OVS
	flows *hostfake.Flows
	m     *Manager
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, db: hostfake.NewOVS(nil), flows: hostfake.NewFlows()}
	f.must(f.db.EnsureBridge(context.Background(), ovs.Bridge{Name: "breth0"}))
	f.m = New([]string{base}, f.db, func(string) Writer { return fakeWriter{f.flows} })
	return f
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) port(name string, number int) {
	f.t.Helper()
	f.db.Put(ovs.Port{Bridge: "breth0", Name: name, OFPort: number})
}

func (f *fixture) has(want ...string) {
	f.t.Helper()
	got := f.flows.Dump()
	for _, w := range want {
		if rest, not := strings.CutPrefix(w, "!"); not {
			if strings.Contains(got, rest) {
				f.t.Errorf("has %q:\n%s", rest, got)
			}
		} else if !strings.Contains(got, w) {
			f.t.Errorf("lacks %q:\n%s", w, got)
		}
	}
}

// asking records at each write whether the manager reports that the flows are installed.
type asking struct {
	fakeWriter
	f      *fixture
	synced []bool
}

func (w *asking) Apply(ctx context.Context, owner string, flows []host.Flow) error {
	w.synced = append(w.synced, w.f.m.Synced())
	return w.fakeWriter.Apply(ctx, owner, flows)
}

// TestSyncedWhileWriting: Synced stays true while more flows are written; otherwise anybody who
// adds flows would hold up all others.
func TestSyncedWhileWriting(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	w := &asking{fakeWriter: fakeWriter{f.flows}, f: f}
	f.m = New([]string{base}, f.db, func(string) Writer { return w })
	f.port("eth0", 1)
	f.port("patch", 2)
	f.must(f.m.Attach(ctx, at))
	f.must(f.m.Apply(ctx, base, baseFlows))
	f.must(f.m.Apply(ctx, "services", serviceFlows))
	if want := []bool{false, false, true}; !slices.Equal(w.synced, want) || !f.m.Synced() {
		t.Errorf("installed before each write: %v, want %v; in the end: %v", w.synced, want, f.m.Synced())
	}
}

// TestPhases goes from no bridge to complete flows, and contributes before that can have an effect.
func TestPhases(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	f.must(f.m.Apply(ctx, "services", serviceFlows))
	f.has("!priority")
	f.must(f.m.Attach(ctx, at))
	f.has("priority=0,actions=NORMAL", "!priority=10", "!priority=110")
	f.port("eth0", 1)
	f.must(f.m.Attach(ctx, at))
	f.has("in_port=1,dl_dst=02:00:00:00:00:01,actions=output:LOCAL", "!priority=110")
	f.must(f.m.Apply(ctx, base, baseFlows))
	f.has("in_port=LOCAL,actions=output:1", "!in_port=PATCH", "!priority=110")
	if f.m.Synced() {
		t.Error("complete without a patch port")
	}
	f.port("patch", 2)
	f.must(f.m.Attach(ctx, at))
	f.has("in_port=2,actions=output:1", "in_port=1,tcp,nw_dst=5.5.5.5,tp_dst=80,actions=output:2", "!in_port=LOCAL")
	if !f.m.Synced() {
		t.Error("not complete")
	}
	f.must(f.m.Sweep(ctx))
	if !f.flows.Swept() {
		t.Error("the driver has not swept")
	}
	f.port("patch", 7)
	f.must(f.m.Attach(ctx, at))
	f.has("in_port=7,actions=output:1", "actions=output:7", "!in_port=2", "!output:2")
	f.must(f.m.Apply(ctx, "services", nil))
	f.has("in_port=7", "!priority=110")
}

// TestRestart leaves the flows of an earlier run alone until all required contributors have
// contributed, even if they want nothing.
func TestRestart(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	f.m.required = []string{base, "gates"}
	f.must(f.flows.Apply(ctx, "an earlier run", []host.Flow{"table=0,priority=77,actions=drop"}))
	before := f.flows.Writes()
	f.port("eth0", 1)
	f.port("patch", 2)
	f.must(f.m.Attach(ctx, at))
	f.must(f.m.Apply(ctx, "services", serviceFlows))
	f.must(f.m.Apply(ctx, base, baseFlows))
	if got := f.flows.Writes() - before; got != 0 || f.m.Synced() || !strings.HasPrefix(f.m.Missing(), "gates to say") {
		t.Errorf("%d writes, complete: %v, missing: %q", got, f.m.Synced(), f.m.Missing())
	}
	complete := 0
	f.m.OnComplete(func() { complete++ })
	f.must(f.m.Apply(ctx, "gates", nil))
	f.has("priority=110", "priority=9")
	if complete != 1 {
		t.Errorf("told %d times that the flows are complete, want once", complete)
	}
	if !f.m.Synced() || f.m.Missing() != "" {
		t.Errorf("not complete though all have spoken: %s", f.m.Missing())
	}
	before = f.flows.Writes()
	f.must(f.m.Attach(ctx, at))
	f.must(f.m.Apply(ctx, base, baseFlows))
	if got := f.flows.Writes() - before; got != 0 {
		t.Errorf("%d writes where nothing differs", got)
	}
}

// TestBoot keeps the gateway router, whose port exists before the manager starts, silent until all
// required contributors have contributed.
func TestBoot(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	f.m.required = []string{base, "gates"}
	f.port("eth0", 1)
	f.port("patch", 2)
	f.must(f.m.Attach(ctx, at))
	f.has("in_port=2,actions=drop")
	f.must(f.m.Apply(ctx, base, baseFlows))
	f.has("in_port=2,actions=drop", "!priority=9,")
	f.must(f.m.Apply(ctx, "gates", nil))
	f.has("priority=9,in_port=2", "!in_port=2,actions=drop")
}

// TestChange: if single flows change, the driver is given only these, unless it does not know the
// rest yet; flows that another contributor also wants stay.
func TestChange(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	f.port("eth0", 1)
	f.port("patch", 2)
	f.must(f.m.Apply(ctx, base, baseFlows))
	f.must(f.m.Change(ctx, "gates", nil, []host.Flow{"table=0,priority=150,in_port=PHYS,arp,arp_tpa=1.1.1.1,actions=drop"}))
	f.must(f.m.Attach(ctx, at))
	f.has("in_port=1,arp,arp_tpa=1.1.1.1", "in_port=2,actions=output:1")
	if got := f.flows.Changed(); got != 0 {
		t.Errorf("%d flows changed at first", got)
	}
	shared := host.Flow("table=0,priority=7,in_port=PATCH,actions=drop")
	f.must(f.m.Change(ctx, "gates", []host.Flow{"table=0,priority=150,in_port=PHYS,arp,arp_tpa=1.1.1.1,actions=drop"},
		[]host.Flow{"table=0,priority=150,in_port=PHYS,arp,arp_tpa=2.2.2.2,actions=drop", shared}))
	f.has("!1.1.1.1", "in_port=1,arp,arp_tpa=2.2.2.2", "priority=7,in_port=2")
	if got := f.flows.Changed(); got != 3 || !f.m.Synced() {
		t.Errorf("%d flows changed, want 3; complete: %v", got, f.m.Synced())
	}
	f.must(f.m.Change(ctx, "services", nil, []host.Flow{shared}))
	f.must(f.m.Change(ctx, "gates", []host.Flow{shared}, nil))
	f.has("priority=7,in_port=2")
	f.flows.Fail = func(string) error { return errors.New("busy") }
	if err := f.m.Change(ctx, "gates", nil, []host.Flow{"table=0,priority=8,in_port=PATCH,actions=drop"}); err == nil || f.m.Synced() {
		t.Errorf("%v; complete: %v", err, f.m.Synced())
	}
	f.flows.Fail = nil
	f.must(f.m.Resync(ctx))
	f.has("priority=7,in_port=2", "priority=8,in_port=2", "2.2.2.2")
	f.port("patch", 7)
	f.must(f.m.Resync(ctx))
	f.has("priority=7,in_port=7", "priority=8,in_port=7", "!in_port=2")
}

// TestPatchPortAway keeps the flows while the port to OVN is recreated.
func TestPatchPortAway(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	f.port("eth0", 1)
	f.port("patch", 2)
	f.must(f.m.Apply(ctx, base, baseFlows))
	f.must(f.m.Attach(ctx, at))
	f.must(f.db.DeletePort(ctx, "breth0", "patch"))
	f.must(f.m.Attach(ctx, at))
	f.has("in_port=2,actions=output:1")
}

type brokenWriter struct{ fakeWriter }

var errBroken = errors.New("no connection")

func (brokenWriter) Apply(context.Context, string, []host.Flow) error { return errBroken }

func TestFailure(t *testing.T) {
	f := newFixture(t)
	f.port("eth0", 1)
	f.port("patch", 2)
	f.m.open = func(string) Writer { return brokenWriter{fakeWriter{f.flows}} }
	f.must(f.m.Apply(context.Background(), base, baseFlows))
	if err := f.m.Attach(context.Background(), at); !errors.Is(err, errBroken) {
		t.Errorf("Attach: %v", err)
	}
	if f.m.Synced() {
		t.Error("complete, though nothing was written")
	}
}

// numbered waits until a bridge and the numbers of its ports are known: flows that need them are
// written then, not by earlier calls.
func numbered(t *testing.T, db *ovs.DB, bridge string, ports ...string) {
	t.Helper()
	eventually.True(t, "the ports of "+bridge+" to be seen", func() bool {
		all, err := db.Ports(t.Context(), bridge)
		return err == nil && !slices.ContainsFunc(ports, func(name string) bool {
			return !slices.ContainsFunc(all, func(p ovs.Port) bool { return p.Name == name && p.OFPort > 0 })
		})
	})
}

// TestRealBridge uses a real bridge: all flows are accepted, and foreign edits, restarts of
// ovs-vswitchd and changed port numbers are repaired.
func TestRealBridge(t *testing.T) {
	ns := netnstest.New(t)
	vs := ns.OVS()
	ctx, cancel := context.WithCancel(context.Background())
	db := ovs.New(ctx, vs.Endpoint())
	ns.Veth("eth0", "far0")
	vs.Run("ovs-vsctl", "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev",
		"--", "add-port", "breth0", "eth0", "--", "add-port", "breth0", "patch", "--", "set", "interface", "patch", "type=patch", "options:peer=other",
		"--", "add-port", "breth0", "other", "--", "set", "interface", "other", "type=patch", "options:peer=patch")
	numbered(t, db, "breth0", "eth0", "patch")
	m := New([]string{base}, db, func(name string) Writer { return openflow.New(name, vs.Dir) })
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	var all []host.Flow
	for _, vlan := range []int{7, 0} {
		at := at
		at.Facts.VLAN = vlan
		all = bridge.CommonFlows(at.Facts)
		for _, f := range families {
			all = append(all, bridge.Flows(at.Facts, f, bridge.DefaultMarks(64000))...)
		}
		if err := errors.Join(m.Apply(ctx, base, all), m.Attach(ctx, at), m.Sweep(ctx)); err != nil {
			t.Fatal(err)
		}
		if got := len(vs.Flows("breth0")); got != len(all) {
			t.Errorf("VLAN %d: %d flows of %d", vlan, got, len(all))
		}
	}
	want := sorted(vs.Flows("breth0"))
	same := func() bool {
		out, err := vs.Try("ovs-ofctl", "-OOpenFlow14", "--no-stats", "dump-flows", "unix:"+vs.Dir+"/breth0.mgmt")
		if err != nil {
			return false
		}
		var now []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "actions=") {
				now = append(now, strings.TrimSpace(line))
			}
		}
		return slices.Equal(sorted(now), want)
	}
	vs.Run("ovs-ofctl", "del-flows", "unix:"+vs.Dir+"/breth0.mgmt", "in_port=1")
	eventually.True(t, "deleted flows to come back", same)
	vs.Run("ovs-ofctl", "add-flow", "unix:"+vs.Dir+"/breth0.mgmt", "priority=999,actions=drop")
	eventually.True(t, "a foreign flow to go", same)
	vs.StopVswitchd()
	vs.StartVswitchd()
	eventually.True(t, "flows after a restart of ovs-vswitchd", same)
	vs.Run("ovs-vsctl", "set", "interface", "patch", "ofport_request=42")
	eventually.True(t, "flows with the new port number", func() bool {
		return strings.Contains(strings.Join(vs.Flows("breth0"), "\n"), "in_port=42")
	})
}

// TestGates asks a real bridge what it does with requests for a suppressed address and for another
// one, and with OVN's answers for both.
func TestGates(t *testing.T) {
	ns := netnstest.New(t)
	vs := ns.OVS()
	ctx := t.Context()
	db := ovs.New(ctx, vs.Endpoint())
	ns.Veth("eth0", "far0")
	ns.Veth("patch", "ovn0")
	vs.Run("ovs-vsctl", "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev",
		"--", "add-port", "breth0", "eth0", "--", "add-port", "breth0", "patch")
	numbered(t, db, "breth0", "eth0", "patch")
	m := New([]string{base, "gates"}, db, func(name string) Writer { return openflow.New(name, vs.Dir) })
	all := bridge.CommonFlows(at.Facts)
	for _, f := range families {
		all = append(all, bridge.Flows(at.Facts, f, bridge.DefaultMarks(64000))...)
	}
	gates := append(bridge.Suppression(at.Facts),
		bridge.SuppressARP(netip.MustParseAddr("172.18.0.33"), false), bridge.SuppressARP(netip.MustParseAddr("fc00::33"), false))
	if err := errors.Join(m.Apply(ctx, base, all), m.Apply(ctx, "gates", gates), m.Attach(ctx, at)); err != nil {
		t.Fatal(err)
	}
	const (
		arp    = "arp,dl_src=02:00:00:00:00:99,dl_dst=TO,arp_op=1,arp_spa=172.18.0.9,arp_tpa=ADDR"
		nd     = "icmp6,dl_src=02:00:00:00:00:99,dl_dst=TO,ipv6_src=fc00::9,ipv6_dst=ff02::1:ff00:33,icmpv6_type=135,icmpv6_code=0,nw_ttl=255,nd_target=ADDR"
		garp   = "arp,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_spa=ADDR,arp_tpa=ADDR"
		advert = "icmp6,dl_src=02:00:00:00:00:01,dl_dst=33:33:00:00:00:01,ipv6_src=fc00::3,ipv6_dst=ff02::1,icmpv6_type=136,icmpv6_code=0,nw_ttl=255,nd_target=ADDR"
		all4   = "ff:ff:ff:ff:ff:ff"
		all6   = "33:33:ff:00:00:33"
		own    = "02:00:00:00:00:01"
	)
	for _, c := range []struct {
		name, in, packet, to, addr string
		reaches                    string
		sent                       bool
	}{
		{"a request for a gated address", "eth0", arp, all4, "172.18.0.33", "patch", false},
		{"a unicast probe for it", "eth0", arp, own, "172.18.0.33", "patch", false},
		{"a solicitation of a gated address", "eth0", nd, all6, "fc00::33", "patch", false},
		{"a unicast solicitation of it", "eth0", nd, own, "fc00::33", "patch", false},
		{"OVN's announcement of a gated address", "patch", garp, "", "172.18.0.33", "eth0", false},
		{"OVN's advertisement of a gated address", "patch", advert, "", "fc00::33", "eth0", false},
		{"a request for another address", "eth0", arp, all4, "172.18.0.34", "patch", true},
		{"a unicast probe for that", "eth0", arp, own, "172.18.0.34", "patch", true},
		{"a solicitation of another address", "eth0", nd, all6, "fc00::34", "patch", true},
		{"OVN's announcement of another address", "patch", garp, "", "172.18.0.34", "eth0", true},
		{"OVN's advertisement of another address", "patch", advert, "", "fc00::34", "eth0", true},
	} {
		from := vs.Run("ovs-vsctl", "get", "interface", c.in, "ofport")
		packet := "in_port=" + from + "," + strings.NewReplacer("TO", c.to, "ADDR", c.addr).Replace(c.packet)
		trace := vs.Run("ovs-appctl", "ofproto/trace", "breth0", packet)
		if sent := delivers(vs, trace, c.reaches); sent != c.sent {
			t.Errorf("%s reaches %s: %v\n%s", c.name, c.reaches, sent, trace)
		}
		if c.in == "eth0" && !delivers(vs, trace, "breth0") {
			t.Errorf("%s does not reach the host:\n%s", c.name, trace)
		}
	}
}

// delivers reports whether a packet, traced through the bridge, leaves by a link.
func delivers(vs *netnstest.OVS, trace, link string) bool {
	number := ""
	for line := range strings.Lines(vs.Run("ovs-appctl", "dpctl/show")) {
		if port, ok := strings.CutPrefix(strings.TrimSpace(line), "port "); ok {
			n, name, _ := strings.Cut(port, ": ")
			if strings.Fields(name)[0] == link {
				number = n
			}
		}
	}
	for line := range strings.Lines(trace) {
		if actions, ok := strings.CutPrefix(line, "Datapath actions: "); ok && slices.Contains(strings.Split(strings.TrimSpace(actions), ","), number) {
			return true
		}
	}
	return false
}

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}

var families = []bridge.Family{
	{
		Family: topology.IPv4, Node: netip.MustParseAddr("172.18.0.3"), Subnet: netip.MustParsePrefix("10.244.1.0/24"),
		Cluster: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	},
	{
		Family: topology.IPv6, Node: netip.MustParseAddr("fc00::3"), Subnet: netip.MustParsePrefix("fd00:10:244:2::/64"),
		Cluster: []netip.Prefix{netip.MustParsePrefix("fd00:10:244::/48")},
	},
}
