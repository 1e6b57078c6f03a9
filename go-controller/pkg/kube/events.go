package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// BriefRecorder cuts the messages of Events: they name as many objects as there are, and the API limits them.
type BriefRecorder struct{ record.EventRecorder }

// Event records an Event.
func (r BriefRecorder) Event(about runtime.Object, kind, reason, message string) {
	r.EventRecorder.Event(about, kind, reason, conditions.CutNote(message))
}

// Eventf records an Event.
func (r BriefRecorder) Eventf(about runtime.Object, kind, reason, format string, args ...any) {
	r.Event(about, kind, reason, fmt.Sprintf(format, args...))
}
