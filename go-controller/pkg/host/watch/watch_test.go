package watch

import (
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestWatch deletes one object of each kind with the tools of an administrator.
func TestWatch(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "wire")
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	ns.Run("ip", "addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
	for _, family := range []string{"-4", "-6"} {
		to, via := "198.51.100.0/24", "192.0.2.9"
		if family == "-6" {
			to, via = "2001:db8:1::/64", "2001:db8::9"
		}
		ns.Run("ip", family, "route", "add", to, "via", via, "proto", "79", "table", "1111")
		ns.Run("ip", family, "rule", "add", "priority", "6000", "from", to, "lookup", "1111", "protocol", "79")
	}
	ns.Run("iptables", "-t", "nat", "-N", "OVN-KUBE-TEST")
	ns.Run("iptables", "-t", "nat", "-A", "OVN-KUBE-TEST", "-j", "RETURN")
	ns.Run("ip6tables", "-t", "nat", "-N", "OVN-KUBE-TEST")

	told := make(chan string, 1000)
	kind := func(name string) func() { return func() { told <- name } }
	err := Watch(t.Context(), Functions{
		IPRules: kind("ip rules"), Routes: kind("routes"), Addresses: kind("addresses"),
		Settings: kind("settings"), NFTables: kind("nftables"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want    string
		command []string
	}{
		{"ip rules", []string{"ip", "rule", "del", "priority", "6000"}},
		{"ip rules", []string{"ip", "-6", "rule", "del", "priority", "6000"}},
		{"routes", []string{"ip", "route", "del", "198.51.100.0/24", "table", "1111"}},
		{"routes", []string{"ip", "-6", "route", "flush", "table", "1111"}},
		{"addresses", []string{"ip", "addr", "change", "192.0.2.1/24", "dev", "eth0", "preferred_lft", "0"}},
		{"addresses", []string{"ip", "addr", "change", "2001:db8::1/64", "dev", "eth0", "preferred_lft", "0"}},
		{"addresses", []string{"ip", "addr", "del", "192.0.2.1/24", "dev", "eth0"}},
		{"addresses", []string{"ip", "addr", "del", "2001:db8::1/64", "dev", "eth0"}},
		{"settings", []string{"sysctl", "-q", "net.ipv4.conf.eth0.rp_filter=2"}},
		{"settings", []string{"sysctl", "-q", "net.ipv4.ip_forward=1"}},
		{"settings", []string{"sysctl", "-q", "net.ipv6.conf.all.forwarding=1"}},
		{"nftables", []string{"iptables", "-t", "nat", "-F", "OVN-KUBE-TEST"}},
		{"nftables", []string{"ip6tables", "-t", "nat", "-X", "OVN-KUBE-TEST"}},
		{"nftables", []string{"nft", "flush", "ruleset"}},
	} {
		for len(told) > 0 { // notifications of the previous step
			<-told
		}
		ns.Run(c.command[0], c.command[1:]...)
		eventually.True(t, "news of "+c.want+" after "+c.command[0], func() bool {
			select {
			case got := <-told:
				return got == c.want
			default:
				return false
			}
		})
	}
}

// TestOthers: routes of other programs and added objects are not reported.
func TestOthers(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "wire")
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	told := make(chan string, 1000)
	kind := func(name string) func() { return func() { told <- name } }
	if err := Watch(t.Context(), Functions{IPRules: kind("ip rules"), Routes: kind("routes")}); err != nil {
		t.Fatal(err)
	}
	ns.Run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.9")
	ns.Run("ip", "route", "del", "198.51.100.0/24")
	ns.Run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.9", "proto", "79")
	ns.Run("ip", "rule", "add", "priority", "7000", "from", "192.0.2.7", "lookup", "main")
	ns.Run("nft", "add", "table", "inet", "theirs") // nobody has subscribed to these
	ns.Run("ip", "rule", "del", "priority", "7000")
	got := ""
	eventually.True(t, "news of the rule", func() bool {
		select {
		case got = <-told:
			return true
		default:
			return false
		}
	})
	if got != "ip rules" {
		t.Errorf("was told first of %s", got)
	}
}
