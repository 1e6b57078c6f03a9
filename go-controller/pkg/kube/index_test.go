package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestIndexThatPanics: an informer whose index panics for one object keeps the object, and
// continues with the others.
func TestIndexThatPanics(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	cs := fakeapi.NewClientset(pod("a"), pod("odd"), pod("z"))
	factory := informers.NewSharedInformerFactory(cs, 0)
	inf := factory.Core().V1().Pods().Informer()
	for range 2 { // by two packages
		err := AddIndex(inf, "name", func(p *corev1.Pod) []string {
			if p.Name == "odd" {
				panic("odd")
			}
			return []string{p.Name}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fakeapi.Start(t.Context(), t, cs, factory)
	if keys := inf.GetIndexer().ListKeys(); len(keys) != 3 {
		t.Errorf("the informer has %v", keys)
	}
	for name, want := range map[string][]string{"a": {"ns/a"}, "odd": nil, "z": {"ns/z"}} {
		if keys, err := inf.GetIndexer().IndexKeys("name", name); err != nil || !slices.Equal(keys, want) {
			t.Errorf("%s: %v, %v", name, keys, err)
		}
	}
}
