package app

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// TestFailuresAreTold: what keeps failing is an Event, once until it succeeds; what
// fails for a moment is none.
func TestFailuresAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(10)
		var mended atomic.Bool
		begin := time.Now()
		r := &failureReports{node: "n1", recorder: recorder, failures: func() []queue.Failure {
			if mended.Load() {
				return nil
			}
			return []queue.Failure{
				{Controller: "service-node", Key: "ns/a", Err: errors.New("odd"), Since: begin, Tries: 7},
				{Controller: "service-node", Key: "ns/b", Err: errors.New("a moment"), Since: time.Now(), Tries: 1},
			}
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		told := func(want int) {
			t.Helper()
			if got := len(recorder.Events); got != want {
				t.Fatalf("%d Events, want %d", got, want)
			}
			for range want {
				if e := <-recorder.Events; !strings.Contains(e, `Warning ReconcileFailing service-node "ns/a": odd (7 tries`) {
					t.Errorf("Event %q", e)
				}
			}
		}
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		wait(failingFor - time.Second)
		told(0)
		wait(5 * failuresInterval)
		told(1)
		mended.Store(true)
		wait(2 * failuresInterval)
		mended.Store(false)
		wait(2 * failuresInterval)
		told(1)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
