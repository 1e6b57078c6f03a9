package master

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
)

// TestStalePorts: the port of a pod that was deleted while no master ran keeps its addresses
// until it is deleted, so that no other pod gets them meanwhile.
func TestStalePorts(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again ", again), func(t *testing.T) {
			c := newCluster(t)
			c.addNode("n", "10.244.1.0/24", "fd00::/64")
			c.start(pod.Config{})
			c.addPod("a", "n")
			c.waitPort("a", "10.244.1.3 fd00::3")
			c.stop()
			c.deletePod("a")
			if again {
				c.addPod("a", "n")
			}
			c.addPod("b", "n")
			var away atomic.Bool
			away.Store(true)
			c.nb.FailWith(func(o nb.Owner) error {
				if away.Load() && o == pod.Owner("ns/a") {
					return errors.New("this port cannot be deleted yet")
				}
				return nil
			})
			c.start(pod.Config{})
			c.waitPort("b", "10.244.1.4 fd00::4")
			away.Store(false)
			if again {
				c.waitPort("a", "10.244.1.5 fd00::5")
			} else {
				c.waitPort("a", "-")
			}
			for _, name := range []string{"c", "d"} { // the next pods may get the addresses of the first one
				c.addPod(name, "n")
				c.wait("a port of "+name, func() bool { return c.port(name) != "-" })
			}
			c.noneTwice()
		})
	}
}
