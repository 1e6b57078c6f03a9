package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// TestEventsAreBrief: an Event about very many objects is one that the API server accepts.
func TestEventsAreBrief(t *testing.T) {
	sent := record.NewFakeRecorder(3)
	r := BriefRecorder{sent}
	long := strings.Repeat("node, ", 1000)
	r.Event(&corev1.Pod{}, corev1.EventTypeWarning, "Reason", long)
	r.Eventf(&corev1.Pod{}, corev1.EventTypeWarning, "Reason", "these: %s", long)
	r.Eventf(&corev1.Pod{}, corev1.EventTypeWarning, "Reason", "%s", "100%")
	for range 2 {
		if e := <-sent.Events; len(e) > 1000 || !strings.Contains(e, "node, node, ") {
			t.Errorf("Event of %d bytes: %s", len(e), e)
		}
	}
	if e := <-sent.Events; e != "Warning Reason 100%" {
		t.Errorf("Event %q", e)
	}
}
