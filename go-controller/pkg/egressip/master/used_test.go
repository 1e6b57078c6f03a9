package master

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// TestUses: the addresses of a deleted pod are used until its rows are gone, and during each pass over the pod. When they
// are not used any more, OnPass reports it.
func TestUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, "172.18.0.33")
		var started, unused, during atomic.Bool
		w.stop()
		w.onPass = func(c *Controller, pod string) {
			if pod == web {
				unused.Store(!c.Uses(web, addrs(webV4)))
			}
		}
		w.db = &asking{w.db, func(o nb.Owner) {
			if started.Load() && o == egressip.Owner(web) { // a pass that may be about to write rows with any address
				during.Store(w.master.Uses(web, addrs("10.244.0.200")))
			}
		}}
		w.start()
		started.Store(true)
		synctest.Wait()
		w.barrier.stop("chassis-ovn-control-plane", true)
		w.detach(web)
		w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
		synctest.Wait()
		if used := w.master.Used()[web]; !w.master.Uses(web, addrs(webV4)) || unused.Load() || len(used) == 0 || used[0] != addrs(webV4)[0] {
			t.Errorf("the address of a deleted pod that may still send is not used: rows of %v", used)
		}
		if w.master.Uses(web, addrs("10.244.0.200")) {
			t.Error("an address without rows is used")
		}
		w.barrier.stop("chassis-ovn-control-plane", false)
		w.eventually("the rows to go", func() bool { return w.nats(web) == "" })
		synctest.Wait()
		if w.master.Uses(web, addrs(webV4)) || !unused.Load() {
			t.Errorf("the address is still used, though its rows are gone: reported %v", unused.Load())
		}
		if !during.Load() {
			t.Error("an address that the pass in progress may use is not used")
		}
	})
}

// asking is a database that calls a function with each owner before it writes.
type asking struct {
	database
	before func(nb.Owner)
}

func (a *asking) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	for o := range want {
		a.before(o)
	}
	return a.database.ApplyAll(ctx, want)
}
