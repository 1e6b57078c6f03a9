package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
)

func TestNodes(t *testing.T) {
	c, err := config.Cluster{Nodes: 4}.Default()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ovn-control-plane 02:42:ac:12:00:02 [172.18.0.2/16 fc00:f853:ccd:e793::2/64] true",
		"ovn-worker 02:42:ac:12:00:03 [172.18.0.3/16 fc00:f853:ccd:e793::3/64] false",
		"ovn-worker2 02:42:ac:12:00:04 [172.18.0.4/16 fc00:f853:ccd:e793::4/64] false",
		"ovn-worker3 02:42:ac:12:00:05 [172.18.0.5/16 fc00:f853:ccd:e793::5/64] false",
	}
	own := Networks(c)[0]
	for i, n := range Nodes(c) {
		if got := fmt.Sprint(n.Name, " ", own.NodeMAC(n), " ", n.Addresses, " ", n.ControlPlane()); got != want[i] {
			t.Errorf("node %d: got %s, want %s", i, got, want[i])
		}
	}
	if _, found := NodeNamed(c, "ovn-worker4"); found {
		t.Error("found a node that is not there")
	}
}

func TestNetworks(t *testing.T) {
	blue := config.Network{Name: "blue", Subnets: []netip.Prefix{netip.MustParsePrefix("fd00:50::/64"), netip.MustParsePrefix("192.168.50.0/24")}}
	green := config.Network{Name: "green", Subnets: []netip.Prefix{netip.MustParsePrefix("192.168.60.0/24")}}
	c, err := config.Cluster{Networks: []config.Network{blue, green}}.Default()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0  br0 eth0 [172.18.0.1/16 fc00:f853:ccd:e793::1/64] [172.18.0.3/16 fc00:f853:ccd:e793::3/64] 02:42:ac:12:00:03",
		"1 blue br1 eth1 [192.168.50.1/24 fd00:50::1/64] [192.168.50.3/24 fd00:50::3/64] 02:42:ac:13:00:03",
		"2 green br2 eth2 [192.168.60.1/24] [192.168.60.3/24] 02:42:ac:14:00:03",
	}
	node := Nodes(c)[1]
	for i, n := range Networks(c) {
		got := fmt.Sprintf("%d %s %s %s %v %v %s", n.Index, n.Name, n.Bridge, n.Interface, n.Gateways(), n.Node(node), n.NodeMAC(node))
		if got != want[i] {
			t.Errorf("network %d: got %s, want %s", i, got, want[i])
		}
	}
}

func TestHostMAC(t *testing.T) {
	for want, texts := range map[string][]string{
		"02:42:ac:12:00:64": {"fc00:f853:ccd:e793::64/64", "172.18.0.100/16"},
		"02:43:00:01:00:64": {"fc00:f853:ccd:e793::1:64/64"},
	} {
		var addresses []netip.Prefix
		for _, text := range texts {
			addresses = append(addresses, netip.MustParsePrefix(text))
		}
		if got := HostMAC(addresses); got != want {
			t.Errorf("%v: got %s, want %s", texts, got, want)
		}
	}
}

func TestHostCarries(t *testing.T) {
	for _, c := range []struct {
		subnet string
		number int
		want   string
	}{
		{"10.0.0.0/16", 0, "10.0.0.0/16"},
		{"10.0.0.0/16", 255, "10.0.0.255/16"},
		{"10.0.0.0/16", 256, "10.0.1.0/16"},
		{"10.0.255.240/28", 15, "10.0.255.255/28"},
		{"fd00:10:96::/112", 258, "fd00:10:96::102/112"},
		{"fd00::ff00/120", 10, "fd00::ff0a/120"},
	} {
		if got := Host(netip.MustParsePrefix(c.subnet), c.number); got.String() != c.want {
			t.Errorf("host %d of %s: got %s, want %s", c.number, c.subnet, got, c.want)
		}
	}
}
