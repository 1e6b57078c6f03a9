package app

import (
	"context"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestLeftoversWaitForTheGateway: after a restart, the management port keeps its addresses, routes and rules
// until the gateway has contributed them again, even if it has to wait for Open vSwitch meanwhile.
func TestLeftoversWaitForTheGateway(t *testing.T) {
	ns := netnstest.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	n := newNode(clusterEnv(t), "n1")
	n.switches = ovs.New(ctx, "unix:/nonexistent")
	if err := n.viewSelf(nodeInformers(n.env, n.name)); err != nil {
		t.Fatal(err)
	}
	if err := n.hostWriters(ctx); err != nil {
		t.Fatal(err)
	}
	n.addGateway()
	const masquerade = "-A OVN-KUBE-MASQ -s 10.128.1.0/24 -j MASQUERADE"
	ns.Veth(topology.ManagementPort, "peer")
	for _, cmd := range []string{
		"ip addr add 10.128.1.2/24 dev " + topology.ManagementPort,
		"ip route add 10.128.0.0/14 via 10.128.1.1 proto 79",
		"iptables -t nat -N OVN-KUBE-MASQ", "iptables -t nat " + masquerade,
	} {
		words := strings.Fields(cmd)
		ns.Run(words[0], words[1:]...)
	}
	d := n.kept
	d.swept = map[string]sweeper{routes: n.routes, addresses: n.addrs, chains: n.chains}
	d.trim = func(context.Context) error { return nil }
	d.synced = n.synced
	if err := d.resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := ns.Run("ip", "addr", "show", "dev", topology.ManagementPort) + ns.Run("ip", "route") + ns.Run("iptables-save", "-t", "nat")
	for _, want := range []string{"10.128.1.2/24", "10.128.0.0/14 via 10.128.1.1", masquerade} {
		if !strings.Contains(left, want) {
			t.Errorf("%s is gone:\n%s", want, left)
		}
	}
}
