package master

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	egresslisters "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/listers/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// countedEgressIPs counts the objects listed by its lister.
type countedEgressIPs struct {
	egressinformers.EgressIPInformer
	listed *atomic.Int64
}

func (c countedEgressIPs) Lister() egresslisters.EgressIPLister {
	return countedEgressIPLister{c.EgressIPInformer.Lister(), c.listed}
}

type countedEgressIPLister struct {
	egresslisters.EgressIPLister
	listed *atomic.Int64
}

func (c countedEgressIPLister) List(s labels.Selector) ([]*v1.EgressIP, error) {
	all, err := c.EgressIPLister.List(s)
	c.listed.Add(int64(len(all)))
	return all, err
}

// countedPods counts the objects listed by its lister.
type countedPods struct {
	coreinformers.PodInformer
	listed *atomic.Int64
}

func (c countedPods) Lister() corelisters.PodLister {
	return countedPodLister{c.PodInformer.Lister(), c.listed}
}

type countedPodLister struct {
	corelisters.PodLister
	listed *atomic.Int64
}

func (c countedPodLister) List(s labels.Selector) ([]*corev1.Pod, error) {
	all, err := c.PodLister.List(s)
	c.listed.Add(int64(len(all)))
	return all, err
}

// crowd creates EgressIPs with one pod each.
func (w *world) crowd(n int) {
	for i := range n {
		app, key := fmt.Sprintf("app-%d", i), fmt.Sprintf("prod/pod-%d", i)
		w.create(egress(fmt.Sprintf("egressip-%d", i), []v1.Address{v1.Address(fmt.Sprintf("172.18.%d.%d", 1+i/200, 1+i%200))},
			func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": app} }))
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: fmt.Sprintf("pod-%d", i), UID: types.UID(key),
			Labels: map[string]string{"app": app, "tier": "same"}}, Spec: corev1.PodSpec{NodeName: "ovn-worker"}}
		w.create(p)
		owner, rows := portOf(key, "ovn-worker", fmt.Sprintf("10.244.%d.%d", 1+i/200, 1+i%200))
		if _, err := w.db.Apply(w.t.Context(), owner, rows); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestStartCost: the number of objects read at a start grows linearly with the number of EgressIPs and
// pods, not quadratically; and one more EgressIP does not cause reading
// all pods.
func TestStartCost(t *testing.T) {
	const most = 200
	cost := map[int]int64{}
	for _, n := range []int{most / 8, most} {
		w := newWorld(t)
		w.crowd(n)
		w.start()
		last := fmt.Sprintf("egressip-%d", n-1)
		w.eventually("the last one to be programmed", func() bool { return w.is(last, v1.ConditionProgrammed) })
		cost[n] = w.listed.Load()

		listed := w.listed.Load()
		w.create(egress("one-more", []v1.Address{"172.18.9.9"}, func(e *v1.EgressIP) {
			e.Spec.PodSelector.MatchLabels = map[string]string{"app": "none"}
		}))
		w.eventually("it to be placed", func() bool { return w.holder("one-more", "172.18.9.9") != "" })
		if more := w.listed.Load() - listed; more > 2*int64(n+1) {
			t.Errorf("%d objects listed for one more EgressIP beside %d", more, n)
		}
		w.stop()
	}
	t.Logf("objects listed at the start, by EgressIPs: %v", cost)
	if limit := cost[most/8] * 10; cost[most] > limit {
		t.Errorf("%d objects listed for %d EgressIPs, want at most %d", cost[most], most, limit)
	}
}

// TestPodsThatOneChooses: an EgressIP is only compared with the pods that have one of its
// labels.
func TestPodsThatOneChooses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.crowd(50)
		w.start()
		fakeapi.Settle() // the master selects pods, too
		e := w.get("egressip-7")
		s, err := egressip.NewSelector(e)
		if err != nil {
			t.Fatal(err)
		}
		before := w.listed.Load()
		if got := fmt.Sprint(w.master.chosen(s)); got != "[prod/pod-7]" {
			t.Errorf("chosen: %s", got)
		}
		if n := w.listed.Load() - before; n > 1 {
			t.Errorf("%d pods looked at", n)
		}
	})
}
