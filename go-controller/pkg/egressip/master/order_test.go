package master

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// guard makes the informer of a factory wait at the gate.
func (w *world) guard(factory externalversions.SharedInformerFactory) {
	if w.gate == nil {
		return
	}
	factory.InformerFor(&v1.EgressIP{}, func(cs versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
		ips := cs.EgressIPV1().EgressIPs()
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return ips.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				all, err := ips.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return w.gate.Filter(all), nil
			},
		}, &v1.EgressIP{}, resync, cache.Indexers{})
	})
}

// TestMovedOnce: a master that has moved an address does not go back to the holder of before, nor report the move again, when it
// sees what somebody else has written shortly before its own write.
func TestMovedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress(prod, prodIPs[:1]))
		w.gate = &fakeapi.Gate{}
		w.pod(web, "ovn-control-plane", webV4)
		w.start()
		w.programmed(prod)
		fakeapi.Settle()
		from := w.holder(prod, string(prodIPs[0]))
		w.gate.Hold(t)
		if _, err := w.egress.EgressIPV1().EgressIPs().Patch(t.Context(), prod, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"reviewed":"by-a-node"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.leave(from)
		w.eventually("another holder", func() bool { return w.holder(prod, string(prodIPs[0])) != from })
		fakeapi.Settle()
		led := w.hops(web, webV4)
		w.writes()
		for len(w.events.Events) > 0 {
			<-w.events.Events
		}
		w.gate.Pass()
		fakeapi.Settle()
		if writes := w.writes(); len(writes) > 0 {
			t.Errorf("written once more: %v", writes)
		}
		if n := len(w.events.Events); n > 0 {
			t.Errorf("%d further Events, the first: %s", n, <-w.events.Events)
		}
		if now := w.hops(web, webV4); now != led {
			t.Errorf("led to %s instead of %s", now, led)
		}
		w.gate.Open()
		w.programmed(prod)
	})
}
