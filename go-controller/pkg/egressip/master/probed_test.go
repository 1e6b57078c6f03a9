package master

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestWaitsForTheFirstAnswers: a master that starts does not give everything to the node
// that happened to answer its first probe before the others.
func TestWaitsForTheFirstAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const count = 6
		addr := func(i int) string { return fmt.Sprintf("172.18.0.%d", 100+i) }
		for i := range count {
			w.create(egress(fmt.Sprint("e", i), []v1.Address{v1.Address(addr(i))}))
		}
		w.health.nodes["ovn-worker2"], w.health.probed = place.Unknown, make(chan struct{})
		time.AfterFunc(time.Second, func() {
			w.health.set("ovn-worker2", place.Alive)
			close(w.health.probed)
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

// reach is a Health whose answers a test sets.
type reach struct {
	mu    sync.Mutex
	nodes map[string]place.Reach
	subs  []func(string)
	// probed is closed, unless a test still has to.
	probed chan struct{}
}

func newReach() *reach {
	r := &reach{nodes: map[string]place.Reach{}, probed: make(chan struct{})}
	close(r.probed)
	return r
}

func (r *reach) Reach(node string) place.Reach {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[node]
}

func (r *reach) Probed() <-chan struct{} { return r.probed }

func (r *reach) Subscribe(f func(string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs = append(r.subs, f)
}

func (r *reach) set(node string, state place.Reach) {
	r.mu.Lock()
	r.nodes[node] = state
	subs := slices.Clone(r.subs)
	r.mu.Unlock()
	for _, f := range subs {
		f(node)
	}
}
