package app

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestFlushLed: connections of newly led pods that leave the cluster lose the address of another link, but not that of one of the external
// bridges. As long as these are not known, all stay.
func TestFlushLed(t *testing.T) {
	n, ns, a := hostNode(t), netnstest.New(t), netip.MustParseAddr
	for dev, addr := range map[string]string{topology.ManagementPort: "10.128.0.2/24", "breth0": "172.18.0.3/16", "breth1": "10.50.0.3/24",
		"eth1": "10.10.10.3/24", "eth2": "192.168.50.3/24"} {
		ns.Veth(dev, "x-"+dev)
		ns.Run("ip", "addr", "add", addr, "dev", dev)
	}
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf."+topology.ManagementPort+".rp_filter=0")
	ns.Run("ip", "route", "add", "default", "via", "192.168.50.1")
	pods, all := map[netip.Addr]bool{}, []netip.Addr{}
	for i, c := range []struct{ dst, to string }{
		{"198.51.100.9", "10.10.10.3"}, {"198.51.100.9", "172.18.0.3"}, {"198.51.100.9", "10.50.0.3"}, {"169.254.169.254", "10.10.10.3"}, {"198.51.100.9", "10.10.10.3"},
	} {
		pod := netip.AddrFrom4([4]byte{10, 128, 0, byte(10 + i)})
		connect(t, pod, a(c.dst), a(c.to))
		all, pods[pod] = append(all, pod), i < 4
	}
	check := func(what string, want []netip.Addr) {
		t.Helper()
		if err := n.flushLed()(t.Context(), pods); err != nil {
			t.Fatal(err)
		}
		if got := connected(t); !slices.Equal(got, want) {
			t.Errorf("%s: connections of %v are left, want %v", what, got, want)
		}
	}
	check("without a bridge", all)
	gateway := topology.Node{Name: n.name, Gateway: topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_n1", MAC: "02:42:ac:12:00:03",
		External: topology.ExternalAttachment{InterfaceID: "breth1_n1", MAC: "02:42:ac:12:00:04", Addrs: []netip.Prefix{netip.MustParsePrefix("10.50.0.3/24")}},
		Addrs:    []netip.Prefix{netip.MustParsePrefix("172.18.0.3/16")}}}
	self := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Annotations: kube.FormatNode(gateway)}}
	if err := n.self.Informer().GetStore().Add(self); err != nil {
		t.Fatal(err)
	}
	check("with both", all[1:])
}
