package master

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// chassis simulates ovn-controllers that confirm when they have applied changes.
type chassis struct {
	says  map[string]chan struct{}
	asked *atomic.Int32
}

func (c chassis) Wait(ctx context.Context, name string) error {
	says, ok := c.says[name]
	if ok {
		c.asked.Add(1)
	}
	if !ok {
		return nil
	}
	select {
	case <-says:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow returns chassis, one of which does not confirm until say is called.
func slow(name string) (c chassis, say func()) {
	c = chassis{map[string]chan struct{}{name: make(chan struct{})}, &atomic.Int32{}}
	return c, func() { c.says[name] <- struct{}{} }
}

// sessionsOf returns the number of BFD sessions of a node in the database.
func sessionsOf(nb *nbfake.Writer, node string) int {
	n := 0
	for _, r := range nb.Rows(externalroute.Owner(node)) {
		if _, ok := r.Model.(*nbdb.BFD); ok {
			n++
		}
	}
	return n
}

// changeGateway changes how the node n0 is attached to its networks.
func (w *world) changeGateway(t *testing.T, change func(*topology.Gateway)) {
	t.Helper()
	n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known, err := kube.Node(n)
	if err != nil {
		t.Fatal(err)
	}
	change(&known.Gateway)
	n.Annotations[kube.AnnotationL3Gateway] = kube.FormatL3Gateway(known.Gateway)
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deletePolicy(t *testing.T, w *world, name string) {
	t.Helper()
	err := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Delete(context.Background(), name, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSessionAgain: a session that is wanted again is written only after ovn-controller of its
// node has ended the previous one, for which it would mistake the new one otherwise. Other
// nodes and other sessions do not wait for that.
func TestSessionAgain(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), node(1), namespace("red"), pod("red", 0, 0), pod("red", 1, 1), policy("p", anyGWs, hops("172.18.0.51")))
	var say func()
	w.barrier, say = slow("chassis0")
	w.start()
	w.reported("p")
	deletePolicy(t, w, "p")
	w.eventually("all rows to be gone", func() bool { return nb.Dump() == "" })

	w.create(policy("p", anyGWs, hops("172.18.0.51", "172.18.0.52")))
	w.reported("p")
	w.eventually("the session of the other node", func() bool { return sessionsOf(nb, "n1") == 2 })
	if n := sessionsOf(nb, "n0"); n != 1 || !strings.Contains(nb.Dump(), "172.18.0.52") {
		t.Fatalf("%d sessions of a node that has not ended one:\n%s", n, nb.Dump())
	}
	if n := routes(nb); n != 3 {
		t.Errorf("%d routes, of which one would refer to no session:\n%s", n, nb.Dump())
	}
	say()
	w.eventually("the session of the node", func() bool { return sessionsOf(nb, "n0") == 2 && routes(nb) == 4 })
}

// TestSessionRemovedByOthers: the same if somebody else removed the row.
func TestSessionRemovedByOthers(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
	var say func()
	w.barrier, say = slow("chassis0")
	w.start()
	w.reported("p")
	var id string
	for _, r := range nb.Rows(externalroute.Owner("n0")) {
		if _, ok := r.Model.(*nbdb.BFD); ok {
			id = r.ID
		}
	}
	if !nb.Remove(externalroute.Owner("n0"), nbdb.BFDTable, id) {
		t.Fatal("there is no session")
	}
	w.eventually("the route without a session to go", func() bool { return routes(nb) == 0 })
	if n := sessionsOf(nb, "n0"); n != 0 {
		t.Errorf("%d sessions of a node that has not ended one", n)
	}
	say()
	w.eventually("the session", func() bool { return sessionsOf(nb, "n0") == 1 && routes(nb) == 1 })
}

// TestSessionOfAnotherChassis: missing confirmations of a former chassis of a node delay
// nothing.
func TestSessionOfAnotherChassis(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
	w.barrier, _ = slow("chassis0")
	w.start()
	w.reported("p")
	deletePolicy(t, w, "p")
	w.eventually("all rows to be gone", func() bool { return nb.Dump() == "" })
	n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Annotations[kube.AnnotationChassisID] = "another"
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.create(policy("p", anyGWs, hops("172.18.0.51")))
	w.eventually("the session", func() bool { return sessionsOf(nb, "n0") == 1 })
}

// TestSessionOnAnotherUplink: a gateway that its node now reaches through a second uplink
// has a new session, which is written when the previous one has ended.
func TestSessionOnAnotherUplink(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("192.168.50.51")))
	var say func()
	w.barrier, say = slow("chassis0")
	w.start()
	w.reported("p")
	if n := sessionsOf(nb, "n0"); n != 1 || !strings.Contains(nb.Dump(), "logical_port=rtoe-GR_n0") {
		t.Fatalf("%d sessions:\n%s", n, nb.Dump())
	}
	w.changeGateway(t, func(g *topology.Gateway) {
		g.External = topology.ExternalAttachment{InterfaceID: "breth1_n0", MAC: "02:42:c0:a8:32:03",
			Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.50.3/24")}}
	})
	w.eventually("the former session and its route to go", func() bool { return sessionsOf(nb, "n0") == 0 && routes(nb) == 0 })
	say()
	w.eventually("the session by the second uplink", func() bool {
		return sessionsOf(nb, "n0") == 1 && routes(nb) == 1 && strings.Contains(nb.Dump(), "logical_port=exgw-rtoe-GR_n0")
	})
}

// TestSessionFromAnotherAddress: ovn-controller sends a session from the address that its port had when the
// session began. A node that gets another one ends the session and begins another, even if no master runs at that time.
func TestSessionFromAnotherAddress(t *testing.T) {
	for what, change := range map[string]func(*topology.Gateway){
		"MAC address":                      func(g *topology.Gateway) { g.MAC = "02:42:ac:12:00:99" },
		"IP address":                       func(g *topology.Gateway) { g.Addrs[0] = netip.MustParsePrefix("172.18.0.99/16") },
		"IP address, while no master runs": func(g *topology.Gateway) { g.Addrs[0] = netip.MustParsePrefix("172.18.0.99/16") },
	} {
		t.Run(what, func(t *testing.T) {
			nb := fake()
			w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
			var say func()
			w.barrier, say = slow("chassis0")
			w.start()
			w.reported("p")
			if strings.HasSuffix(what, "while no master runs") {
				w.stop()
				w.changeGateway(t, change)
				w.start()
			} else {
				w.changeGateway(t, change)
			}
			w.eventually("the former session and its route to go", func() bool { return sessionsOf(nb, "n0") == 0 && routes(nb) == 0 })
			say()
			w.eventually("the next session", func() bool { return sessionsOf(nb, "n0") == 1 && routes(nb) == 1 })
		})
	}
}

// TestSessionOfDeadChassis: a chassis that does not confirm the end of a session is asked less and less often,
// because every chassis reports each time.
func TestSessionOfDeadChassis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nb := fake()
		w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
		var say func()
		w.barrier, say = slow("chassis0")
		w.start()
		w.reported("p")
		deletePolicy(t, w, "p")
		w.eventually("all rows to be gone", func() bool { return nb.Dump() == "" })
		w.create(policy("p", anyGWs, hops("172.18.0.51")))
		<-time.After(time.Hour)
		if n := w.barrier.asked.Load(); n < 2 || n > 20 {
			t.Errorf("asked %d times in an hour", n)
		}
		say()
		w.eventually("the session", func() bool { return sessionsOf(nb, "n0") == 1 })
	})
}

// TestSessionAwaitedNoMore: a deleted node leaves no waits behind.
func TestSessionAwaitedNoMore(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
	w.barrier, _ = slow("chassis0")
	c := w.start()
	w.reported("p")
	deletePolicy(t, w, "p")
	w.eventually("all rows to be gone", func() bool { return nb.Dump() == "" })
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), "n0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("nothing to be remembered", func() bool {
		c.sessions.mu.Lock()
		defer c.sessions.mu.Unlock()
		return len(c.sessions.nodes) == 0
	})
}
