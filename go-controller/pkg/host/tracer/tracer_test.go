package tracer_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/tracer"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// TestLogical: the packet of a pod matches a policy with two next hops, and leaves by the requested
// one.
func TestLogical(t *testing.T) {
	o := ovntrace.Start(t)
	o.Chassis("c1", "172.18.0.3")
	o.NB.Nbctl("lr-add", "r")
	for i, n := range []string{"1", "2", "3"} {
		o.NB.Nbctl("ls-add", "s"+n, "--", "lrp-add", "r", "r-s"+n, "0a:58:0a:00:0"+n+":01", "10.0."+n+".1/24",
			"--", "lsp-add", "s"+n, "s"+n+"-r", "--", "lsp-set-type", "s"+n+"-r", "router", "--", "lsp-set-addresses", "s"+n+"-r", "router",
			"--", "lsp-set-options", "s"+n+"-r", "router-port=r-s"+n,
			"--", "lsp-add", "s"+n, "p"+n, "--", "lsp-set-addresses", "p"+n, "0a:58:0a:00:0"+n+":02 10.0."+n+".2")
		if i == 0 {
			o.Bind("p1", "c1")
		}
	}
	o.NB.Nbctl("lr-route-add", "r", "0.0.0.0/0", "10.0.2.2")
	o.NB.Nbctl("lr-policy-add", "r", "100", "ip4.src == 10.0.1.2", "reroute", "10.0.2.2,10.0.3.2")
	o.Sync()
	packet := `inport == "p1" && eth.src == 0a:58:0a:00:01:02 && eth.dst == 0a:58:0a:00:01:01 && ip4.src == 10.0.1.2 && ip4.dst == 192.0.2.1 && ip.ttl == 64 && tcp.src == 40000 && tcp.dst == 80`
	db := tracer.Database{Address: o.SB.Socket()}
	var exits []string
	for choice := range 3 {
		text, err := tracer.Logical(t.Context(), db, "s1", packet, choice)
		if err != nil {
			t.Fatal(err)
		}
		ovn := trace.ParseOVN(text)
		if !slices.Equal(ovn.Choices, []int{1, 2}) || len(ovn.Exits()) != 1 {
			t.Errorf("choices %v, exits %v:\n%s", ovn.Choices, ovn.Exits(), text)
			continue
		}
		if choice > 0 {
			exits = append(exits, ovn.Exits()[0].Port)
		}
	}
	slices.Sort(exits)
	if !slices.Equal(exits, []string{"p2", "p3"}) {
		t.Errorf("it leaves by %v", exits)
	}
	if _, err := tracer.Logical(t.Context(), db, "s1", `--help`, 0); err == nil {
		t.Error("a packet that is an option is traced")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tracer.Logical(ended, db, "s1", packet, 0); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("after the end: %v", err)
	}
}

// TestBridge: a packet matches the flows of a bridge, is translated by connection tracking, and
// leaves.
func TestBridge(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--",
		"add-port", "br0", "up0", "--", "set", "interface", "up0", "type=internal", "ofport_request=1", "--",
		"add-port", "br0", "ovn0", "--", "set", "interface", "ovn0", "type=internal", "ofport_request=2")
	for _, flow := range []string{
		"table=0,priority=100,in_port=2,ip,nw_src=10.244.1.3,actions=ct(commit,zone=64000,nat(src=172.18.0.33),exec(set_field:0x1->ct_mark)),output:1",
		"table=0,priority=107,in_port=2,ip,nw_src=10.244.1.4,actions=ct(zone=64000,table=3)",
		"table=0,priority=104,in_port=2,ip,nw_src=10.244.0.0/16,actions=drop",
		"table=0,priority=106,in_port=2,ip,nw_src=10.244.1.3,actions=ct(commit,zone=64000,nat(src=172.18.0.33),exec(set_field:0x1->ct_mark)),output:1",
		"table=0,priority=50,in_port=LOCAL,actions=output:1",
		"table=0,priority=0,actions=NORMAL",
		"table=3,priority=10,ct_state=+new,ip,actions=output:1",
	} {
		o.Run("ovs-ofctl", "-OOpenFlow14", "add-flow", "br0", flow)
	}
	names := map[int]string{1: "up0", 2: "ovn0"}
	for packet, want := range map[string]struct {
		outputs []string
		source  string
		tables  []int
		dropped bool
	}{
		"in_port=2,tcp,nw_src=10.244.1.3,nw_dst=192.0.2.1":         {outputs: []string{"up0"}, source: "172.18.0.33", tables: []int{0}},
		"in_port=2,tcp,nw_src=10.244.1.4,nw_dst=192.0.2.1":         {outputs: []string{"up0"}, tables: []int{0, 3}},
		"in_port=2,tcp,nw_src=10.244.1.5,nw_dst=192.0.2.1":         {tables: []int{0}, dropped: true},
		"in_port=LOCAL,tcp6,ipv6_src=fd00::1,ipv6_dst=2001:db8::1": {outputs: []string{"up0"}, tables: []int{0}},
	} {
		text, err := tracer.Bridge(t.Context(), o.Dir, "br0", packet)
		if err != nil {
			t.Fatal(err)
		}
		b := trace.ParseBridge("br0", text, names)
		var tables []int
		for _, f := range b.Flows {
			tables = append(tables, f.Table)
		}
		source := ""
		if b.Source.IsValid() {
			source = b.Source.String()
		}
		if _, dropped := b.Dropped(); !slices.Equal(b.Outputs, want.outputs) || source != want.source || !slices.Equal(tables, want.tables) || dropped != want.dropped {
			t.Errorf("%s: got %+v, want %+v:\n%s", packet, b, want, text)
		}
	}
	if _, err := tracer.Bridge(t.Context(), o.Dir, "br1", "ip"); err == nil {
		t.Error("a bridge that is not there answers")
	}
}

// TestLookup: the kernel forwards a packet that comes in by an interface by a rule for its source,
// by its main table, or not at all.
func TestLookup(t *testing.T) {
	ns := netnstest.New(t)
	for i, dev := range []string{"mp0", "eth0", "eth1"} {
		ns.Veth(dev, dev+"-peer")
		ns.Run("ip", "addr", "add", []string{"10.244.1.2/24", "172.18.0.3/16", "192.168.50.3/24"}[i], "dev", dev)
	}
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.mp0.rp_filter=0")
	ns.Run("ip", "route", "add", "192.0.2.0/24", "via", "172.18.0.1")
	ns.Run("ip", "route", "add", "table", "1111", "default", "via", "192.168.50.1")
	ns.Run("ip", "rule", "add", "priority", "6000", "from", "10.244.1.3", "table", "1111")
	ns.Run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.244.1.3", "-o", "eth1", "-j", "SNAT", "--to-source", "192.168.50.33")
	ns.Run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.244.0.0/16", "!", "-d", "10.244.0.0/16", "-m", "comment", "--comment", "pods leave", "-j", "MASQUERADE")
	addr := netip.MustParseAddr
	lookup := func(source, destination string) (r tracer.Route, v trace.Verdict) {
		t.Helper()
		var err error
		<-ns.Go(func() {
			if r, err = tracer.Lookup(tracer.Packet{Source: addr(source), Destination: addr(destination), In: "mp0"}); err != nil {
				return
			}
			var save string
			if save, err = iptables.Save(t.Context(), topology.IPv4, "nat"); err == nil {
				v = trace.Walk(save, "POSTROUTING", trace.Packet{Source: addr(source), Destination: addr(destination), Protocol: trace.TCP, Out: r.Interface})
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return r, v
	}
	if r, v := lookup("10.244.1.3", "192.0.2.1"); r.Interface != "eth1" || r.Gateway != addr("192.168.50.1") || r.Table != 1111 || !slices.Equal(r.Rules, []string{"6000: from 10.244.1.3/32, table 1111"}) ||
		v.Target != "SNAT" || v.Source != addr("192.168.50.33") {
		t.Errorf("by a rule: %+v, %+v", r, v)
	}
	if r, v := lookup("10.244.1.4", "192.0.2.1"); r.Interface != "eth0" || r.Table != 254 || r.Source != addr("172.18.0.3") || len(r.Rules) > 0 || v.Target != "MASQUERADE" || len(v.Unsure) > 0 {
		t.Errorf("by the main table: %+v, %+v", r, v)
	}
	if r, _ := lookup("10.244.1.4", "198.51.100.1"); r.Unroutable == "" {
		t.Errorf("without a route: %+v", r)
	}
	if r, _ := lookup("10.244.1.4", "172.18.0.3"); !r.Local {
		t.Errorf("to the node: %+v", r)
	}
}
