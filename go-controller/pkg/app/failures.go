package app

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// failuresInterval is how often failures and waits are checked.
const failuresInterval = 10 * time.Second

// reasonFailing is the reason of Events about objects that keep failing.
const reasonFailing = "ReconcileFailing"

// failureReports reports in Events of the node what keeps failing and what is waited for. Each is
// reported once until it succeeds or the wait is over.
type failureReports struct {
	node     string
	recorder record.EventRecorder
	failures func() []queue.Failure
	waits    func() []waits.Wait
	reported map[[3]string]bool // reason, part and object
}

// Run runs until ctx is done.
func (r *failureReports) Run(ctx context.Context) error {
	ticker := time.NewTicker(failuresInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			r.report(now)
		}
	}
}

func (r *failureReports) report(now time.Time) {
	reported := map[[3]string]bool{}
	report := func(since time.Time, reason, part, object string, what fmt.Stringer) {
		if now.Sub(since) < waits.ReportAfter {
			return
		}
		id := [3]string{reason, part, object}
		if reported[id] = true; !r.reported[id] {
			// The kubelet's Events about its node refer to it like this as well.
			node := &corev1.ObjectReference{Kind: "Node", Name: r.node, UID: types.UID(r.node)}
			r.recorder.Event(node, corev1.EventTypeWarning, reason, what.String())
		}
	}
	for _, f := range r.failures() {
		report(f.Since, reasonFailing, f.Controller, f.Key, f)
	}
	for _, w := range r.waits() {
		if w.Reason != "" {
			report(w.Since, w.Reason, w.Part, w.Object, w)
		}
	}
	r.reported = reported
}
