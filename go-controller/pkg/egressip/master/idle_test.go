package master

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// slow delays each call, so that a controller that retries in a tight loop
// advances the fake clock.
type slow struct {
	database
	calls atomic.Int64
}

func (s *slow) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	s.calls.Add(1)
	<-time.After(20 * time.Millisecond)
	return s.database.ApplyAll(ctx, want)
}

// TestWaitingIsIdle: neither a pod that waits for its chassis longer than new pods are
// held back, nor a status that cannot be written, keeps the master busy.
func TestWaitingIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress(prod, prodIPs))
		db := &slow{database: w.db}
		w.db = db
		var patches atomic.Int64
		w.pod(web, "ovn-control-plane", webV4, webV6)
		w.start()
		w.programmed(prod)
		w.egress.PrependReactor("patch", "egressips", func(clienttesting.Action) (bool, runtime.Object, error) {
			patches.Add(1)
			<-time.After(20 * time.Millisecond)
			return true, nil, errors.New("no answer")
		})
		w.barrier.stop("all", true)
		w.attach("prod/late", "ovn-control-plane", "10.244.0.7")
		fakeapi.Settle() // until the pod has waited long enough
		db.calls.Store(0)
		patches.Store(0)
		fakeapi.Settle()
		if !w.isMarked("prod/late") || w.is(prod, v1.ConditionProgrammed) != true {
			t.Fatal("nothing waits")
		}
		// Each wait for a chassis ends after five seconds, and there are three chassis.
		if calls := db.calls.Load(); calls > 100 {
			t.Errorf("wrote rows %d times in a minute", calls)
		}
		if n := patches.Load(); n == 0 || n > 100 {
			t.Errorf("patched the status %d times in a minute", n)
		}
	})
}
