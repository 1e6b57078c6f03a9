package egressip

import (
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestOther: Other returns any other node whose status entry lists an address.
func TestOther(t *testing.T) {
	status := v1.EgressIPStatus{Programmed: []v1.ProgrammedStatus{
		{Node: "a", EgressIPs: []string{"172.18.0.33"}}, {Node: "b", EgressIPs: []string{"172.18.0.44", "172.18.0.55"}},
	}}
	for _, c := range []struct{ node, addr, want string }{
		{"a", "172.18.0.33", ""}, {"b", "172.18.0.33", "a"}, {"a", "172.18.0.55", "b"}, {"c", "172.18.0.44", "b"}, {"c", "172.18.0.66", ""},
	} {
		if got := Other(status, c.node, netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("besides %s %q has %s, want %q", c.node, got, c.addr, c.want)
		}
	}
}
