package trace

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func read(t testing.TB, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The output of OVN 23.03 for a small cluster.
func TestParseOVN(t *testing.T) {
	for name, want := range map[string]struct {
		exit    Output
		source  string
		choices []int
		asks    bool
		dropped string
		policy  string
	}{
		"gateway":    {exit: Output{"ext_ovn-worker2", "breth0_ovn-worker2", "localnet"}, source: "172.18.0.33", policy: "100 ip4.src == 10.244.1.3"},
		"asks":       {exit: Output{"ext_ovn-worker2", "breth0_ovn-worker2", "localnet"}, asks: true, policy: "100 ip4.src == 10.244.1.3"},
		"asks-6":     {exit: Output{"ext_ovn-worker2", "breth0_ovn-worker2", "localnet"}, source: "fc00:f853:ccd:e793::33", asks: true, policy: "100 ip6.src == fd00:10:244:2::3"},
		"management": {exit: Output{"ovn-worker2", "k8s-ovn-worker2", ""}, policy: "101 ip4.src == 10.244.1.3"},
		"several":    {exit: Output{"ext_ovn-worker", "breth0_ovn-worker", "localnet"}, choices: []int{1, 2}, asks: true, policy: "101 ip4.src == 10.244.1.3"},
		"dropped":    {dropped: "lr_in_policy", policy: "200 ip4.src == 10.244.1.3"},
	} {
		ovn := ParseOVN(read(t, "ovn", name+".txt"))
		exits := ovn.Exits()
		if (want.exit == Output{}) != (len(exits) == 0) || len(exits) > 0 && exits[0] != want.exit {
			t.Errorf("%s: leaves by %v, want %v", name, exits, want.exit)
		}
		source := ""
		if ovn.Source.IsValid() {
			source = ovn.Source.String()
		}
		step, _ := ovn.Dropped()
		if source != want.source || !slices.Equal(ovn.Choices, want.choices) || ovn.Asks != want.asks || step.Stage != want.dropped {
			t.Errorf("%s: source %q, choices %v, asks %v, dropped by %q; want %+v", name, source, ovn.Choices, ovn.Asks, step.Stage, want)
		}
		policies := ovn.at("ovn_cluster_router", "lr_in_policy")
		if len(policies) != 1 || sprint(policies[0].Priority, policies[0].Match) != want.policy {
			t.Errorf("%s: policies %v, want %s", name, policies, want.policy)
		}
	}
	if n := len(ParseOVN(read(t, "ovn", "asks-6.txt")).at("GR_ovn-worker2", "lr_in_ip_routing")); n != 1 {
		t.Errorf("the request for a hardware address comes back to the router that makes it, and is followed: %d routes", n)
	}
	none := ParseOVN("ingress(dp=\"n1\", inport=\"p\")\n-----\n 3. ls_in_acl: no match (implicit drop)\n")
	if step, ok := none.Dropped(); !ok || step.Stage != "ls_in_acl" || step.Datapath != "n1" {
		t.Errorf("no match: %v", none)
	}
}

const bridgeTrace = `Flow: tcp,in_port=2,vlan_tci=0x0000,dl_src=02:42:ac:12:00:03,nw_src=172.18.0.33,nw_dst=192.0.2.1

bridge("breth0")
----------------
 0. in_port=2,ip,nw_src=10.244.0.0/16, priority 107, cookie 0x6f766e6b
    ct(zone=64000,table=3)
    drop
     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table 3.
     -> Sets the packet to an untracked state, and clears all the conntrack fields.

Final flow: unchanged
Megaflow: recirc_id=0,ct_state=-trk,eth,tcp,in_port=2
Datapath actions: ct(zone=64000),recirc(0x1)

===============================================================================
recirc(0x1) - resume conntrack with default ct_state=trk|new (use --ct-next to customize)
===============================================================================

Flow: recirc_id=0x1,ct_state=new|trk,eth,tcp,in_port=2

bridge("breth0")
----------------
    thaw
        Resuming from table 3
 3. ct_state=+new, priority 100, cookie 0x6f766e6b
    ct(commit,zone=64000,nat(src=172.18.0.3),exec(set_field:0x1->ct_mark))
    nat(src=172.18.0.3)
    output:1

bridge("br-int")
----------------
 0. priority 0
    drop

Final flow: unchanged
Datapath actions: ct(commit),1
`

func TestParseBridge(t *testing.T) {
	b := ParseBridge("breth0", bridgeTrace, map[int]string{1: "eth0"})
	if len(b.Flows) != 2 || b.Flows[1].Table != 3 || b.Flows[1].Priority != 100 || !slices.Equal(b.Outputs, []string{"eth0"}) || b.Source.String() != "172.18.0.3" {
		t.Errorf("got %+v", b)
	}
	if _, dropped := b.Dropped(); dropped {
		t.Error("it is dropped")
	}
	for text, want := range map[string]string{
		"bridge(\"breth0\")\n 0. in_port=2,ip, priority 104, cookie 0x1\n    drop\n":    "in_port=2,ip",
		"bridge(\"breth0\")\n 0. No match.\n    drop\n":                                 "",
		"bridge(\"breth0\")\n 0. priority 0, cookie 0x1\n    drop\n":                    "",
		"bridge(\"breth0\")\n 0. ip, priority 1\n    resubmit(,4)\n     4. No match.\n": "",
		// A catch-all flow says less than the flow that sent the packet to its table.
		"bridge(\"breth0\")\n 0. in_port=2,ip, priority 104\n    resubmit(,6)\n     6. ip, priority 0\n            drop\n": "in_port=2,ip",
	} {
		f, ok := ParseBridge("breth0", text, nil).Dropped()
		if !ok || f.Match != want {
			t.Errorf("%q: %v, %v", text, f, ok)
		}
	}
	if b := ParseBridge("breth0", "bridge(\"breth0\")\n 0. priority 0\n    NORMAL\n     -> learned\n", nil); !b.Normal {
		t.Errorf("got %+v", b)
	}
}

const natTable = `*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:OVN-KUBE-EGRESS-SVC - [0:0]
:OVN-KUBE-MASQ - [0:0]
:OTHER - [0:0]
-A POSTROUTING -m comment --comment "some one else's -j DROP" -j OTHER
-A POSTROUTING -j OVN-KUBE-EGRESS-SVC
-A POSTROUTING -o ovn-k8s-mp0 -j MASQUERADE
-A POSTROUTING -j OVN-KUBE-MASQ
-A OTHER -d 192.0.2.9/32 -p tcp -m tcp --dport 53 -j ACCEPT
-A OTHER -s 10.244.1.9/32 -m statistic --mode random --probability 0.5 -j SNAT --to-source 1.2.3.4
-A OVN-KUBE-EGRESS-SVC -m mark --mark 0x3f0 -j RETURN
-A OVN-KUBE-EGRESS-SVC -s 10.244.1.3/32 -m comment --comment "prod/web" -j SNAT --to-source 203.0.113.7
-A OVN-KUBE-MASQ ! -o ovn-k8s-mp0 -m addrtype ! --src-type LOCAL -m conntrack --ctstate DNAT -j MASQUERADE
-A OVN-KUBE-MASQ -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE
COMMIT
`

func TestWalk(t *testing.T) {
	packet := func(source string) Packet {
		return Packet{Source: netip.MustParseAddr(source), Destination: netip.MustParseAddr("192.0.2.1"), Protocol: TCP, Port: 80, Out: "breth0"}
	}
	marked, other, inside := packet("10.244.1.3"), packet("10.244.1.3"), packet("10.244.1.4")
	marked.Mark, other.Destination, other.Port, inside.Destination = 0x3f0, netip.MustParseAddr("192.0.2.9"), 53, netip.MustParseAddr("10.244.2.1")
	for name, tc := range map[string]struct {
		packet       Packet
		target, rule string
		source       string
		unsure       int
	}{
		"the pod of a Service": {packet: packet("10.244.1.3"), target: "SNAT", source: "203.0.113.7", rule: "OVN-KUBE-EGRESS-SVC: -s 10.244.1.3/32"},
		"marked":               {packet: marked, target: "MASQUERADE", rule: "OVN-KUBE-MASQ: -s 10.244.0.0/16"},
		"another pod":          {packet: packet("10.244.1.4"), target: "MASQUERADE", rule: "OVN-KUBE-MASQ: -s 10.244.0.0/16"},
		"to somebody's port":   {packet: other, target: "ACCEPT", rule: "OTHER: -d 192.0.2.9/32"},
		"inside":               {packet: inside, target: "ACCEPT"},
		"at random":            {packet: packet("10.244.1.9"), target: "MASQUERADE", rule: "OVN-KUBE-MASQ: -s 10.244.0.0/16", unsure: 1},
	} {
		v := Walk(natTable, "POSTROUTING", tc.packet)
		source := ""
		if v.Source.IsValid() {
			source = v.Source.String()
		}
		if v.Target != tc.target || source != tc.source || !strings.HasPrefix(strings.Join(v.Rules, " "), tc.rule) || len(v.Unsure) != tc.unsure {
			t.Errorf("%s: got %+v, want %+v", name, v, tc)
		}
	}
	if v := Walk("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n", "FORWARD", packet("10.244.1.3")); v.Target != "DROP" {
		t.Errorf("the policy of a chain: %+v", v)
	}
	loop := "-A POSTROUTING -j A\n-A A -j A\n-A A -j A\n"
	if v := Walk(loop, "POSTROUTING", packet("10.244.1.3")); v.Target != "ACCEPT" {
		t.Errorf("a loop: %+v", v)
	}
}

func FuzzParseOVN(f *testing.F) {
	for _, name := range []string{"gateway", "asks", "management", "several", "dropped"} {
		f.Add(read(f, "ovn", name+".txt"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		ovn := ParseOVN(text)
		_, dropped := ovn.Dropped()
		if dropped && len(ovn.Exits()) > 0 {
			t.Error("dropped, and it leaves")
		}
		for _, c := range ovn.Choices {
			if c <= 0 {
				t.Errorf("choice %d", c)
			}
		}
	})
}

func FuzzParseBridge(f *testing.F) {
	f.Add(bridgeTrace)
	f.Fuzz(func(t *testing.T, text string) {
		b := ParseBridge("breth0", text, map[int]string{1: "eth0"})
		if _, dropped := b.Dropped(); dropped && len(b.Outputs) > 0 {
			t.Error("dropped, and it leaves")
		}
	})
}

func FuzzWalk(f *testing.F) {
	f.Add(natTable)
	f.Fuzz(func(t *testing.T, text string) {
		v := Walk(text, "POSTROUTING", Packet{Source: netip.MustParseAddr("10.244.1.3"), Destination: netip.MustParseAddr("192.0.2.1"), Protocol: TCP, Port: 80, Out: "breth0"})
		if v.Source.IsValid() && v.Target != "SNAT" {
			t.Errorf("a source without a translation: %+v", v)
		}
	})
}
