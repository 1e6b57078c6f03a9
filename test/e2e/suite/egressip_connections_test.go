package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// bulk is how many bytes a connection sends at a time; it gets as many back.
	bulk = 64 << 10
	// advance is after how many exchanges a connection is far outside the TCP window that a node
	// which tracked it earlier would accept.
	advance = 200
	// keepAlive is the TCP keepalive time of a pod that waits for an answer. If the node that had
	// the address cannot be asked any more, the new node recognizes a connection by the next packet
	// of its pod.
	keepAlive = time.Second
)

// keptTest keeps TCP connections busy while their egress addresses move from node to node and back:
// each continues, since it keeps its address and port. Some send so much that a node which
// remembers them from an earlier time would no longer recognize them.
type keptTest struct {
	*egressIPTest
	name    string // of the EgressIP
	streams []string
	stall   func(*testing.T) time.Duration // how long the machine stalled; nil: not checked
	// judged returns what happened in the end, and what that allows; nil: as planned.
	judged func(what string, bound figures.Bound) (string, figures.Bound)
}

// secondaryConnections does so on a network other than the nodes' own, with another pod that keeps
// opening new connections; Moves does it on the nodes' own network. The addresses move from their
// holder to the other node, and back.
func (e *egressIPTest) secondaryConnections(t *testing.T, holder, other string) {
	k := &keptTest{egressIPTest: e, name: storageName}
	k.open(t, shoreIPs)
	t.Cleanup(func() { k.close(t) })
	const pulse = "pulse-" + storageName
	if _, err := k.RunPulse(t.Context(), pulse, lab.ControlPlane, chosen(k.name), shoreIPs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.deletePods(t, []string{pulse}) })
	for _, name := range []string{"PlannedMove", "AndBack"} {
		t.Run(name, func(t *testing.T) {
			k.goOn(t, "planned move on another network", figures.OpenConnectionMove, func(t *testing.T) {
				if _, err := k.Pulses(t.Context(), pulse, true); err != nil {
					t.Fatal(err)
				}
				// There is always a node for the addresses.
				k.assignable(t, holder, other)
				k.assignable(t, other)
				for _, a := range storageIPs {
					k.movedFrom(t, k.name, a, holder)
				}
			})
			holder, other = other, holder
			reports, err := k.Pulses(t.Context(), pulse, false)
			if err != nil {
				t.Fatal(err)
			}
			var gaps []time.Duration
			for _, to := range shoreIPs {
				if reports[to].Echoed == 0 {
					t.Errorf("no new connection to %s", to)
				}
				gaps = append(gaps, reports[to].MaxGap())
			}
			figures.Record(t, "EgressIP, new connections: planned move on another network", figures.Move, gaps...)
		})
	}
}

// open opens the connections.
func (k *keptTest) open(t *testing.T, to []netip.Addr) {
	t.Helper()
	kinds := []struct {
		name string
		size int
	}{{"calm", 8}, {"busy", bulk}}
	for i := range 2 * len(to) {
		k.streams = append(k.streams, fmt.Sprintf("%s-%d", kinds[i%2].name, i/2))
	}
	// On a node that never has the addresses: a stream must not die with a holder.
	err := atOnce(len(k.streams), func(i int) error {
		_, err := k.RunSizedStream(t.Context(), k.streams[i], lab.ControlPlane, chosen(k.name), to[i/2], kinds[i%2].size, keepAlive)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// close ends the connections; they need not be open.
func (k *keptTest) close(t *testing.T) {
	k.deletePods(t, k.streams)
	k.streams = nil
}

// goOn does something to connections that have advanced since the last time, and records how long
// each stalled.
func (k *keptTest) goOn(t *testing.T, what string, bound figures.Bound, act func(t *testing.T)) {
	t.Helper()
	err := atOnce(len(k.streams), func(i int) error {
		return lab.Until(t.Context(), egressPatience, k.streams[i]+" to have carried much", func(ctx context.Context) error {
			r, err := k.Report(ctx, k.streams[i], false)
			if err == nil && r.Echoed < advance {
				err = fmt.Errorf("only %+v", r)
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	k.beginAgain(t, k.streams)
	took := during(func() { act(t) })
	if k.judged != nil {
		what, bound = k.judged(what, bound)
	}
	if k.stall != nil {
		bound.Stall = tcpBackoff * k.stall(t)
	}
	figures.Record(t, "EgressIP, open connections: "+what, bound, k.wentOn(t, k.streams, true, took)...)
}

// tcpBackoff is how many times as long as an outage a connection may stall: TCP doubles the time
// before each retransmission, which may be lost, too.
const tcpBackoff = 4
