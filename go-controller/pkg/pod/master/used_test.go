package master

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestAddressStillUsed: as long as rows of the egress feature have the address of a pod whose port is removed, no other pod gets it,
// although the subnet is full. A pod that is created again under the same name keeps its own port meanwhile.
func TestAddressStillUsed(t *testing.T) {
	for _, c := range []struct {
		name      string
		again     string // the node of the pod that is created again, if any
		restarted bool
	}{
		{"deleted", "", false},
		{"deleted, and the master is restarted", "", true},
		{"created again on another node", "m", false},
		{"created again on another node, and the master is restarted", "m", true},
		{"created again on the same node", "n", false},
	} {
		for feature, start := range map[string]func(w *cluster) (use func(addrs ...netip.Addr)){
			"EgressIP": func(w *cluster) func(addrs ...netip.Addr) {
				egress := &steering{writer: w.nb}
				w.egress = egress
				return func(addrs ...netip.Addr) { egress.use("ns/web1", addrs...) }
			},
			"others": func(w *cluster) func(addrs ...netip.Addr) {
				return func(addrs ...netip.Addr) { w.others.Set("ns/service", addrs) }
			},
		} {
			t.Run(feature+", "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newCluster(t)
					use := start(w)
					deleted := &deletions{Writer: w.nb}
					w.writer = deleted
					w.addNode("n", "10.244.1.0/29") // .3 to .6
					w.addNode("m", "10.244.2.0/24")
					w.start(pod.Config{})
					for i := range 4 {
						w.addPod(fmt.Sprint("web", i), "n")
					}
					fakeapi.Settle()
					freed := w.port("web1")
					use(netip.MustParseAddr(freed))
					w.addPod("late", "n")
					fakeapi.Settle()
					w.deletePod("web1")
					fakeapi.Settle()
					if c.again != "" {
						w.addPod("web1", c.again)
						fakeapi.Settle()
					}
					if c.restarted {
						w.stop()
						w.start(pod.Config{})
						fakeapi.Settle()
					}
					again := map[string]string{"": "-", "n": "-", "m": "10.244.2.3"}[c.again]
					if late, web := w.port("late"), w.port("web1"); late != "-" || web != again {
						t.Errorf("the pods get %s and %s, want none and %s\n%s", late, web, again, w.nb.Dump())
					}
					written := w.nb.Writes()
					use()
					fakeapi.Settle()
					if late, web := w.port("late"), w.port("web1"); late != freed && (web != freed || c.again != "n") || again != "-" && web != again {
						t.Errorf("in the end the pods get %s and %s\n%s", late, web, w.nb.Dump())
					}
					if more := w.nb.Writes() - written; more != 1 {
						t.Errorf("%d ports written, want that of the waiting pod", more)
					}
					if n := deleted.n.Load(); n != 1 {
						t.Errorf("ports of web1 were deleted %d times, want that of the former pod only", n)
					}
					w.stop()
				})
			})
		}
	}
}

// deletions is a Writer that counts how often a port of web1 is deleted.
type deletions struct {
	Writer
	n atomic.Int32
}

func (d *deletions) Apply(ctx context.Context, o nb.Owner, want []nb.Row) (nb.Stats, error) {
	if o == pod.Owner("ns/web1") && len(want) == 0 && len(d.Rows(o)) > 0 {
		d.n.Add(1)
	}
	return d.Writer.Apply(ctx, o, want)
}

// TestPortWithoutUID: a port that does not say whose incarnation it is does not outlive its pod.
func TestPortWithoutUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		w.egress = &steering{writer: w.nb}
		w.addNode("n", "10.244.1.0/24")
		w.start(pod.Config{})
		w.addPod("web", "n")
		fakeapi.Settle()
		rows := w.nb.Rows(pod.Owner("ns/web"))
		delete(rows[0].Model.(*nbdb.LogicalSwitchPort).Options, "iface-id-ver")
		if _, err := w.nb.Apply(t.Context(), pod.Owner("ns/web"), rows); err != nil {
			t.Fatal(err)
		}
		w.deletePod("web")
		fakeapi.Settle()
		if got := w.port("web"); got != "-" {
			t.Errorf("the port with %s is still there", got)
		}
	})
}
