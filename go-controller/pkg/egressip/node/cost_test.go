package node

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	egressiplisters "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/listers/egressip/v1"
)

// countedEgressIPs counts the objects listed by its lister.
type countedEgressIPs struct {
	egressipinformers.EgressIPInformer
	listed *atomic.Int64
}

func (c countedEgressIPs) Lister() egressiplisters.EgressIPLister {
	return countedEgressIPLister{c.EgressIPInformer.Lister(), c.listed}
}

type countedEgressIPLister struct {
	egressiplisters.EgressIPLister
	listed *atomic.Int64
}

func (c countedEgressIPLister) List(s labels.Selector) ([]*v1.EgressIP, error) {
	all, err := c.EgressIPLister.List(s)
	c.listed.Add(int64(len(all)))
	return all, err
}

// TestRemoteCost: the number of objects that a node reads for EgressIPs on other nodes grows linearly with
// their number, not quadratically; a change of one of them makes the node read
// none of the others, and changes only its own flows.
func TestRemoteCost(t *testing.T) {
	cost := map[int]int64{}
	for _, n := range []int{25, 200} {
		var objects []runtime.Object
		for i := range n {
			a := fmt.Sprintf("172.18.%d.%d", 1+i/200, 1+i%200)
			objects = append(objects, object(fmt.Sprintf("e%d", i), []string{a}, []string{a + " " + other}))
		}
		w := newWorld(t, objects...)
		c, stop := w.run()
		if len(w.gated("172.18.1.1", fmt.Sprintf("172.18.1.%d", n))) != 2 {
			t.Errorf("not gated: %s", w.flows.Dump())
		}
		<-c.Attempted()
		// For the initial keys, and again when the node is ready; for the bridge; for the pods.
		w.eventually("what the start lists", func() bool { return w.listed.Load() >= 4*int64(n) })
		cost[n] = w.listed.Load()

		w.change("e3", func(e *v1.EgressIP) {
			e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{"172.18.1.4"}}}
		})
		w.change("e4", func(e *v1.EgressIP) { give(e, "172.18.1.5 ovn-worker9") })
		w.change("e5", func(e *v1.EgressIP) { give(e, "172.18.9.9 "+other) })
		w.eventually("the new address to be gated", func() bool { return len(w.gated("172.18.9.9")) == 1 })
		if more := w.listed.Load() - cost[n]; more > 0 {
			t.Errorf("%d EgressIPs listed for changes of others', one of which makes a difference, where there are %d", more, n)
		}
		if got := w.flows.Changed(); got != flowsOfAddress {
			t.Errorf("%d flows changed for one address, want %d", got, flowsOfAddress)
		}
		if !w.have("172.18.1.4", "172.18.1.5", "172.18.1.6") {
			t.Errorf("not gated any more: %s", w.flows.Dump())
		}
		stop()
	}
	t.Logf("EgressIPs listed at the start, by EgressIPs: %v", cost)
	if limit := cost[25] * 10; cost[200] > limit {
		t.Errorf("%d EgressIPs listed for 200 of them, want at most %d", cost[200], limit)
	}
}

// flowsOfAddress is the number of flows for an address that another node holds.
const flowsOfAddress = 1

// have reports whether all of the addresses are suppressed.
func (w *world) have(addrs ...string) bool { return len(w.gated(addrs...)) == len(addrs) }

// TestGatesAfterFailure: if writing to the bridge failed, it is repeated even if no EgressIP
// changes.
func TestGatesAfterFailure(t *testing.T) {
	w := newWorld(t, object("e0", []string{"172.18.1.1"}, []string{"172.18.1.1 " + other}))
	c, _ := w.run()
	<-c.Attempted()
	w.flows.fail(errBusy)
	w.change("e0", func(e *v1.EgressIP) { give(e, "172.18.1.2 "+other) })
	w.eventually("the bridge to be busy", func() bool { return w.flows.failed() > 0 })
	w.flows.fail(nil)
	w.eventually("the new address to be gated", func() bool { return w.have("172.18.1.2") })
}

// TestTakeOverCost: a node takes addresses assigned at the same time together, and not one after the
// other with a pass over the bridge for each.
func TestTakeOverCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		var objects []runtime.Object
		for i := range n {
			a := fmt.Sprintf("172.18.1.%d", 1+i)
			objects = append(objects, object(fmt.Sprintf("e%d", i), []string{a}, []string{a + " " + other}))
		}
		w := newWorld(t, objects...)
		c, _ := w.run()
		synctest.Wait() // until all EgressIPs have been reconciled again, since the node is ready
		unblock, writes := w.flows.block(), w.flows.Writes()
		for i := range n {
			w.change(fmt.Sprintf("e%d", i), func(e *v1.EgressIP) { give(e, fmt.Sprintf("172.18.1.%d %s", 1+i, self)) })
		}
		synctest.Wait()
		if got := len(c.allAnswering()); got != n {
			t.Fatalf("%d of %d addresses are under way", got, n)
		}
		unblock()
		for i := range n {
			w.saysEventually(fmt.Sprintf("e%d", i), fmt.Sprintf("%s 172.18.1.%d", self, 1+i))
		}
		// The first pass started when the first of them arrived.
		if got := w.flows.Writes() - writes; got > 2 {
			t.Errorf("the flows of the bridge were written %d times for %d addresses", got, n)
		}
	})
}
