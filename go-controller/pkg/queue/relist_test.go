package queue

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// TestDeletionByRelist: an object that is deleted while no watch is open is reported with its last
// known state.
func TestDeletionByRelist(t *testing.T) {
	lists, watches := 0, 0
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			if lists++; lists == 1 {
				list.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1", Labels: map[string]string{"zone": "a"}}}}
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFake()
			if watches++; watches == 1 {
				gone := apierrors.NewResourceExpired("too old").Status()
				go w.Error(&gone)
			}
			return w, nil
		},
	}
	informer := cache.NewSharedIndexInformer(source, &corev1.Node{}, 0, nil)
	r := newRecorder()
	c := New("test", r.reconcile)
	err := c.Watch(informer, func(old, _ any) []string {
		if n, ok := old.(*corev1.Node); ok {
			return []string{"was-" + n.Labels["zone"]}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	go informer.Run(t.Context().Done())
	run(t, c)
	r.waitFor(t, "the zone of the node that is gone", func(n map[string]int) bool { return n["was-a"] == 1 })
}
