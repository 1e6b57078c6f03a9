package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFlushesOnceMore: a connection that got its old translation again after the rules
// were written, while policies did not lead here yet, loses it when they do; the same applies
// after the traffic has returned.
func TestFlushesOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the word", func() bool { return w.status().Programmed != nil })
		for range 2 {
			for pod, right := range map[string]string{"10.244.0.5": "5.5.5.5", "fd00:10:244:1::5": "5555:5555:5555:5555:5555:5555:5555:5555"} {
				node := map[bool]string{true: "172.18.0.4", false: "fc00::4"}[right == "5.5.5.5"]
				w.setStatus(led(metav1.ConditionFalse))
				synctest.Wait()
				w.kernel.connect(pod, node)
				w.kernel.connect(pod, right)
				w.kernel.connect("10.244.0.99", "172.18.0.4")
				w.setStatus(led(metav1.ConditionTrue))
				written := time.Now()
				w.eventually("the old translation to go", func() bool { return !w.kernel.connected(pod, node) })
				if time.Since(written) >= reportPace {
					t.Errorf("%s kept its old translation until ovn-controller may have followed", pod)
				}
				if !w.kernel.connected(pod, right) || !w.kernel.connected("10.244.0.99", "172.18.0.4") {
					t.Errorf("%s lost its right connection, or another pod one of its own", pod)
				}
			}
		}
	})
}

// TestFlushesWhenApplied: the master reports that traffic is led to this node when it has written the policies. A connection
// that gets its old translation again before they are in force on this node loses it then.
func TestFlushesWhenApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.setStatus(programmedBy("ovn-worker2", true))
		w.eventually("the translations", func() bool { return rules(w) == 4 })
		fakeapi.Settle()
		w.kernel.connect("10.244.0.5", "172.18.0.4")
		w.kernel.connect("10.244.0.5", "5.5.5.5")
		settled := w.settled.Load()
		w.applied()
		w.eventually("the old translation to go", func() bool { return !w.kernel.connected("10.244.0.5", "172.18.0.4") })
		if !w.kernel.connected("10.244.0.5", "5.5.5.5") {
			t.Error("the right connection is gone")
		}
		if w.settled.Load() == settled {
			t.Error("the datapath may lead packets elsewhere, and they recreate the connection")
		}
	})
}
