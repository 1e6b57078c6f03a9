package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

func read(t *testing.T, s *Set) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("%d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

func has(t *testing.T, s *Set, lines ...string) {
	t.Helper()
	body := "\n" + read(t, s)
	for _, l := range lines {
		if !strings.Contains(body, "\n"+l+"\n") {
			t.Errorf("no line %s", l)
		}
	}
}

func TestSet(t *testing.T) {
	s := New(version.Info{Version: "v1", Commit: "abc", Go: "go0"})
	has(t, s, `ovnkube_build_info{commit="abc",go_version="go0",version="v1"} 1`, "ovnkube_leader 0")
	s.SetLeader(true)
	s.Checks(func() map[string]error { return map[string]error{"a": nil, "b": errors.New("broken")} })
	s.Failing(func() map[string]int { return map[string]int{"pod": 2, "network": 0} })
	s.Panics(func() map[string]uint64 { return map[string]uint64{"pod": 3} })
	has(t, s, `ovnkube_failing_keys{controller="pod"} 2`, `ovnkube_failing_keys{controller="network"} 0`, `ovnkube_panics_total{part="pod"} 3`)
	has(t, s, "ovnkube_leader 1", `ovnkube_readiness_check{check="a"} 1`, `ovnkube_readiness_check{check="b"} 0`)
	s.SetLeader(false)
	has(t, s, "ovnkube_leader 0")
}

// A real queue reports through the provider.
func TestWorkqueue(t *testing.T) {
	s := New(version.Info{})
	q := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Millisecond),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "pods", MetricsProvider: s.Workqueue()})
	defer q.ShutDown()
	q.Add("a")
	q.Add("b")
	has(t, s, `ovnkube_workqueue_depth{name="pods"} 2`, `ovnkube_workqueue_adds_total{name="pods"} 2`)
	key, _ := q.Get()
	q.AddRateLimited(key)
	q.Done(key)
	has(t, s, `ovnkube_workqueue_retries_total{name="pods"} 1`,
		`ovnkube_workqueue_work_duration_seconds_count{name="pods"} 1`,
		`ovnkube_workqueue_queue_duration_seconds_count{name="pods"} 1`)
}

// Every name is ours and in the form Prometheus asks for.
func TestNames(t *testing.T) {
	s := New(version.Info{})
	q := s.queues
	s.Failing(func() map[string]int { return map[string]int{"x": 1} })
	s.Panics(func() map[string]uint64 { return map[string]uint64{"x": 1} })
	for _, f := range []func(string){
		func(n string) { q.NewUnfinishedWorkSecondsMetric(n).Set(1) },
		func(n string) { q.NewLongestRunningProcessorSecondsMetric(n).Set(1) },
		func(n string) { q.NewDepthMetric(n).Inc() },
		func(n string) { q.NewAddsMetric(n).Inc() },
		func(n string) { q.NewRetriesMetric(n).Inc() },
		func(n string) { q.NewLatencyMetric(n).Observe(1) },
		func(n string) { q.NewWorkDurationMetric(n).Observe(1) },
	} {
		f("x")
	}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, f := range families {
		name := f.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		ours++
		if !strings.HasPrefix(name, "ovnkube_") || f.GetHelp() == "" {
			t.Errorf("%s: help %q", name, f.GetHelp())
		}
		if counter := f.GetType().String() == "COUNTER"; counter != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, f.GetType())
		}
	}
	if ours != 11 {
		t.Errorf("%d metrics of ours", ours)
	}
}
