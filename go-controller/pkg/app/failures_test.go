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
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// TestWaitsAreTold: a wait is reported as an Event if somebody can do something about it, with the
// documented reason, once until it is over.
func TestWaitsAreTold(t *testing.T) {
	begin := time.Now()
	recorder := record.NewFakeRecorder(10)
	r := &failureReports{node: "n1", recorder: recorder, failures: func() []queue.Failure { return nil }, waits: func() []waits.Wait {
		return []waits.Wait{
			{Part: "cni", Object: "ns/web", For: "its addresses", Since: begin},
			{Part: "gateway", Object: "n1", For: "the Node object", Reason: waits.ReasonNetwork, Since: begin},
		}
	}}
	for _, after := range []time.Duration{waits.ReportAfter - time.Second, waits.ReportAfter, waits.ReportAfter + failuresInterval} {
		r.report(begin.Add(after))
	}
	if got := len(recorder.Events); got != 1 {
		t.Fatalf("%d Events", got)
	}
	if e := <-recorder.Events; !strings.Contains(e, `Warning WaitingForNetwork gateway "n1" waits for the Node object (since `) {
		t.Errorf("Event %q", e)
	}
	for _, reason := range []string{reasonFailing, waits.ReasonAPIServer, waits.ReasonDatabase, waits.ReasonDaemon, waits.ReasonNetwork, waits.ReasonStart} {
		if !conditions.KnownEvent("Node", reason) {
			t.Errorf("the documentation has no Event %s", reason)
		}
	}
}

// TestFailuresAreTold: a lasting failure is reported as an Event, once until it succeeds; a brief
// one is not.
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
		r.waits = func() []waits.Wait { return nil }
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
		wait(waits.ReportAfter - time.Second)
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
