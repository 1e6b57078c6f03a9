package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
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
	s.Certificates(func() map[string]time.Time { return map[string]time.Time{"/a.pem": time.Unix(1774000000, 0)} })
	has(t, s, `ovnkube_certificate_expiration_timestamp_seconds{file="/a.pem"} 1.774e+09`)
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

// full returns a set that reports every metric.
func full(t *testing.T) *Set {
	t.Helper()
	s := New(version.Info{})
	s.SetLeader(true)
	s.Checks(func() map[string]error { return map[string]error{"x": nil} })
	s.Failing(func() map[string]int { return map[string]int{"x": 1} })
	s.Waiting(func() map[string]int { return map[string]int{"x": 1} })
	s.Panics(func() map[string]uint64 { return map[string]uint64{"x": 1} })
	s.Certificates(func() map[string]time.Time { return map[string]time.Time{"x": time.Unix(1, 0)} })
	s.Repaired(func() map[string]uint64 { return map[string]uint64{"x": 1} })
	s.Repaired(func() map[string]uint64 { return map[string]uint64{"y": 1} })
	s.Dropped(map[string]func() (Drops, error){"host": func() (Drops, error) { return Drops{Unsnatted: 1, NoReply: 1}, nil }})
	q := s.queues
	q.NewUnfinishedWorkSecondsMetric("x").Set(1)
	q.NewLongestRunningProcessorSecondsMetric("x").Set(1)
	q.NewDepthMetric("x").Inc()
	q.NewAddsMetric("x").Inc()
	q.NewRetriesMetric("x").Inc()
	q.NewLatencyMetric("x").Observe(1)
	q.NewWorkDurationMetric("x").Observe(1)

	l := s.Leader()
	l.Objects("x", func(visit func([]metav1.Condition)) {
		visit([]metav1.Condition{{Type: "a", Status: "True", Reason: "b"}})
	})
	l.Addresses(func(emit Emit) { emit(1, "n1", Assigned) })
	l.Hosted(func(emit Emit) { emit(1, "n1") })
	l.PodsHeld(func() int { return 1 })
	l.Rows(func(emit Emit) { emit(1, "x") })
	l.Reachability(func(yield func(string, place.Reach, time.Duration)) { yield("n1", place.Alive, time.Second) })
	l.Moved("x", "unreachable")
	l.PodStarted(time.Second, true)
	l.Probed(time.Second, true, true)
	l.Transaction(time.Second, 1, 1, 1, nil)
	l.Changed("n1", place.Dead, time.Now())
	l.Decided("x", "o", "n1")
	l.Programmed("x", "o")
	return s
}

// TestDefinitions: exactly the defined metrics are reported.
func TestDefinitions(t *testing.T) {
	families, err := full(t).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		reported[name] = true
		i := slices.IndexFunc(All(), func(d Definition) bool { return d.Name == name })
		if i < 0 {
			t.Errorf("%s is not defined", name)
			continue
		}
		d := All()[i]
		if got := strings.ToLower(f.GetType().String()); got != string(d.Type) || f.GetHelp() != d.Help {
			t.Errorf("%s is a %s, help %q", name, got, f.GetHelp())
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if want := slices.Sorted(slices.Values(d.Labels)); !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %q, want %q", name, labels, want)
		}
	}
	for _, d := range All() {
		if !reported[d.Name] {
			t.Errorf("%s is defined, and nothing reports it", d.Name)
		}
		if !strings.HasPrefix(d.Name, "ovnkube_") || strings.ContainsAny(d.Help, "|\n") || !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: help %q", d.Name, d.Help)
		}
	}
}

// TestConventions: names, units and help texts follow Prometheus' conventions.
func TestConventions(t *testing.T) {
	var ours strings.Builder
	for line := range strings.Lines(read(t, full(t))) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "ovnkube_") {
			ours.WriteString(line)
		}
	}
	check := func(text string) (string, error) {
		cmd := exec.Command("promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check(ours.String()); err != nil || out != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	if out, err := check("# TYPE ovnkube_x counter\novnkube_x 1\n"); err == nil {
		t.Errorf("a counter without help and _total passes: %s", out)
	}
}

// TestPage: the page lists every metric.
func TestPage(t *testing.T) {
	var page strings.Builder
	if err := Markdown(&page); err != nil {
		t.Fatal(err)
	}
	for _, d := range All() {
		if !strings.Contains(page.String(), "| `"+d.Name+"` | "+string(d.Type)+" |") {
			t.Errorf("the page has no %s", d.Name)
		}
	}
}
