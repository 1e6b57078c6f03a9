package master

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestNotListedYet: before a new leader has listed the EgressIPs, it does not say of any pod that no EgressIP selects it.
// If that takes too long, pods no longer wait.
func TestNotListedYet(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, egress(prod, prodIPs))
			core := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
			own := externalversions.NewSharedInformerFactory(w.egress, fakeapi.NoResync)
			c, err := New(w.deps(core, own, nil))
			if err != nil {
				t.Fatal(err)
			}
			w.master = c
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(func() {
				cancel()
				for _, q := range []*queue.Controller{c.placement, c.statuses, c.pods, c.gates} {
					_ = q.Run(ctx, 1) // shuts it down
				}
				core.Shutdown()
				own.Shutdown()
			})
			fakeapi.Start(ctx, t, w.kube, core)
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "x", UID: "x", Labels: map[string]string{"app": "web"}}}
			if mark, err := c.Pending(p); err == nil {
				t.Errorf("mark %q before the EgressIPs are known", mark)
			}
			want := ""
			if answers {
				fakeapi.Start(ctx, t, w.egress, own)
				want = prod
			} else {
				<-time.After(2 * unknownTimeout)
			}
			if mark, err := c.Pending(p); mark != want || err != nil {
				t.Errorf("mark %q, error %v; want %q", mark, err, want)
			}
		})
	}
}

// TestNamespaceNotSeenYet: a pod may be seen before its namespace. The next time that this happens, its pods wait again.
func TestNamespaceNotSeenYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress(prod, prodIPs))
		w.start()
		w.programmed(prod)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "new", Name: "x", UID: "x", Labels: map[string]string{"app": "web"}}}
		for range 2 {
			if mark, err := w.master.Pending(p); err == nil {
				t.Errorf("mark %q before the namespace is known", mark)
			}
			<-time.After(2 * unknownTimeout)
			if mark, err := w.master.Pending(p); mark != "" || err != nil {
				t.Errorf("mark %q, error %v after the timeout", mark, err)
			}
			w.create(namespace("new", map[string]string{"environment": "production"}))
			synctest.Wait()
			if mark, err := w.master.Pending(p); mark != prod || err != nil {
				t.Errorf("mark %q, error %v", mark, err)
			}
			w.remove(namespace("new", nil))
			synctest.Wait()
		}
	})
}
