package master

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// measurements are the metrics of a world.
type measurements struct {
	w   *world
	set *metrics.Set
}

// measure collects the metrics of a world from its start.
func measure(w *world) measurements {
	m := measurements{w, metrics.New(version.Info{})}
	m.set.SetLeader(true)
	w.measured = m.set.Leader()
	return m
}

// has reports whether a line starts with prefix.
func (m measurements) has(prefix string) bool {
	answer := httptest.NewRecorder()
	m.set.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return strings.Contains(answer.Body.String(), "\n"+prefix)
}

// await waits for a line.
func (m measurements) await(line string) {
	m.w.t.Helper()
	m.w.eventually("the metric "+line, func() bool { return m.has(line + "\n") })
}

// reached waits until an EgressIP has reached a stage n times.
func (m measurements) reached(stage string, n int) {
	m.w.t.Helper()
	m.await(fmt.Sprintf(`ovnkube_egress_failover_duration_seconds_count{kind="EgressIP",stage=%q} %d`, stage, n))
}

// not fails if a stage was reached.
func (m measurements) not(stage string) {
	m.w.t.Helper()
	if !m.has(fmt.Sprintf(`ovnkube_egress_failover_duration_seconds_count{kind="EgressIP",stage=%q} 0`, stage)) {
		m.w.t.Errorf("%s was measured before it was so", stage)
	}
}

// TestMeasuredFailover: the stages of a move away from a dead node are measured once each,
// and the move is counted by its reason; a planned move is counted, but not as a failover.
func TestMeasuredFailover(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs[:1]))
	w.pod(web, "ovn-control-plane", webV4, webV6)
	m := measure(w)
	w.start()
	was := w.programmed(prod)
	stages := func(n int) {
		t.Helper()
		for _, stage := range []string{"decided", "acknowledged", "programmed"} {
			m.reached(stage, n)
		}
	}
	w.freeze(was, true)
	w.barrier.stop("chassis-"+was, true)
	w.measured.Changed(was, place.Dead, time.Now())
	w.health.Set(was, place.Dead)
	w.eventually("the move", func() bool { return w.holder(prod, "172.18.0.33") == other(was) })
	w.programmed(prod)
	stages(1)
	m.await(`ovnkube_egress_moves_total{kind="EgressIP",reason="unreachable"} 1`)

	w.freeze(was, false)
	w.barrier.stop("chassis-"+was, false)
	w.measured.Changed(was, place.Alive, time.Now())
	w.health.Set(was, place.Alive)
	w.changeNode(other(was), func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
	w.eventually("the move back", func() bool { return w.holder(prod, "172.18.0.33") == was })
	w.programmed(prod)
	m.await(`ovnkube_egress_moves_total{kind="EgressIP",reason="is not labelled k8s.ovn.org/egress-assignable"} 1`)
	stages(1)
}

// TestMeasuredStages: a stage that a node has not acknowledged is not measured.
func TestMeasuredStages(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs[:1]))
	w.pod(web, "ovn-control-plane", webV4, webV6)
	m := measure(w)
	w.start()
	was := w.programmed(prod)
	w.freeze(other(was), true)
	w.measured.Changed(was, place.Dead, time.Now())
	w.health.Set(was, place.Dead)
	m.reached("decided", 1)
	w.eventually("the status to say so", func() bool { return !w.is(prod, "Programmed") })
	m.not("acknowledged")
	m.not("programmed")
	w.barrier.stop("all", true)
	w.freeze(other(was), false)
	m.reached("acknowledged", 1)
	m.not("programmed")
	w.barrier.stop("all", false)
	m.reached("programmed", 1)
}

// TestMeasuredStart: a pod counts as held until it may start, and then the time it was held is measured.
func TestMeasuredStart(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs[:1]))
	m := measure(w)
	w.start()
	w.programmed(prod)
	w.barrier.stop("all", true)
	w.attach(web, "ovn-control-plane", webV4)
	if n := w.master.Held(); n != 1 {
		t.Errorf("%d pods are held, want 1", n)
	}
	for _, held := range w.master.held() {
		if held.Object != web || held.Limit != podStartTimeout || held.Since.IsZero() {
			t.Errorf("held is %+v", held)
		}
	}
	w.barrier.stop("all", false)
	w.eventually("the pod to start", func() bool { return !w.isMarked(web) })
	w.eventually("its time", func() bool { // on a slow machine the timeout may come first
		return m.has("ovnkube_pod_start_held_duration_seconds_count{result=\"programmed\"} 1\n") ||
			m.has("ovnkube_pod_start_held_duration_seconds_count{result=\"timed_out\"} 1\n")
	})
	if n := w.master.Held(); n != 0 {
		t.Errorf("%d pods are held, want none", n)
	}
}
