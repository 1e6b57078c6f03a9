package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

func TestParseEntry(t *testing.T) {
	for line, want := range map[string]string{
		"udp,orig=(src=10.244.1.4,dst=10.96.0.9,sport=20000,dport=80),reply=(src=10.244.2.3,dst=10.244.1.4,sport=8080,dport=20000),zone=9,mark=2":   "10.244.1.4 to 10.96.0.9, 10.244.2.3 to 10.244.1.4, 9 ct_nw_src=10.244.1.4,ct_nw_dst=10.96.0.9,ct_nw_proto=17,ct_tp_src=20000,ct_tp_dst=80",
		"udp,orig=(src=fd00::4,dst=fd00:96::9,sport=20000,dport=80),reply=(src=fd00:2::3,dst=fd00::4,sport=8080,dport=20000),zone=64000,labels=0x2": "fd00::4 to fd00:96::9, fd00:2::3 to fd00::4, 64000 ct_ipv6_src=fd00::4,ct_ipv6_dst=fd00:96::9,ct_nw_proto=17,ct_tp_src=20000,ct_tp_dst=80",
		"tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(src=10.0.0.2,dst=172.18.0.9,sport=2,dport=1),protoinfo=(state=TIME_WAIT)":      "10.0.0.1 to 10.0.0.2, 10.0.0.2 to 172.18.0.9, 0 ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=6,ct_tp_src=1,ct_tp_dst=2",
		"icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=1,type=8,code=0),reply=(src=10.0.0.2,dst=10.0.0.1,id=1,type=0,code=0),zone=6":                      "10.0.0.1 to 10.0.0.2, 10.0.0.2 to 10.0.0.1, 6 ",
		"udp,orig=(src=x,dst=y,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1)":                                                    "",
		"udp,orig=(src=1.1.1.1,dst=2.2.2.2,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1)":                                                "",
		"tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1),zone=65536":                             "",
		"udp,": "", "udp,orig=(": "", "": "",
	} {
		got := ""
		if e, ok := parseEntry(line); ok {
			got = fmt.Sprintf("%s to %s, %s to %s, %d %s", e.orig.src, e.orig.dst, e.reply.src, e.reply.dst, e.zone, e.tuple())
		}
		if got != want {
			t.Errorf("%q:\n got %q\nwant %q", line, got, want)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add("tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1),zone=6,protoinfo=(state=SYN_SENT)")
	f.Add("icmp,orig=(src=1.1.1.1,dst=2.2.2.2,id=1,type=8,code=0),reply=(src=2.2.2.2,dst=1.1.1.1,id=1,type=0,code=0)")
	f.Add("tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(),zone=6,labels=0x242ac12003300000000")
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parseEntry(line)
		if !ok {
			return
		}
		for _, d := range []direction{e.orig, e.reply} {
			if !d.src.IsValid() || !d.dst.IsValid() {
				t.Errorf("%q: %+v", line, e)
			}
		}
		if s, ok := steeredBy(e); ok && len(s.Neighbor) != len("02:42:ac:12:00:33") {
			t.Errorf("%q: %+v", line, s)
		}
	})
}

// TestFlushMany: nothing is left of thousands of connections, other connections stay, and
// ovs-vswitchd is not asked to delete them one by one, because it forwards packets itself.
func TestFlushMany(t *testing.T) {
	const many, most = 6000, 100 // entries, and commands
	ns := netnstest.New(t)
	o := ns.OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	o.Run("ovs-ofctl", "del-flows", mgmt) // no other entries
	o.Run("ovs-ofctl", "add-flow", mgmt, "udp,nw_dst=192.0.2.0/24,actions=ct(commit,zone=7,nat(src=172.18.0.33))")
	o.Run("ovs-ofctl", "add-flow", mgmt, "udp,nw_dst=198.51.100.0/24,actions=ct(commit,zone=7,nat(src=172.18.0.44))")
	ns.Run("ip", "addr", "add", "10.244.1.3/24", "dev", "br0")
	ns.Run("ip", "link", "set", "br0", "up")
	ns.Run("ip", "neigh", "add", "10.244.1.1", "lladdr", "02:00:00:00:00:01", "dev", "br0")
	ns.Run("ip", "route", "add", "default", "via", "10.244.1.1")
	entries := func() int { return strings.Count(o.Run("ovs-appctl", "dpctl/dump-conntrack"), "orig=") }
	// fill adds entries, as many at a time as fit in queues.
	fill := func(to string, more int) {
		port, total, arrived := 1024, entries()+more, entries()
		eventually.True(t, fmt.Sprint(total, " entries"), func() bool {
			if entries() < arrived {
				return false
			}
			burst := min(total-arrived, 200)
			<-ns.Go(func() {
				for range burst {
					c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port))))
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = c.Write([]byte("x"))
					_ = c.Close()
					port++
				}
			})
			arrived += burst
			return burst == 0
		})
	}
	commands := func() int {
		for line := range strings.Lines(o.Run("ovs-appctl", "coverage/show")) {
			if f := strings.Fields(line); f[0] == "unixctl_received" {
				n, err := strconv.Atoi(f[len(f)-1])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		return 0
	}
	for name, flush := range map[string]func() error{
		"by addresses": func() error {
			n, err := FlushOVSAddrs(t.Context(), o.Dir, []netip.Addr{addr("172.18.0.33"), addr("172.18.0.55")})
			if n < many {
				t.Errorf("%d entries are said to have gone", n)
			}
			return err
		},
		"by source": func() error { return FlushOVS(t.Context(), o.Dir, 7, Filter{Dst: addr("192.0.2.1")}) },
	} {
		t.Run(name, func(t *testing.T) {
			fill("192.0.2.1", many)
			fill("198.51.100.1", 10)
			others := strings.Count(o.Run("ovs-appctl", "dpctl/dump-conntrack"), "172.18.0.44")
			before := commands()
			if err := flush(); err != nil {
				t.Fatal(err)
			}
			if n := commands() - before; n > most {
				t.Errorf("%d commands", n)
			}
			if left := entries(); left != others || others < 10 {
				t.Errorf("%d entries are left, want %d", left, others)
			}
		})
	}
}
