package app

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

const (
	// failuresInterval is how often is looked what keeps failing.
	failuresInterval = 10 * time.Second
	// failingFor is after how long a failure is told.
	failingFor = 30 * time.Second
)

// reasonFailing is the reason of the Event about what keeps failing.
const reasonFailing = "ReconcileFailing"

// failureReports tells in Events of the node what keeps failing, each once until it
// succeeds.
type failureReports struct {
	node     string
	recorder record.EventRecorder
	failures func() []queue.Failure
	reported map[[2]string]bool // controller and key
}

// Run works until ctx is done.
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
	told := map[[2]string]bool{}
	for _, f := range r.failures() {
		if now.Sub(f.Since) < failingFor {
			continue
		}
		id := [2]string{f.Controller, f.Key}
		if told[id] = true; !r.reported[id] {
			// The kubelet's Events about its node name it like this as well.
			node := &corev1.ObjectReference{Kind: "Node", Name: r.node, UID: types.UID(r.node)}
			r.recorder.Event(node, corev1.EventTypeWarning, reasonFailing, f.String())
		}
	}
	r.reported = told
}
