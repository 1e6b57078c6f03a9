package queue

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestPanicFailsItsKeyAlone: a key panics a few times and then succeeds.
func TestPanicFailsItsKeyAlone(t *testing.T) {
	r := newRecorder()
	r.fail["odd"] = 3
	before := panics.Counts()["panics"]
	c := New("panics", func(ctx context.Context, key string) error {
		if r.reconcile(ctx, key) != nil {
			panic("odd")
		}
		return nil
	})
	c.Seed(func() []string { return []string{"odd", "fine"} })
	c.Seed(func() []string { panic("a seed") })
	run(t, c)
	c.Enqueue("later")
	r.waitFor(t, "four tries of the key that panics", func(n map[string]int) bool {
		return n["odd"] == 4 && n["fine"] == 1 && n["later"] == 1
	})
	eventually.Receive(t, "all start-up keys", c.Synced())
	if got := panics.Counts()["panics"] - before; got != 4 { // three attempts and the seed
		t.Errorf("%d panics were counted, want 4", got)
	}
}

// TestPanicOfABatch: the key that makes a batch panic is found.
func TestPanicOfABatch(t *testing.T) {
	b := &batches{recorder: newRecorder()}
	c := NewBatch("test", 100, func(ctx context.Context, keys []string) map[string]error {
		errs := b.reconcile(ctx, keys)
		if slices.Contains(keys, "key3") && b.tried("key3") < 3 {
			panic("key3")
		}
		return errs
	})
	c.Seed(func() []string { return numbered("key", 10) })
	run(t, c)
	eventually.Receive(t, "the start-up keys", c.Synced())
	// All, each separately, and then the one that panicked.
	if sizes := b.seen(); !slices.Equal(sizes, append([]int{10}, slices.Repeat([]int{1}, 11)...)) {
		t.Errorf("batches of %v keys", sizes)
	}
	for _, k := range numbered("key", 10) {
		if want := map[bool]int{true: 3, false: 2}[k == "key3"]; b.tried(k) != want {
			t.Errorf("%s was tried %d times, want %d", k, b.tried(k), want)
		}
	}
}

// TestPanicOfWatch: a function panics while computing the keys of an event.
func TestPanicOfWatch(t *testing.T) {
	cs := fakeapi.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "odd"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fine"}})
	factory := informers.NewSharedInformerFactory(cs, 0)
	r := newRecorder()
	c := New("test", r.reconcile)
	err := c.Watch(factory.Core().V1().Pods().Informer(), func(_, new any) []string {
		if p := new.(*corev1.Pod); p.Name == "fine" { // a deletion panics, too
			return []string{"the fine one"}
		}
		panic("odd")
	})
	if err != nil {
		t.Fatal(err)
	}
	fakeapi.Start(t.Context(), t, cs, factory)
	run(t, c)
	r.waitFor(t, "both pods", func(n map[string]int) bool { return n["ns/odd"] == 1 && n["the fine one"] == 1 })
	for i, name := range []string{"odd", "fine"} {
		if err := cs.CoreV1().Pods("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.waitFor(t, "the deleted pods", func(n map[string]int) bool { return n["ns/odd"] == 2 && n["ns/fine"] == i })
	}
}
