package conntrack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

func TestSteeredBy(t *testing.T) {
	for line, want := range map[string]string{
		"tcp,orig=(src=172.31.51.1,dst=10.244.1.3,sport=48554,dport=8080),reply=(src=10.244.1.3,dst=172.31.51.1,sport=8080,dport=48554),zone=6,mark=65536,labels=0x242ac12003300000000,protoinfo=(state=TIME_WAIT)": "6 10.244.1.3 02:42:ac:12:00:33 ct_nw_src=172.31.51.1,ct_nw_dst=10.244.1.3,ct_nw_proto=6,ct_tp_src=48554,ct_tp_dst=8080",
		"udp,orig=(src=fd31::51,dst=fd00:10:244:2::3,sport=5,dport=53),reply=(src=fd00:10:244:2::3,dst=fd31::51,sport=53,dport=5),zone=6,mark=65536,labels=0xfeedac12003300000001":                                  "6 fd00:10:244:2::3 fe:ed:ac:12:00:33 ct_ipv6_src=fd31::51,ct_ipv6_dst=fd00:10:244:2::3,ct_nw_proto=17,ct_tp_src=5,ct_tp_dst=53",
		"tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1),zone=64000,mark=1,protoinfo=(state=TIME_WAIT)":                                                          "",
		"tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1),zone=9,labels=0x2":                                                                                      "",
		"icmp,orig=(src=1.1.1.1,dst=2.2.2.2,id=1,type=8,code=0),reply=(src=2.2.2.2,dst=1.1.1.1,id=1,type=0,code=0),zone=6":                                                                                          "",
		"nonsense": "", "": "", "tcp,": "", "tcp,orig=(src=x,dst=y),labels=0x242ac12003300000000": "", "tcp,orig=(,labels=0x242ac12003300000000,zone=99999999": "",
	} {
		got := ""
		e, ok := parseEntry(line)
		if s, steered := steeredBy(e); ok && steered {
			got = fmt.Sprintf("%d %s %s %s", s.Zone, s.Dst, s.Neighbor, s.Tuple)
		}
		if got != want {
			t.Errorf("%q:\n got %q\nwant %q", line, got, want)
		}
	}
}

// TestSteered creates labelled entries in the userspace datapath and flushes one.
func TestSteered(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	for match, mac := range map[string]string{"nw_src=192.0.2.1": "0x242ac120033", "nw_src=192.0.2.2": "0x242ac120034"} {
		o.Run("ovs-ofctl", "add-flow", mgmt, "udp,"+match+",actions=ct(commit,zone=7,exec(set_field:"+mac+"00000000->ct_label))")
	}
	o.Run("ovs-ofctl", "add-flow", mgmt, "priority=1,ip,actions=ct(commit,zone=7)")
	for _, src := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		dump := o.Run("ovs-ofctl", "compose-packet",
			"udp,nw_src="+src+",nw_dst=10.244.0.5,eth_src=02:00:00:00:00:01,eth_dst=02:00:00:00:00:02,nw_ttl=64,udp_src=4000,udp_dst=53")
		packet := ""
		for line := range strings.Lines(dump) {
			_, bytes, _ := strings.Cut(strings.TrimSpace(line), "  ")
			packet += strings.NewReplacer(" ", "", "-", "").Replace(bytes)
		}
		o.Run("ovs-ofctl", "packet-out", mgmt, "in_port=LOCAL packet="+packet+" actions=table")
	}
	list, err := ListSteered(t.Context(), o.Dir)
	if err != nil || len(list) != 2 {
		t.Fatalf("steered %+v (%v), want two", list, err)
	}
	for _, s := range list {
		if s.Neighbor != "02:42:ac:12:00:33" {
			continue
		}
		if err := FlushSteered(t.Context(), o.Dir, []host.Steered{s}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := ListSteered(t.Context(), o.Dir)
	if err != nil || len(left) != 1 || left[0].Neighbor != "02:42:ac:12:00:34" {
		t.Errorf("left %+v (%v)", left, err)
	}
	if n := strings.Count(o.Run("ovs-appctl", "dpctl/dump-conntrack"), "udp,"); n != 2 {
		t.Errorf("%d entries left, want 2", n)
	}
}
