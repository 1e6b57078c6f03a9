package app

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// onNode starts an Open vSwitch with a bridge where a node has it.
func onNode(t *testing.T, name string) (*netnstest.NS, *netnstest.OVS) {
	t.Helper()
	ns := netnstest.New(t, netnstest.PrivateMounts())
	vs := ns.OVS()
	if err := os.Symlink(vs.Dir, conntrack.DefaultRunDir); err != nil {
		t.Fatal(err)
	}
	vs.Run("ovs-vsctl", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev")
	return ns, vs
}

// TestForgetConnections: connections that left with an egress address are deleted in the kernel and
// in the datapath, even if one of the two cannot be read, and no others.
func TestForgetConnections(t *testing.T) {
	_, vs := onNode(t, "breth0")
	a := netip.MustParseAddr
	addrs := []netip.Addr{a("172.18.0.33"), a("fc00::33")}
	pods := map[netip.Addr]netip.Addr{
		a("10.244.1.3"): addrs[0], a("10.244.1.4"): a("172.18.0.3"),
		a("fd00:10:244:2::3"): addrs[1], a("fd00:10:244:2::4"): a("fc00::3"),
	}
	left := []netip.Addr{a("10.244.1.4"), a("fd00:10:244:2::4")}
	mgmt := "unix:" + vs.Dir + "/breth0.mgmt"
	for pod, to := range pods {
		connect(t, pod, outside(pod), to)
		match, packet := "ip,nw_src="+pod.String(), "udp,nw_dst=192.0.2.1,nw_src="+pod.String()
		if pod.Is6() {
			match, packet = "ipv6,ipv6_src="+pod.String(), "udp6,ipv6_dst=2001:db8::1,ipv6_src="+pod.String()
		}
		vs.Run("ovs-ofctl", "add-flow", mgmt, match+",actions=ct(commit,zone=7,nat(src="+to.String()+"))")
		text := ""
		for line := range strings.Lines(vs.Run("ovs-ofctl", "compose-packet", packet+",udp_src=4000,udp_dst=80,nw_ttl=64,eth_src=02:00:00:00:00:01,eth_dst=02:00:00:00:00:02")) {
			_, bytes, _ := strings.Cut(strings.TrimSpace(line), "  ")
			text += strings.NewReplacer(" ", "", "-", "").Replace(bytes)
		}
		vs.Run("ovs-ofctl", "packet-out", mgmt, "in_port=LOCAL packet="+text+" actions=table")
	}
	inDatapath := func() (found []netip.Addr) {
		dump := vs.Run("ovs-appctl", "dpctl/dump-conntrack")
		for pod := range pods {
			if strings.Contains(dump, "orig=(src="+pod.String()+",") {
				found = append(found, pod)
			}
		}
		slices.SortFunc(found, netip.Addr.Compare)
		return found
	}
	if got, kernel := inDatapath(), connected(t); len(got) != len(pods) || len(kernel) != len(pods) {
		t.Fatalf("at the beginning there are connections of %v in the datapath and of %v in the kernel", got, kernel)
	}

	if err := forget(t.Context(), addrs); err != nil {
		t.Fatal(err)
	}
	if got := inDatapath(); !slices.Equal(got, left) {
		t.Errorf("the datapath has connections of %v, want %v", got, left)
	}
	if got := connected(t); !slices.Equal(got, left) {
		t.Errorf("the kernel has connections of %v, want %v", got, left)
	}

	connect(t, a("10.244.1.5"), outside(a("10.244.1.5")), addrs[0])
	vs.StopVswitchd()
	if err := forget(t.Context(), addrs); err == nil {
		t.Error("the datapath could not be read, and nothing was said")
	}
	if got := connected(t); !slices.Equal(got, left) {
		t.Errorf("without the datapath, the kernel has connections of %v, want %v", got, left)
	}
}

// TestLeftOnBridge: what an earlier run has left is read from the bridge of the nodes' network, which is
// the one that is mapped to it.
func TestLeftOnBridge(t *testing.T) {
	const name = "brcustom"
	_, vs := onNode(t, name)
	n := &node{switches: ovs.New(t.Context(), vs.Endpoint())}
	if held, suppressed, err := n.leftOnBridge(t.Context()); err != nil || len(held)+len(suppressed) > 0 {
		t.Errorf("a new node has %v and %v: %v", held, suppressed, err)
	}
	vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:"+gateway.IDMappings+"=theirs:breth9,"+topology.PhysicalNetwork+":"+name)
	a := netip.MustParseAddr
	wantHeld, wantSuppressed := []netip.Addr{a("172.18.0.33"), a("fc00::33")}, []netip.Addr{a("172.18.0.44"), a("fc00::44")}
	var flows []host.Flow
	for i := range wantHeld {
		flows = append(flows, bridge.DeliverToOVN(bridge.Bridge{}, wantHeld[i], "")...)
		flows = append(flows, bridge.SuppressARP(wantSuppressed[i], false))
	}
	for _, f := range (bridge.Ports{Uplink: 1, Patch: 2}).Resolve(flows) {
		vs.Run("ovs-ofctl", "add-flow", "unix:"+vs.Dir+"/"+name+".mgmt", string(f))
	}
	held, suppressed, err := n.leftOnBridge(t.Context())
	slices.SortFunc(held, netip.Addr.Compare)
	slices.SortFunc(suppressed, netip.Addr.Compare)
	if err != nil || !slices.Equal(held, wantHeld) || !slices.Equal(suppressed, wantSuppressed) {
		t.Errorf("held %v, want %v; suppressed %v, want %v (%v)", held, wantHeld, suppressed, wantSuppressed, err)
	}
	// Without an answer, nothing may pass for what is left.
	vs.StopVswitchd()
	if held, suppressed, err := n.leftOnBridge(t.Context()); err == nil {
		t.Errorf("the bridge could not be read, and it has %v and %v", held, suppressed)
	}
}
