package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// briefly summarizes a timeline, the latest first.
func (t Timeline) briefly() string {
	var out []string
	for _, e := range t.Entries {
		out = append(out, fmt.Sprintf("%s %s %s: %s", e.Time.UTC().Format("15:04:05"), e.Object, e.Reason, e.Message))
	}
	return strings.Join(out, "\n")
}

func event(object, reason, message string, at time.Time) *corev1.Event {
	kind, name, _ := strings.Cut(object, "/")
	return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Reason: reason, Message: message,
		LastTimestamp: metav1.NewTime(at), Source: corev1.EventSource{Component: "ovnkube"}}
}

func TestTimeline(t *testing.T) {
	c := newCluster(t, 3)
	s := c.server()
	is := func(want ...string) {
		t.Helper()
		if got := answer[Timeline](t, s, "/api/v1/timeline").briefly(); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	c.facts.Events = []*corev1.Event{event("EgressIP/ip-00001", "Assigned", "Node worker-2 is to hold 172.18.1.2, which is in its network 172.18.0.0/16", start.Add(-time.Hour))}
	is("11:00:00 EgressIP/ip-00001 Assigned: Node worker-2 is to hold 172.18.1.2, which is in its network 172.18.0.0/16")

	c.now = start.Add(20 * time.Second)
	ready := &c.facts.Snapshot.Nodes[0].Status.Conditions[0]
	ready.Status, ready.LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(start.Add(15*time.Second))
	ips := c.facts.Snapshot.EgressIPs
	moved := *ips[0]
	c.assign(&moved, "worker-3")
	gone := *ips[1]
	gone.Status.Items = nil
	ips[0], ips[1] = &moved, &gone
	c.facts.Snapshot.EgressIPs = ips[:2] // the third is deleted
	c.facts.Events = append(c.facts.Events, event("EgressIP/ip-00001", "Moved", "172.18.1.2 moves from node worker-21 to node worker-3", start.Add(16*time.Second)))
	is("12:00:20 EgressIP/ip-00000 NodeChanged: 172.18.1.1 was assigned to worker-1, and is assigned to worker-3",
		"12:00:20 EgressIP/ip-00001 NodeChanged: 172.18.1.2 was assigned to worker-2, and is on no node",
		"12:00:20 EgressIP/ip-00002 NodeChanged: 172.18.1.3 was assigned to worker-3, and is on no node",
		"12:00:16 EgressIP/ip-00001 Moved: 172.18.1.2 moves from node worker-21 to node worker-3",
		"12:00:15 Node/worker-1 NodeNotReady: the node ceased to be Ready",
		"11:00:00 EgressIP/ip-00001 Assigned: Node worker-2 is to hold 172.18.1.2, which is in its network 172.18.0.0/16")

	// The late Event replaces the first observed move.
	c.now = start.Add(30 * time.Second)
	c.facts.Events = append(c.facts.Events, event("EgressIP/ip-00000", "Moved", "172.18.1.1 moves from node worker-1 to node worker-3: worker-1 is not ready", start.Add(16*time.Second)))
	got := answer[Timeline](t, s, "/api/v1/timeline").briefly()
	if strings.Contains(got, "172.18.1.1 was assigned") || !strings.Contains(got, "172.18.1.1 moves from node worker-1") {
		t.Errorf("told twice, or not at all:\n%s", got)
	}
	if l := answer[Timeline](t, s, "/api/v1/timeline?limit=2"); len(l.Entries) != 2 || l.Total != 6 {
		t.Errorf("%d entries of %d, want 2 of 6", len(l.Entries), l.Total)
	}
}

func TestEventTimes(t *testing.T) {
	at := metav1.NewTime(start)
	for name, e := range map[string]*corev1.Event{
		"last": {LastTimestamp: at}, "first": {FirstTimestamp: at}, "of the new kind": {EventTime: metav1.NewMicroTime(start)},
	} {
		e.InvolvedObject = corev1.ObjectReference{Kind: "EgressService", Namespace: "shop", Name: "checkout"}
		if got := ofEvent(e); !got.Time.Equal(&at) || got.Object != "EgressService/shop/checkout" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
