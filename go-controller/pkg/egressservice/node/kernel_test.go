package node

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// family is the test data of TestDefaultRoute for a family.
type family struct {
	flag, bits                       string
	mp0, uplink, other               string // the host's addresses
	gateway, otherGateway            string
	pod, cluster, local              string // the senders
	added                            string // the cluster address in a range that was added to the cluster
	inside                           []string
	peer, apiServer, outside, client string // addresses outside the cluster, except for peer
	usual                            map[string]string
}

var families = []family{{
	flag: "-4", bits: "/32",
	mp0: "10.244.1.2/24", uplink: "172.18.0.3/16", other: "192.168.50.3/24",
	gateway: "172.18.0.1", otherGateway: "192.168.50.1",
	pod: "10.244.1.5", cluster: "10.96.0.7", local: "169.254.169.3", added: "10.97.0.7",
	inside: []string{"10.244.0.0/16", "10.96.0.0/16", "172.18.0.4/32", "192.168.50.4/32", "203.0.113.6/32"},
	peer:   "172.18.0.4", apiServer: "203.0.113.6", outside: "198.51.100.9", client: "172.18.0.100",
	usual: map[string]string{
		"10.244.2.7": "mp0", "10.96.0.1": "mp0", "172.18.0.4": "breth0", "192.168.50.4": "eth1", "203.0.113.6": "breth0",
	},
}, {
	flag: "-6", bits: "/128",
	mp0: "fd00:10:244:1::2/64", uplink: "fc00:f853:ccd:e793::3/64", other: "fd50::3/64",
	gateway: "fc00:f853:ccd:e793::1", otherGateway: "fd50::1",
	pod: "fd00:10:244:1::5", cluster: "fd00:10:96::7", local: "fd69::3", added: "fd00:10:97::7",
	inside: []string{"fd00:10:244::/48", "fd00:10:96::/112", "fc00:f853:ccd:e793::4/128", "fd50::4/128", "2001:db8::6/128"},
	peer:   "fc00:f853:ccd:e793::4", apiServer: "2001:db8::6", outside: "2001:db8:9::9", client: "fc00:f853:ccd:e793::100",
	usual: map[string]string{
		"fd00:10:244:2::7": "mp0", "fd00:10:96::1": "mp0", "fc00:f853:ccd:e793::4": "breth0", "fd50::4": "eth1", "2001:db8::6": "breth0",
	},
}}

// TestDefaultRoute checks the kernel's routes for packets of a network with a default route:
// packets to the cluster itself take the usual routes, all others the network,
// whether they are from a pod of the node, or replies of the Service.
func TestDefaultRoute(t *testing.T) {
	for _, f := range families {
		for _, by := range []string{"me", v1.HostAll} {
			t.Run(f.flag[1:]+"/"+by, func(t *testing.T) {
				ns := netnstest.New(t)
				ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
				for _, l := range [][2]string{{"mp0", f.mp0}, {"breth0", f.uplink}, {"eth1", f.other}, {"blue", ""}} {
					ns.Veth(l[0], l[0]+"-peer")
					ns.Run("sysctl", "-qw", "net.ipv4.conf."+l[0]+".rp_filter=1")
					if l[1] != "" {
						ns.Run("ip", f.flag, "addr", "add", l[1], "dev", l[0], "nodad")
					}
				}
				ns.Run("sysctl", "-qw", "net.ipv4.conf.mp0.rp_filter=2")
				ns.Run("ip", f.flag, "route", "add", "default", "via", f.gateway)
				for _, p := range f.inside[:2] {
					ns.Run("ip", f.flag, "route", "add", p, "dev", "mp0")
				}
				ns.Run("ip", f.flag, "route", "add", f.added, "dev", "mp0")
				ns.Run("ip", f.flag, "route", "add", "default", "dev", "blue", "table", "100")
				// What the kernel does with packets that arrive by a VRF device, which not every kernel has.
				ns.Run("ip", f.flag, "rule", "add", "priority", "1000", "iif", "blue", "lookup", "100")

				s := egressservice.Service{Host: by, Network: "blue", ClusterIPs: []netip.Addr{netip.MustParseAddr(f.cluster), netip.MustParseAddr(f.added)},
					Endpoints:  []egressservice.Endpoint{{Addr: netip.MustParseAddr(f.pod), Node: "me"}},
					LocalPorts: []egressservice.LocalPort{{Addr: netip.MustParseAddr(f.local), Protocol: "tcp", Port: 30080}}}
				var inside []netip.Prefix
				for _, p := range f.inside {
					inside = append(inside, netip.MustParsePrefix(p))
				}
				rules := iprule.NewSet()
				if err := rules.Apply(t.Context(), "a", egressservice.IPRules(s, "me", host.RoutingTable{Number: 100, VRF: true}, inside[:2], inside)); err != nil {
					t.Fatal(err)
				}

				get := func(args ...string) string {
					t.Helper()
					out, err := ns.Try("ip", append([]string{f.flag, "route", "get"}, args...)...)
					if err != nil {
						return err.Error()
					}
					words := strings.Fields(out)
					for i, w := range words {
						if w == "dev" {
							return words[i+1]
						}
					}
					return out
				}
				check := func(want string, args ...string) {
					t.Helper()
					if got := get(args...); got != want {
						t.Errorf("%s: leaves by %s, want %s", strings.Join(args, " "), got, want)
					}
				}
				for _, from := range []string{f.pod, f.cluster, f.added} {
					for to, usual := range f.usual {
						check(usual, to, "from", from, "iif", "mp0")
					}
					for _, to := range []string{f.outside, f.client} {
						check("blue", to, "from", from, "iif", "mp0")
					}
				}
				local := []string{"from", f.local, "iif", "mp0", "ipproto", "tcp", "sport"}
				check("blue", append(append([]string{f.outside}, local...), "30080")...)
				check("breth0", append(append([]string{f.peer}, local...), "30080")...)
				check("breth0", append(append([]string{f.outside}, local...), "30081")...) // of another Service
				check("breth0", f.outside, "from", another(f.pod), "iif", "mp0")
				// Replies of nodes must pass the reverse path filter.
				check("mp0", f.pod, "from", f.peer, "iif", "breth0")
				check("mp0", f.pod, "from", f.apiServer, "iif", "breth0")
				check("mp0", f.pod, "from", f.outside, "iif", "blue")
				check("mp0", f.cluster, "from", f.outside, "iif", "blue")
				check("mp0", f.added, "from", f.outside, "iif", "blue")
				check("blue", f.peer, "from", f.outside, "iif", "blue")

				if err := rules.Apply(t.Context(), "a", nil); err != nil {
					t.Fatal(err)
				}
				check("breth0", f.outside, "from", f.pod, "iif", "mp0")
				if out := ns.Run("ip", f.flag, "rule", "list"); strings.Contains(out, "999:") {
					t.Errorf("rules stay:\n%s", out)
				}
			})
		}
	}
}

// another returns the address of a pod next to the given one.
func another(pod string) string { return fmt.Sprint(netip.MustParseAddr(pod).Next()) }
