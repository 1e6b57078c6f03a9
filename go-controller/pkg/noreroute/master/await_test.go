package master

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestPodsAreAwaited: whoever adds a pod can wait until the database has it and the
// policies that refer to the set.
func TestPodsAreAwaited(t *testing.T) {
	for _, owner := range []nb.Owner{noreroute.EgressIPPods.Owner(), noreroute.PolicyOwner} {
		w := newWorld(t)
		var broken atomic.Bool
		failed := make(chan struct{}, 100)
		broken.Store(true)
		w.nb.FailWith(func(o nb.Owner) error {
			if o != owner || !broken.Load() {
				return nil
			}
			select {
			case failed <- struct{}{}:
			default:
			}
			return errors.New("no leader")
		})
		pods := complete("10.244.0.5")
		w.start(pods, complete())
		waits := make(chan error, 1)
		go func() { waits <- pods.Await(t.Context(), "ns/10.244.0.5") }()
		eventually.Receive(t, "the first attempt", failed)
		eventually.Receive(t, "the next attempt", failed)
		select {
		case err := <-waits:
			t.Errorf("%s: said to be there (%v):\n%s", owner, err, w.nb.Dump())
		default:
		}
		broken.Store(false)
		if err := eventually.Receive(t, "the word that it is there", waits); err != nil {
			t.Error(err)
		}
		if got := noreroute.Addrs(w.nb.Rows(noreroute.EgressIPPods.Owner())); len(got) != 1 || len(w.nb.Rows(noreroute.PolicyOwner)) != len(topology.Families)*3 {
			t.Errorf("%s: said to be there:\n%s", owner, w.nb.Dump())
		}
	}
}
