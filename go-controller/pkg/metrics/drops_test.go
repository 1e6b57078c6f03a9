package metrics

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

const (
	bridgeUnsnatted = `ovnkube_node_unsnatted_packets_dropped_total{at="bridge"}`
	bridgeNoReply   = `ovnkube_node_service_port_packets_dropped_total{at="bridge"}`
	hostUnsnatted   = `ovnkube_node_unsnatted_packets_dropped_total{at="host"}`
)

// TestDrops: a scrape reads each source once. If one does not answer or fails, the last values are
// reported; they do not restart from zero.
func TestDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, answers := New(version.Info{}), make(chan error)
		var reads atomic.Uint64
		s.Dropped(map[string]func() (Drops, error){
			"host": func() (Drops, error) { return Drops{Unsnatted: 7}, nil },
			"bridge": func() (Drops, error) {
				n := reads.Add(1)
				return Drops{Unsnatted: n, NoReply: 10 * n}, <-answers
			},
		})
		// The switch is stopped: everything else is reported soon, and scrapes share a read.
		for range 3 {
			began := time.Now()
			has(t, s, "ovnkube_leader 0", hostUnsnatted+" 7")
			if body := read(t, s); strings.Contains(body, `at="bridge"`) {
				t.Errorf("values of the bridge that nobody has read:\n%s", body)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("two scrapes took %v", took)
			}
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads run at the same time", n)
		}
		answers <- nil
		synctest.Wait()

		answer := func(err error) {
			go func() { answers <- err }()
		}
		answer(nil)
		has(t, s, bridgeUnsnatted+" 2", bridgeNoReply+" 20")
		if n := reads.Load(); n != 2 {
			t.Errorf("there were %d reads for two answers", n)
		}
		answer(errors.New("no such file"))
		has(t, s, bridgeUnsnatted+" 2", bridgeNoReply+" 20")
		has(t, s, bridgeUnsnatted+" 2", bridgeNoReply+" 20", hostUnsnatted+" 7") // no answer again
		answers <- nil
	})
}
