package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestWaitsForTheFirstAnswers: a master that starts does not assign everything to the node
// that answered its first probe before the others.
func TestWaitsForTheFirstAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const count = 6
		addr := func(i int) string { return fmt.Sprintf("172.18.0.%d", 100+i) }
		for i := range count {
			w.create(egress(fmt.Sprint("e", i), []v1.Address{v1.Address(addr(i))}))
		}
		w.health.Set("ovn-worker2", place.Unknown)
		answered := w.health.DelayProbed()
		time.AfterFunc(time.Second, func() {
			w.health.Set("ovn-worker2", place.Alive)
			answered()
		})
		w.start()
		held := map[string]int{}
		for i := range count {
			w.eventually("a node for each address", func() bool { return w.holder(fmt.Sprint("e", i), addr(i)) != "" })
			held[w.holder(fmt.Sprint("e", i), addr(i))]++
		}
		if held["ovn-worker"] != count/2 || held["ovn-worker2"] != count/2 {
			t.Errorf("addresses by node: %v", held)
		}
		w.stop()
	})
}
