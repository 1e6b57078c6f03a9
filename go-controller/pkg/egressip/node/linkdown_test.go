package node

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/routed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestLinkDown: when the link of an address on a secondary network goes down, the kernel
// deletes the routes through it at once. Traffic that pods of the EgressIP send to this node
// until they are led elsewhere does not leave by another link, with another address:
// neither before this node has noticed nor afterwards.
func TestLinkDown(t *testing.T) {
	node := netnstest.New(t)
	ends := routed.New(t, node)
	for _, c := range []struct{ addr, tool, subnet string }{
		{"10.244.1.4/24", "iptables", "10.244.1.0/24"}, {"fd00:10:244:2::4/64", "ip6tables", "fd00:10:244:2::/64"},
	} {
		ends.AddPod(c.addr)
		node.Run(c.tool, "-t", "nat", "-A", "POSTROUTING", "!", "-o", topology.ManagementPort, "-s", c.subnet, "-j", "MASQUERADE")
	}
	l := &lab{t: t, ns: node, ids: ids{}}
	l.restart()
	l.apply(prepared())
	node.Run("ip", "link", "set", "dummy", "down")
	for _, step := range []struct {
		what  string
		state egressip.HostState
	}{
		{"before the node has noticed", prepared()},
		{"when it has", unlinked()},
	} {
		if step.what != "before the node has noticed" {
			l.apply(step.state)
		}
		for _, c := range []struct{ pod, other, server string }{
			{inbound[0].pod, "10.244.1.4", "192.0.2.9"}, {inbound[1].pod, "fd00:10:244:2::4", "2001:db8::9"},
		} {
			server := ends.Listen(ends.Outside, c.server, 0)
			for _, from := range []string{c.pod, c.other} { // packets of the second pod arrive after those of the first
				ends.Send(ends.Listen(ends.Pods, from, 0), from, server.LocalAddr())
			}
			for sender := ""; sender != c.other; {
				text, from := ends.Receive(server)
				if sender = text; sender == c.pod {
					t.Errorf("%s: what %s sends leaves with %s", step.what, sender, from)
				}
			}
		}
	}
}

// unlinked returns a node's state for an EgressIP whose link is lost.
func unlinked() egressip.HostState {
	pods := []netip.Addr{netip.MustParseAddr(inbound[0].pod), netip.MustParseAddr(inbound[1].pod)}
	assignments := []egressip.LinkAssignment{{Addr: netip.MustParseAddr("10.10.10.5")}, {Addr: netip.MustParseAddr("fd10::5")}}
	return egressip.HostPlan(assignments, func(netip.Addr) bool { return false }, pods)
}

// TestNoLinkLeft: pods that are led to this node and have no route here any more are kept from
// the host's other links until they are led elsewhere, and no longer.
func TestNoLinkLeft(t *testing.T) {
	const blocked, way = "6000:\tfrom 10.244.1.3 lookup 1000", "6000:\tfrom 10.244.1.3 lookup 1111"
	lose := func(w *world, _ *Controller) { w.setNetworks(w.networks[0]) }
	move := func(w *world, _ *Controller) {
		w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+other) })
	}
	take := func(w *world, _ *Controller) { w.change("prod", func(e *v1.EgressIP) { give(e) }) }
	leave := func(_ *world, c *Controller) { c.setLeaving() }
	end := func(w *world, c *Controller) { c.dropReleased(w.t.Context()) }
	for _, c := range []struct {
		what  string
		drop  bool
		steps []func(*world, *Controller)
		want  string // that ends, but for the first
	}{
		{what: "link lost", steps: []func(*world, *Controller){lose}, want: blocked},
		{what: "link lost, moved", steps: []func(*world, *Controller){lose, move}, want: blocked},
		{what: "moved", steps: []func(*world, *Controller){move}, want: way},
		{what: "moved because this process is to end", steps: []func(*world, *Controller){leave, move}, want: way},
		{what: "moved, and this process ends", steps: []func(*world, *Controller){leave, move, end}, want: blocked},
		{what: "moved while this process ends", steps: []func(*world, *Controller){leave, end, move}, want: blocked},
		{what: "no node left", drop: true, steps: []func(*world, *Controller){take}, want: blocked},
		{what: "link lost, no node left", drop: true, steps: []func(*world, *Controller){lose, take}, want: blocked},
		{what: "no node left, and another address leads elsewhere", steps: []func(*world, *Controller){func(w *world, _ *Controller) {
			w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.6 "+other) })
		}}, want: blocked},
		{what: "no node left, and pods leave by their nodes", steps: []func(*world, *Controller){take}},
		{what: "link lost, no node left, and pods leave by their nodes", steps: []func(*world, *Controller){lose, take}},
		{what: "deleted", drop: true, steps: []func(*world, *Controller){func(w *world, _ *Controller) {
			if err := w.api.EgressIPV1().EgressIPs().Delete(w.t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
		}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := secondary("10.10.10.5 " + self)
				if c.drop {
					e.Spec.OnUnavailable = v1.UnavailableDrop
				}
				w := newWorld(t, e)
				w.pod("red", "web", "10.244.1.3/24")
				controller, _ := w.run()
				w.saysEventually("prod", self+" 10.10.10.5")
				for _, step := range c.steps {
					step(w, controller)
					<-time.After(time.Second) // in fake time
					synctest.Wait()
				}
				got := w.dump()
				if has := strings.Contains(got, blocked); has != (c.want == blocked) || strings.Contains(got, way) != (c.want == way) {
					t.Errorf("has\n%s\nwant %q", got, c.want)
				}
				if c.want == blocked && (!strings.Contains(got, "blackhole default table 1000") || strings.Contains(got, "-j SNAT")) {
					t.Errorf("has\n%s", got)
				}
				<-time.After(time.Minute)
				synctest.Wait()
				left := w.dump()
				if stays := len(c.steps) == 1 && c.what == "link lost"; strings.Contains(left, blocked) != stays || strings.Contains(left, way) {
					t.Errorf("a minute later:\n%s", left)
				}
			})
		})
	}
}
