package master

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestPatience: the chassis of a dead node is asked less and less often whether it has the policies of its pods, since every
// chassis reports each time. When it is back, the wait ends.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const node, chassis = "ovn-control-plane", "chassis-ovn-control-plane" // of the pod
		w := serving(t, "172.18.0.33")
		synctest.Wait()
		asked := func() int {
			w.barrier.mu.Lock()
			defer w.barrier.mu.Unlock()
			return w.barrier.asked[chassis]
		}
		was := w.holder(prod, "172.18.0.33")
		w.barrier.stop(chassis, true)
		for _, n := range []string{node, was} {
			w.freeze(n, true)
			w.health.Set(n, place.Dead)
		}
		w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[other(was)] })
		before := asked()
		<-time.After(time.Hour)
		synctest.Wait()
		if n := asked() - before; n < 30 || n > 130 {
			t.Errorf("asked %d times in an hour", n)
		}
		w.barrier.stop(chassis, false)
		<-time.After(2 * revalidateDelay)
		synctest.Wait()
		if st := w.master.podStates.get(web); len(st.waits) > 0 || st.unconfirmed() {
			t.Errorf("still waits for %v when the chassis is back", st.waits)
		}
	})
}
