package node

import (
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestVLAN puts the host's traffic into a VLAN, takes it out again, and configures
// the certificates of ovn-controller.
func TestVLAN(t *testing.T) {
	l := newLab(t)
	l.rewire()
	farIn := func(vlan string) { l.vs.Run("ovs-vsctl", "set", "port", "sw1", "tag="+vlan) }
	start := func(vlan int) {
		g := l.start(l.db)
		g.VLAN = vlan
		g.TLS = ovs.TLS{PrivateKey: "/k", Certificate: "/c", CACert: "/ca"}
		l.mustPass(g)
		if err := g.Flows.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	farIn("7")
	start(7) // early flows
	l.reachable()
	l.annotate(kube.AnnotationNodeSubnets, subnets)
	l.patchPort()
	start(7) // all flows
	l.reachable()
	n, err := l.node.Core().V1().Nodes().Lister().Get(nodeName)
	if err != nil || !strings.Contains(n.Annotations[kube.AnnotationL3Gateway], `"vlan-id":"7"`) {
		t.Errorf("l3-gateway-config: %v, %v", n.Annotations, err)
	}
	l.vs.Run("ovs-vsctl", "clear", "port", "sw1", "tag")
	start(0)
	l.reachable()
	if got := l.vs.Run("ovs-vsctl", "get", "port", "breth0", "tag"); got != "[]" {
		t.Errorf("the local port keeps tag %s", got)
	}
	if got := l.vs.Run("ovs-vsctl", "get-ssl"); !strings.Contains(got, "Private key: /k") || !strings.Contains(got, "CA Certificate: /ca") {
		t.Errorf("TLS files are\n%s", got)
	}
}

// rewire inserts a VLAN-aware switch between the node and the other machine, which
// is on an access port.
func (l *lab) rewire() {
	l.t.Helper()
	l.ns.Run("ip", "link", "del", "eth0")
	l.ns.Run("ip", "link", "add", "eth0", "address", nodeMAC, "type", "veth", "peer", "name", "sw0")
	l.ns.Run("ip", "link", "add", "sw1", "type", "veth", "peer", "name", "far0", "netns", "far")
	l.far("ip", "link", "set", "far0", "up")
	l.far("ip", "addr", "add", "172.18.0.1/16", "dev", "far0")
	l.far("ip", "addr", "add", "fc00:18::1/64", "dev", "far0", "nodad")
	l.far("ethtool", "-K", "far0", "tx", "off", "tso", "off", "gso", "off")
	l.ns.Run("ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
	for _, dev := range []string{"sw0", "sw1"} {
		if err := link.Mute(dev); err != nil {
			l.t.Fatal(err)
		}
		l.ns.Run("ip", "link", "set", dev, "up")
	}
	l.vs.Run("ovs-vsctl", "add-br", "switch", "--", "set", "bridge", "switch", "datapath_type=netdev",
		"--", "add-port", "switch", "sw0", "--", "add-port", "switch", "sw1")
	l.hostAddresses("eth0")
}
