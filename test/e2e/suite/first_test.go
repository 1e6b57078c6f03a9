package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var firstIngress = []netip.Addr{netip.MustParseAddr("5.5.5.9"), netip.MustParseAddr("5555::9")}

// firstPort is the destination port of the first sender; each further sender has the next port.
const firstPort = 10000

// firstPackets starts pods of an EgressService that is served, which send from the moment they
// start and do not all become ready: none of their packets may have another address, although the
// spec lets traffic out while there is no node.
func (s *suite) firstPackets(t *testing.T) {
	e := s.serve(t, "first", firstIngress)
	host := e.programmed(t, "")
	c := newCapture(t, s, firstPort, firstPort+99, firstIngress)
	port := uint16(firstPort)
	start := func(t *testing.T, node string, neverReady bool) uint16 {
		sender := lab.Sender{Name: fmt.Sprintf("first-%d", port), Node: node, Labels: e.labels(), To: lab.OutsideAddresses,
			Port: port, Every: 10 * time.Millisecond, NeverReady: neverReady}
		if err := s.StartSender(t.Context(), sender); err != nil {
			t.Fatal(err)
		}
		port++
		return sender.Port
	}
	begun := time.Now()
	for _, node := range nodes {
		for _, neverReady := range []bool{false, true} {
			c.arrives(t, start(t, node, neverReady), begun)
		}
	}
	if right := c.inspect(t); !t.Failed() {
		t.Logf("%d packets with the right source, none with another", right)
	}

	t.Run("host's ovnkube does not run", func(t *testing.T) {
		if err := s.Service(t.Context(), "stop", host, "ovnkube-node"); err != nil {
			t.Fatal(err)
		}
		held := start(t, lab.ControlPlane, false)
		name := fmt.Sprintf("first-%d", held)
		if _, err := s.WaitPod(t.Context(), name, leakPatience); err != nil {
			t.Fatal(err)
		}
		// The pod is an endpoint now, but the host does not know: it has to wait, in both families.
		err := lab.Until(t.Context(), leakPatience, "the pod to be held", func(ctx context.Context) error {
			out, err := s.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "lr-policy-list", "ovn_cluster_router")
			if n := countLines(out, "101", "drop"); err == nil && n != len(firstIngress) {
				err = fmt.Errorf("%d drops:\n%s", n, out)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := s.Service(t.Context(), "start", host, "ovnkube-node"); err != nil {
			t.Fatal(err)
		}
		c.arrives(t, held, begun)
		c.inspect(t)
	})
	t.Run("pods end", func(t *testing.T) {
		for p := uint16(firstPort); p < port; p++ {
			if err := s.DeletePod(t.Context(), fmt.Sprintf("first-%d", p)); err != nil {
				t.Fatal(err)
			}
		}
		c.inspect(t)
	})
}
