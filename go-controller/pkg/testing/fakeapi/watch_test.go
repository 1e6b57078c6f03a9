package fakeapi

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
)

// TestBurst: an informer that takes no event until all of a burst were sent misses none.
func TestBurst(t *testing.T) {
	t.Run("without faults", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { burst(t, nil) }) })
	t.Run("with faults", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { burst(t, NewFaults(rand.New(rand.NewPCG(1, 1)))) })
	})
}

func burst(t *testing.T, faults *Faults) {
	cs := NewClientset()
	if faults != nil {
		faults.Inject(cs)
	}
	factory := informers.NewSharedInformerFactory(cs, NoResync)
	nodes := factory.Core().V1().Nodes()
	release := make(chan struct{})
	if err := nodes.Informer().SetTransform(func(o any) (any, error) {
		<-release
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	faults.Start(t.Context(), t, cs, factory)
	const count = 60 // with two events each
	for i := range count {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		if _, err := cs.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		node.Labels = map[string]string{"last": "yes"}
		if _, err := cs.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	Settle()
	have, err := nodes.Lister().List(labels.SelectorFromSet(labels.Set{"last": "yes"}))
	if err != nil || len(have) != count {
		t.Errorf("the last state of %d nodes of %d: %v", len(have), count, err)
	}
}

// TestRoom: each request finds room for its events, whether they have been delivered yet or not.
func TestRoom(t *testing.T) {
	for _, begun := range []bool{false, true} {
		tracker := NewClientset().Tracker()
		nodes := corev1.SchemeGroupVersion.WithResource("nodes")
		w, err := tracker.Watch(nodes, "")
		if err != nil {
			t.Fatal(err)
		}
		var all watches
		q := all.add(w)
		if begun {
			q.begin()
		}
		const count = 300
		for i := range count {
			if _, _, err := all.makeRoom(nil); err != nil {
				t.Fatal(err)
			}
			if err := tracker.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if !begun {
			q.begin()
		}
		for i := range count {
			node, ok := (<-q.ResultChan()).Object.(*corev1.Node)
			if !ok || node.Name != fmt.Sprint("n", i) {
				t.Fatalf("event %d is of %v (delivered from the beginning: %v)", i, node, begun)
			}
		}
		q.Stop()
	}
}
