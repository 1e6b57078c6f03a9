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
	for i, n := range Nodes(c) {
		if got := fmt.Sprint(n.Name, " ", n.MAC, " ", n.Addresses, " ", n.ControlPlane()); got != want[i] {
			t.Errorf("node %d: got %s, want %s", i, got, want[i])
		}
	}
	if got := fmt.Sprint(Gateways(c)); got != "[172.18.0.1/16 fc00:f853:ccd:e793::1/64]" {
		t.Errorf("gateways: %s", got)
	}
	if _, found := NodeNamed(c, "ovn-worker4"); found {
		t.Error("found a node that is not there")
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
