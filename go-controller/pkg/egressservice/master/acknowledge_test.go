package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// limit is how long hosts may take to acknowledge.
const limit = 5 * time.Second

// silence keeps one host at a time from acknowledging.
type silence struct{ atomic.Value }

func (s *silence) of(_, host string) bool { return s.Load() == host }

// impatient is a world with a short acknowledgement timeout.
func impatient(t *testing.T) (*world, *silence) {
	w, s := newWorld(t, demoObjects()...), &silence{}
	w.limit, w.silent = limit, s.of
	return w, s
}

// reason returns the reason of the condition Programmed.
func (w *world) reason(name string) string {
	eg, err := w.egress.EgressServiceV1().EgressServices("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if c := meta.FindStatusCondition(eg.Status.Conditions, v1.ConditionProgrammed); c != nil {
		return c.Reason
	}
	return ""
}

// TestHostDoesNotAcknowledge: a host that does not acknowledge loses what it has not
// acknowledged, and nothing else, to one that does.
func TestHostDoesNotAcknowledge(t *testing.T) {
	for name, steps := range map[string]struct {
		// late changes demo-svc, which was served, or creates it.
		before, late func(w *world)
	}{
		"new": {before: func(*world) {}, late: func(w *world) {
			for _, o := range demoObjects() {
				w.create(o)
			}
		}},
		"changed": {before: func(w *world) {
			for _, o := range demoObjects() {
				w.create(o)
			}
			w.served(demo, "ovn-worker")
		}, late: func(w *world) { w.update(slice("demo-svc", "10.244.0.5", "10.244.1.9", "fd00:10:244:1::5")) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t, egress("kept"), service("kept", "6.6.6.6"), slice("kept", "10.244.0.77")), &silence{}
				w.limit, w.silent = limit, s.of
				w.health.Set("ovn-worker2", place.Dead)
				w.start()
				w.eventually("kept to be served", func() bool { return w.programmed("default/kept") })
				steps.before(w)
				w.eventually("the policies", func() bool {
					status, policies, _ := w.hosts("default/kept")
					return status == "ovn-worker" && policies != ""
				})
				s.Store("ovn-worker")
				steps.late(w)
				if name == "new" {
					w.eventually("the host to be chosen", func() bool { status, _, _ := w.hosts(demo); return status == "ovn-worker" })
				}
				w.health.Set("ovn-worker2", place.Alive)
				w.served(demo, "ovn-worker2")
				w.event("Node ovn-worker2 serves the egress traffic instead of ovn-worker: has not acknowledged in time what it was given")
				if status, _, labels := w.hosts("default/kept"); status != "ovn-worker" || labels != "ovn-worker" {
					t.Errorf("what the host has acknowledged went to %q, labels %q", status, labels)
				}
				// Later changes need not wait that long again.
				before := time.Now()
				w.update(slice("kept", "10.244.0.78"))
				w.eventually("the other one to follow", func() bool { status, _, _ := w.hosts("default/kept"); return status == "ovn-worker2" })
				if took := time.Since(before); took >= limit {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestNobodyElseAcknowledges: if no other node can be the host, it stays the host;
// condition and Event report the problem, until it acknowledges.
func TestNobodyElseAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := impatient(t)
		w.health.Set("ovn-worker2", place.Dead)
		s.Store("ovn-worker")
		w.start()
		w.eventually("the condition", func() bool { return w.reason("demo-svc") == egressservice.ReasonNotAcknowledged })
		w.event("NotAcknowledged node ovn-worker does not acknowledge its rules, and no other can be the host")
		<-time.After(3 * time.Minute) // longer than the pause of a node
		if status, _, _ := w.hosts(demo); status != "ovn-worker" || w.reason("demo-svc") != egressservice.ReasonNotAcknowledged {
			t.Errorf("it is with %q: %s", status, w.reason("demo-svc"))
		}
		select {
		case e := <-w.events.Events:
			t.Errorf("another Event: %s", e)
		default:
		}
		s.Store("")
		w.update(slice("demo-svc", "10.244.0.5", "10.244.1.9", "fd00:10:244:1::5"))
		w.served(demo, "ovn-worker")
		w.eventually("the condition to be true", func() bool { return w.programmed(demo) })
	})
}

// TestHostIsBehind: endpoints may change faster than a host can follow. As long as it sends
// new acknowledgements, it stays the host.
func TestHostIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := impatient(t)
		w.start()
		host := w.anyHost(demo)
		s.Store(host)
		for i := range 10 {
			w.update(slice("demo-svc", fmt.Sprintf("10.244.0.%d", 10+i)))
			patch, err := json.Marshal(map[string]any{"status": map[string]any{"programmed": v1.ProgrammedStatus{Host: host, Digest: fmt.Sprint(i)}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.egress.EgressServiceV1().EgressServices("default").Patch(t.Context(), "demo-svc", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
			<-time.After(limit - time.Second)
			if status, _, _ := w.hosts(demo); status != host {
				t.Fatalf("it went to %q after %d changes", status, i+1)
			}
		}
		w.update(slice("demo-svc", demoPods...))
		w.served(demo, other(host)) // once there are no new acknowledgements
	})
}

// TestDeadHostOwesNothing: missing acknowledgements of a dead node do not count against
// it when it returns.
func TestDeadHostOwesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := impatient(t)
		w.health.Set("ovn-worker2", place.Dead)
		w.start()
		w.served(demo, "ovn-worker")
		s.Store("ovn-worker")
		w.health.Set("ovn-worker", place.Dead)
		w.update(slice("demo-svc", append(slices.Clone(demoPods), "10.244.1.9")...))
		<-time.After(2 * limit)
		if w.master.ackTimeouts.TimedOut("ovn-worker") {
			t.Error("a dead node is said not to acknowledge")
		}
		s.Store("")
		w.health.Set("ovn-worker", place.Alive)
		w.served(demo, "ovn-worker")
	})
}
