package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestWaitsForTheFirstAnswers: a master that starts does not assign everything to the node
// that answered its first probe before the others.
func TestWaitsForTheFirstAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const count = 6
		for i := range count {
			name := fmt.Sprintf("svc-%d", i)
			w.create(egress(name))
			w.create(service(name, fmt.Sprintf("5.5.5.%d", i), fmt.Sprintf("5555::%d", i)))
			w.create(slice(name, fmt.Sprintf("10.244.0.%d", 10+i), fmt.Sprintf("fd00:10:244:1::%d", 10+i)))
		}
		w.health.Set("ovn-worker2", place.Unknown)
		answered := w.health.DelayProbed()
		time.AfterFunc(time.Second, func() {
			w.health.Set("ovn-worker2", place.Alive)
			answered()
		})
		w.start()
		hosts := map[string]int{}
		for i := range count {
			hosts[w.anyHost(fmt.Sprintf("default/svc-%d", i))]++
		}
		if hosts["ovn-worker"] != count/2 || hosts["ovn-worker2"] != count/2 {
			t.Errorf("EgressServices by host: %v", hosts)
		}
		w.stop()
	})
}
