package topology_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func TestHalves(t *testing.T) {
	for whole, want := range map[string]string{
		"0.0.0.0/0": "[0.0.0.0/1 128.0.0.0/1]", "::/0": "[::/1 8000::/1]",
		"169.254.7.0/16": "[169.254.0.0/17 169.254.128.0/17]", "10.0.0.0/31": "[10.0.0.0/32 10.0.0.1/32]",
		"fe80::/10": "[fe80::/11 fea0::/11]",
	} {
		if got := fmt.Sprint(topology.Halves(netip.MustParsePrefix(whole))); got != want {
			t.Errorf("the halves of %s are %s, want %s", whole, got, want)
		}
	}
	for f, want := range map[topology.Family]string{topology.IPv4: "0.0.0.0/0", topology.IPv6: "::/0"} {
		if got := topology.Everywhere(f).String(); got != want {
			t.Errorf("all addresses of %s are %s, want %s", f, got, want)
		}
	}
}
