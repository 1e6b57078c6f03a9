package node

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bridgenode "github.com/ovnkube/ovnkube/go-controller/pkg/bridge/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Neighbour discovery frames, from the wire and from OVN.
const (
	askARP   = "arp,dl_src=02:00:00:00:00:99,dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_spa=172.18.0.1,arp_tpa=172.18.0.33"
	probeARP = "arp,dl_src=02:00:00:00:00:99,dl_dst=" + nodeMAC + ",arp_op=1,arp_spa=172.18.0.1,arp_tpa=172.18.0.33"
	askND    = "icmp6,dl_src=02:00:00:00:00:99,dl_dst=33:33:ff:00:00:33,ipv6_src=fc00:18::1,ipv6_dst=ff02::1:ff00:33,icmpv6_type=135,icmpv6_code=0,nw_ttl=255,nd_target=fc00:18::33"
	probeND  = "icmp6,dl_src=02:00:00:00:00:99,dl_dst=" + nodeMAC + ",ipv6_src=fc00:18::1,ipv6_dst=fc00:18::33,icmpv6_type=135,icmpv6_code=0,nw_ttl=255,nd_target=fc00:18::33"
	request  = "tcp,dl_src=02:00:00:00:00:99,dl_dst=" + nodeMAC + ",nw_src=172.18.0.1,nw_dst=172.18.0.33,nw_ttl=64,tcp_dst=80"

	announceARP = "arp,dl_src=" + nodeMAC + ",dl_dst=ff:ff:ff:ff:ff:ff,arp_op=1,arp_spa=172.18.0.33,arp_tpa=172.18.0.33"
	answerARP   = "arp,dl_src=" + nodeMAC + ",dl_dst=02:00:00:00:00:99,arp_op=2,arp_spa=172.18.0.33,arp_tpa=172.18.0.1"
	answerND    = "icmp6,dl_src=" + nodeMAC + ",dl_dst=02:00:00:00:00:99,ipv6_src=fc00:18::33,ipv6_dst=fc00:18::1,icmpv6_type=136,icmpv6_code=0,nw_ttl=255,nd_target=fc00:18::33"
	podPacket   = "tcp,dl_src=" + nodeMAC + ",dl_dst=02:00:00:00:00:99,nw_src=10.244.2.9,nw_dst=172.18.0.1,nw_ttl=64,tcp_dst=80"
)

// restarted restarts ovs-vswitchd, like a boot, while no ovnkube runs: then a
// bridge has no flows, but all its ports.
func (l *lab) restarted() {
	l.vs.StopVswitchd()
	l.vs.StartVswitchd()
}

// passes reports whether the external bridge forwards a frame from one port to another.
func (l *lab) passes(frame, from, to string) (bool, string) {
	l.t.Helper()
	number := strings.TrimSpace(l.vs.Run("ovs-vsctl", "get", "interface", from, "ofport"))
	trace := l.vs.Run("ovs-appctl", "ofproto/trace", "breth0", "in_port="+number+","+frame)
	if to == topology.IntegrationBridge {
		return strings.Contains(trace, `bridge("`+topology.IntegrationBridge+`")`), trace
	}
	datapath := ""
	for line := range strings.Lines(l.vs.Run("ovs-appctl", "dpctl/show")) {
		if n, name, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "port "), ": "); ok && strings.Fields(name)[0] == to {
			datapath = n
		}
	}
	for line := range strings.Lines(trace) {
		if actions, ok := strings.CutPrefix(strings.TrimSpace(line), "Datapath actions: "); ok {
			for a := range strings.SplitSeq(actions, ",") {
				if a == datapath {
					return true, trace
				}
			}
		}
	}
	return false, trace
}

// isolated checks that nothing is forwarded between the wire and OVN.
func (l *lab) isolated(when string) {
	l.t.Helper()
	patch := topology.PatchPort("breth0", nodeName)
	const tagged = ",dl_vlan=7,dl_vlan_pcp=0"
	for _, frame := range []string{askARP, probeARP, askND, probeND, request, "dl_type=0x9999,dl_dst=ff:ff:ff:ff:ff:ff" + tagged} {
		if passed, trace := l.passes(frame, "eth0", topology.IntegrationBridge); passed {
			l.t.Errorf("%s, OVN hears from the wire:\n%s", when, trace)
		}
	}
	for _, frame := range []string{announceARP, answerARP, answerND, podPacket, "dl_type=0x9999,dl_dst=ff:ff:ff:ff:ff:ff" + tagged} {
		if passed, trace := l.passes(frame, patch, "eth0"); passed {
			l.t.Errorf("%s, OVN speaks on the wire:\n%s", when, trace)
		}
	}
}

// connected checks that requests from the wire reach the host, and reach OVN
// if flows allow it.
func (l *lab) connected(when string) {
	l.t.Helper()
	patch := topology.PatchPort("breth0", nodeName)
	for _, frame := range []string{askARP, probeARP, askND, probeND} {
		for _, to := range []string{topology.IntegrationBridge, "breth0"} {
			if passed, trace := l.passes(frame, "eth0", to); !passed {
				l.t.Errorf("%s, a frame of the wire does not reach %s:\n%s", when, to, trace)
			}
		}
	}
	for _, frame := range []string{announceARP, answerARP, answerND} {
		if passed, trace := l.passes(frame, patch, "eth0"); !passed {
			l.t.Errorf("%s, a frame of OVN does not reach the wire:\n%s", when, trace)
		}
	}
}

// TestBridgeWithoutFlows restarts Open vSwitch, like a boot, on a node whose
// ovn-controller is back before ovnkube: the addresses in the gateway router's
// translations must be neither answered for nor announced, and no untranslated packet
// may leave. The host stays connected.
func TestBridgeWithoutFlows(t *testing.T) {
	l := newLab(t)
	g := l.up()
	l.connected("with all flows")
	l.restarted()
	l.isolated("after a boot")
	l.reachable()
	early := l.start(l.db)
	early.Flows = bridgenode.New([]string{gateway.Contributor, "somebody who is slow"}, l.db, func(bridge string) bridgenode.Writer {
		return openflow.New(bridge, l.vs.Dir)
	})
	l.mustPass(early)
	l.isolated("with early flows")
	l.reachable()
	l.mustPass(g)
	if err := g.Flows.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.connected("with all flows again")
}

// mapped reports whether ovn-controller is configured to connect the bridge.
func (l *lab) mapped() bool {
	l.t.Helper()
	return strings.Contains(l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids"), "physnet")
}

// firstMapped returns after how many writes of a first start ovn-controller is configured to connect the bridge.
func firstMapped(t *testing.T) int {
	l, first := newLab(t), 0
	const enough = 1000
	c := &crashing{left: enough}
	c.Client = eachSystem{l.db, func(map[string]string) {
		if first == 0 && l.mapped() {
			first = enough - c.left + 1
		}
	}}
	l.annotate(kube.AnnotationNodeSubnets, subnets)
	l.mustPass(l.start(c))
	if first == 0 {
		t.Fatal("ovn-controller was never told of the bridge")
	}
	return first
}

// TestBootAfterCrash cuts the power after each write of the first start: whenever
// ovn-controller has been configured to connect the bridge, the next boot keeps it silent.
func TestBootAfterCrash(t *testing.T) {
	for n, finished := firstMapped(t), false; !finished; n++ {
		t.Run("write", func(t *testing.T) {
			l := newLab(t)
			l.annotate(kube.AnnotationNodeSubnets, subnets)
			err := l.pass(l.start(&crashing{Client: l.db, left: n}))
			if finished = err == nil; !finished && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			if !l.mapped() {
				t.Fatalf("after write %d ovn-controller is not told of the bridge", n)
			}
			l.patchPort()
			l.restarted()
			l.isolated("after a boot")
		})
		if n > 30 {
			t.Fatal("a start never ends")
		}
	}
}

// foreign puts the host on a bridge that an administrator has created.
func (l *lab) foreign() {
	l.vs.Run("ovs-vsctl", "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev",
		"other_config:hwaddr=\""+nodeMAC+"\"", "--", "add-port", "breth0", "eth0")
	l.ns.Run("ip", "addr", "flush", "dev", "eth0")
	l.hostAddresses("breth0")
	l.ns.Run("ip", "link", "set", "eth0", "up")
}

// released checks that the bridge that an administrator has created is a plain switch again.
func (l *lab) released() {
	l.t.Helper()
	if got := l.vs.Flows("breth0"); !slices.Equal(got, []string{"priority=0 actions=NORMAL"}) {
		l.t.Errorf("the bridge has the flows\n%s", strings.Join(got, "\n"))
	}
	if got := l.vs.Run("ovs-vsctl", "list-ports", "breth0"); strings.TrimSpace(got) != "eth0" {
		l.t.Errorf("the bridge has ports %s", got)
	}
	if got := l.vs.Run("ovs-vsctl", "get", "bridge", "breth0", "external_ids"); strings.Contains(got, idAttachment) {
		l.t.Errorf("the bridge has %s", got)
	}
}

// TestCleanupOfForeignBridge restores the state of a bridge that somebody else created.
func TestCleanupOfForeignBridge(t *testing.T) {
	for _, when := range []string{"with flows", "after a boot"} {
		t.Run(when, func(t *testing.T) {
			l := newLab(t)
			l.foreign()
			g := l.up()
			if err := g.Flows.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if when == "after a boot" {
				l.restarted()
				l.isolated(when)
			}
			for range 2 {
				if err := (Cleaner{OVS: l.db, Release: l.releaseFlows}).Cleanup(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			l.released()
			l.reachable()
		})
	}
}

// TestLeavingForeignBridge: a bridge that somebody else created has none of our flows when the configuration names another uplink.
func TestLeavingForeignBridge(t *testing.T) {
	l := newLab(t)
	l.foreign()
	l.up()
	l.ns.Run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "far1", "netns", "far")
	l.ns.Run("ip", "link", "set", "eth1", "up")
	l.ns.Run("ip", "addr", "add", "172.19.0.3/16", "dev", "eth1")
	l.ns.Run("ip", "addr", "add", "fc00:19::3/64", "dev", "eth1", "nodad")
	g := l.start(l.db)
	g.Interface = "eth1"
	l.mustPass(g)
	l.released()
	l.reachable()
}

// TestCleanupWithoutOpenVSwitch: while Open vSwitch does not run, clean-up fails once instead of waiting for ever, and
// removes what it can.
func TestCleanupWithoutOpenVSwitch(t *testing.T) {
	ns := netnstest.New(t, netnstest.PrivateMounts())
	ns.Veth("eth0", "far0")
	if err := link.Mute("eth0"); err != nil {
		t.Fatal(err)
	}
	dir, ctx := t.TempDir(), context.WithoutCancel(t.Context())
	cleaner := Cleaner{OVS: ovs.New(t.Context(), "unix:"+filepath.Join(dir, "db.sock")), Node: nodeName, StateFile: filepath.Join(dir, "node.json")}
	var err error
	eventually.Receive(t, "the end of clean-up", ns.Go(func() { err = cleaner.Cleanup(ctx) }))
	if err == nil || strings.Count(err.Error(), "wait for the Open vSwitch database") != 1 {
		t.Errorf("clean-up returns %v", err)
	}
	if got := ns.Run("nft", "list", "tables"); strings.Contains(got, "ovn-kube-mute") {
		t.Errorf("a link is still muted: %s", got)
	}
}
