package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit/auditfile"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// openAudit returns where a leading master records egress, or nil if it does not.
func openAudit(l config.Logging) (audit.Sink, error) {
	if l.EgressAudit == "" {
		return nil, nil
	}
	sink, err := auditfile.Open(l.EgressAudit, int64(l.EgressAuditMaxSize)<<20, l.EgressAuditMaxBackups)
	if err != nil {
		return nil, fmt.Errorf("--egress-audit-log: %w", err)
	}
	return sink, nil
}

// startAudit returns the recorder of a master that starts to lead, and a function to call when its
// controllers have ended: it writes the remaining records.
func startAudit(sink audit.Sink, leader string) (*audit.Recorder, func()) {
	recorder := audit.NewRecorder(leader, time.Now, sink)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := panics.Catch("egress audit log", func() error { return recorder.Run(ctx) }); err != nil {
			klog.ErrorS(err, "The egress audit log has ended")
		}
	}()
	return recorder, func() {
		cancel()
		<-ended
	}
}
