package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const keeperName = "keeper"

var keeperIPs = addresses("172.18.0.221", "fc00:f853:ccd:e793::221")

const (
	// bulk is how much a connection sends at a time; it gets as much back.
	bulk = 64 << 10
	// advance is after how many times a connection is far beyond what a node that
	// took note of it before would believe to belong to it.
	advance = 200
	// keepAlive is how soon a pod that waits for an answer says something. Where the
	// node that had the address cannot be asked any more, the new one knows a
	// connection from what its pod sends next.
	keepAlive = time.Second
)

// keptTest keeps TCP connections busy while their egress addresses move from node to
// node and back: each goes on, since it keeps address and port. Some send so much
// that a node which remembers them from an earlier time would not know them again.
type keptTest struct {
	*egressIPTest
	name          string
	ips           []netip.Addr
	holder, other string
	streams       []string
	// pulse is a pod that opens a connection again and again.
	pulse string
}

// connections does so on the nodes' own network, where a node dies, too.
func (e *egressIPTest) connections(t *testing.T) {
	k := &keptTest{egressIPTest: e, name: keeperName, ips: keeperIPs, holder: "ovn-worker", other: "ovn-worker2"}
	e.assignable(t, k.holder)
	e.create(t, k.name, k.ips, held)
	e.programmed(t, k.name)
	k.open(t, lab.OutsideAddresses)
	t.Run("PlannedMove", func(t *testing.T) { k.goOn(t, k.move) })
	t.Run("AndBack", func(t *testing.T) { k.goOn(t, k.move) })
	t.Run("PowerFailure", func(t *testing.T) {
		e.assignable(t, k.holder, k.other)
		k.goOn(t, func(t *testing.T) {
			if err := e.Kin.Node(t.Context(), "kill", k.holder); err != nil {
				t.Fatal(err)
			}
			k.moved(t)
		})
	})
	e.powerOn(t, k.other)
	e.candidate(t, k.other) // or there is no node for the addresses for a while
	t.Run("BackToWhoDied", func(t *testing.T) { k.goOn(t, k.move) })
}

// secondaryConnections does so on another network.
func (e *egressIPTest) secondaryConnections(t *testing.T) {
	k := &keptTest{egressIPTest: e, name: storageName, ips: storageIPs, holder: "ovn-worker2", other: "ovn-worker"}
	k.open(t, shoreIPs)
	t.Run("PlannedMove", func(t *testing.T) { k.goOn(t, k.move) })
	t.Run("AndBack", func(t *testing.T) { k.goOn(t, k.move) })
}

// open opens the connections, until the test ends.
func (k *keptTest) open(t *testing.T, to []netip.Addr) {
	t.Helper()
	for i, a := range to {
		for what, size := range map[string]int{"calm": 8, "busy": bulk} {
			name := fmt.Sprintf("%s-%d", what, i)
			// On a node that never has the addresses: it must not die with one.
			if _, err := k.RunSizedStream(t.Context(), name, lab.ControlPlane, chosen(k.name), a, size, keepAlive); err != nil {
				t.Fatal(err)
			}
			k.streams = append(k.streams, name)
		}
	}
	k.pulse = "pulse-" + k.name
	if _, err := k.RunPulse(t.Context(), k.pulse, lab.ControlPlane, chosen(k.name), to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range append(k.streams, k.pulse) {
			if err := k.DeletePod(context.WithoutCancel(t.Context()), name); err != nil {
				t.Error(err)
			}
		}
	})
}

// goOn does something to connections that have advanced since the last time.
func (k *keptTest) goOn(t *testing.T, act func(t *testing.T)) {
	t.Helper()
	for _, name := range k.streams {
		err := lab.Until(t.Context(), egressPatience, name+" to have carried much", func(ctx context.Context) error {
			r, err := k.Report(ctx, name, false)
			if err == nil && r.Echoed < advance {
				err = fmt.Errorf("only %+v", r)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range k.streams {
		if _, err := k.Report(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Pulses(t.Context(), k.pulse, true); err != nil {
		t.Fatal(err)
	}
	took := during(func() { act(t) })
	for _, name := range k.streams {
		k.goesOn(t, name, true, took)
	}
	pulses, err := k.Pulses(t.Context(), k.pulse, false)
	if err != nil {
		t.Fatal(err)
	}
	for to, r := range pulses {
		t.Logf("new connections to %s: longest time without an answer %s, %d answers, %d lost", to, r.MaxGap(), r.Echoed, r.Reconnects)
	}
}

// move has the addresses move to the other node. There is a node for them all the time.
func (k *keptTest) move(t *testing.T) {
	t.Helper()
	k.assignable(t, k.holder, k.other)
	k.assignable(t, k.other)
	k.moved(t)
}

// moved waits until they have.
func (k *keptTest) moved(t *testing.T) {
	t.Helper()
	for _, a := range k.ips {
		k.movedFrom(t, k.name, a, k.holder)
	}
	k.holder, k.other = k.other, k.holder
}
