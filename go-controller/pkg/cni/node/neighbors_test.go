package node

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestNeighbors: the kernel has neighbor entries of pods and the router without resolving
// them: nothing answers on this management port.
func TestNeighbors(t *testing.T) {
	l := newLab(t)
	const mp0, router, pod = topology.ManagementPort, "0a:58:0a:f4:01:01", "0a:58:0a:f4:01:05"
	manage := func() {
		l.ns.Run("ip", "link", "add", mp0, "type", "veth", "peer", "name", "switch")
		l.ns.Run("ip", "addr", "add", "10.244.1.2/24", "dev", mp0)
		l.ns.Run("ip", "addr", "add", "fd00:10:244:2::2/64", "dev", mp0, "nodad")
		l.ns.Run("ip", "link", "set", mp0, "up")
		l.ns.Run("ip", "link", "set", "switch", "up")
	}
	known := func(what string, want ...string) {
		t.Helper()
		is := l.ns.Run("ip", "neigh", "show", "dev", mp0, "nud", "permanent") + "\n"
		for _, w := range want {
			if !strings.Contains(is, w+" \n") && !strings.Contains(is, w+"\n") {
				t.Errorf("%s: the kernel does not know %q:\n%s", what, w, is)
			}
		}
		if n := strings.Count(is, "lladdr"); n != len(want) {
			t.Errorf("%s: %d neighbours, want %d:\n%s", what, n, len(want), is)
		}
	}
	routers := []string{"10.244.1.1 lladdr " + router + " PERMANENT", "fd00:10:244:2::1 lladdr " + router + " PERMANENT"}
	pods := []string{"10.244.1.5 lladdr " + pod + " PERMANENT", "fd00:10:244:2::5 lladdr " + pod + " PERMANENT"}
	collect := func() {
		t.Helper()
		if err := l.server.collect(context.Background()); err != nil {
			t.Fatal(err)
		}
	}

	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1")) // without a management port
	manage()
	collect()
	known("a management port that comes later", append(routers, pods...)...)
	l.ns.Run("ip", "link", "del", mp0)
	manage()
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
	known("ADD", append(routers, pods...)...)
	l.ns.Run("ip", "neigh", "replace", "10.244.1.5", "lladdr", router, "dev", mp0, "nud", "permanent")
	collect()
	known("another MAC address", append(routers, pods...)...)
	l.mustHandle(l.request(cni.CommandDel, "sb1", "web", "u1"))
	known("DEL", routers...)
	l.server.pods.subnets = func() []netip.Prefix { return nil }
	collect()
	known("subnets that are not known for now", routers...)
}
