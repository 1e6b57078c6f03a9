package master

import (
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestPassesForDead: a node that is too busy to answer a probe still forwards the traffic of its
// own pods. The translation of pods that are on the previous holder of the address
// stays until its chassis has the policies that lead elsewhere: the router would give
// them the node's address. Nothing else waits for the node.
func TestPassesForDead(t *testing.T) {
	const own, ownV4 = "prod/own", "10.244.1.9"
	w := newWorld(t, egress(prod, []v1.Address{"172.18.0.33"}))
	w.pod(web, "ovn-control-plane", webV4, webV6)
	w.pod(own, "ovn-worker", ownV4, "fd00:10:244:2::9")
	w.start()
	if was := w.programmed(prod); was != "ovn-worker" {
		t.Fatalf("the holder is %s", was)
	}
	w.barrier.stop("chassis-ovn-worker", true)
	w.health.Set("ovn-worker", place.Dead)
	w.eventually("the pod to be led elsewhere", func() bool { return w.hops(own, ownV4) == hopOf["ovn-worker2"] })
	w.programmed(prod) // nothing waits for it
	w.eventually("the translation of others to go", func() bool { return w.nats(web) == "ovn-worker2:172.18.0.33" })
	const onBoth = "ovn-worker2:172.18.0.33 ovn-worker:172.18.0.33"
	if got := w.nats(own); got != onBoth {
		t.Errorf("the pod on the node has the translations %q before the node has its policies, want %q", got, onBoth)
	}
	w.health.Set("ovn-worker", place.Alive)
	w.barrier.stop("chassis-ovn-worker", false)
	w.eventually("the old translation to go", func() bool { return w.nats(own) == "ovn-worker2:172.18.0.33" })
}
