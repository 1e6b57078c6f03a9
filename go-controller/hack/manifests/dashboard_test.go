package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/monitoring"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// scrape returns the metrics of a process that reports all of them.
func scrape() string {
	s := metrics.New(version.Info{Version: "v1", Commit: "c", Go: "go"})
	s.SetLeader(true)
	s.Checks(func() map[string]error { return map[string]error{"northbound": nil} })
	s.Failing(func() map[string]int { return map[string]int{"pod": 1} })
	s.Panics(func() map[string]uint64 { return map[string]uint64{"pod": 1} })
	s.Certificates(func() map[string]time.Time { return map[string]time.Time{"/etc/ovn/pki/ovn-cert.pem": time.Now()} })
	s.Repaired(func() map[string]uint64 { return map[string]uint64{"routes": 1} })
	s.Dropped(map[string]func() (metrics.Drops, error){"host": func() (metrics.Drops, error) { return metrics.Drops{Unsnatted: 1, NoReply: 1}, nil }})
	q := s.Workqueue()
	q.NewDepthMetric("pod").Inc()
	q.NewRetriesMetric("pod").Inc()
	q.NewWorkDurationMetric("pod").Observe(1)
	l := s.Leader()
	l.Objects(conditions.EgressIP, func(visit func([]metav1.Condition)) {
		visit([]metav1.Condition{{Type: conditions.Assigned, Status: "False", Reason: "NoNode"}, {Type: conditions.Programmed, Status: "True", Reason: "Programmed"}})
	})
	l.Addresses(func(emit metrics.Emit) { emit(2, "n1", metrics.Assigned); emit(1, "n1", metrics.Programmed) })
	l.Hosted(func(emit metrics.Emit) { emit(1, "n1") })
	l.PodsHeld(func() int { return 1 })
	l.Rows(func(emit metrics.Emit) { emit(1, "Logical_Router_Policy") })
	l.Reachability(func(yield func(string, place.Reach, time.Duration)) { yield("n1", place.Alive, time.Second) })
	l.Moved(conditions.EgressIP, "unreachable")
	l.PodStarted(time.Second, true)
	l.Probed(time.Second, true, true)
	l.Transaction(time.Second, 1, 1, 1, nil)
	l.Transaction(time.Second, 0, 0, 0, errors.New("refused"))
	l.Changed("n1", place.Dead, time.Now())
	l.Decided(conditions.EgressIP, "a", "n1")
	l.Programmed(conditions.EgressIP, "a")
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// returning returns a promtool test that each query returns something if the scraped metrics are like text, and
// grows if it is a counter.
func returning(text string, queries map[string]string) (monitoring.Rules, []byte) {
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type empty struct {
		At    string `json:"eval_time"`
		Alert string `json:"alertname"`
	}
	var input []series
	for line := range strings.Lines(text) {
		i := strings.LastIndex(line, " ")
		if i < 0 || !strings.HasPrefix(line, "ovnkube_") {
			continue
		}
		name, value := line[:i], strings.TrimSpace(line[i+1:])
		bare, _, _ := strings.Cut(name, "{")
		if bare == name {
			name += "{}"
		}
		name = strings.Replace(strings.Replace(name, "{", `{instance="a",`, 1), ",}", "}", 1)
		values := value + "x40"
		if d, _ := find(bare); d.Type != "gauge" {
			values = value + "+" + value + "x40"
		}
		input = append(input, series{name, values})
	}
	r := monitoring.Rules{Groups: []monitoring.RuleGroup{{Name: "queries"}}}
	var cases []empty
	for name, query := range queries {
		r.Groups[0].Rules = append(r.Groups[0].Rules, monitoring.Rule{Alert: name, Expr: "absent(" + query + ")"})
		cases = append(cases, empty{"5m", name})
	}
	test, _ := json.Marshal(map[string]any{ // only strings and numbers
		"rule_files": []string{"rules.yaml"}, "evaluation_interval": "15s",
		"tests": []map[string]any{{"interval": "15s", "input_series": input, "alert_rule_test": cases}},
	})
	return r, test
}

// TestDashboard: Prometheus accepts every query, each uses only existing metrics and labels, and returns something
// for what ovnkube reports.
func TestDashboard(t *testing.T) {
	d, err := monitoring.ReadDashboard(monitoringDir)
	if err != nil {
		t.Fatal(err)
	}
	queries, ids, shown := map[string]string{}, map[int]bool{}, map[string]bool{}
	cells := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d (%s) has no title, or the number of another", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken || x >= 24 {
					t.Fatalf("%s covers %s, or goes over the edge", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("%s has no description, or shows nothing", p.Title)
		}
		for i, target := range p.Targets {
			query := target.Query("2m")
			queries[fmt.Sprintf("%s, query %d", p.Title, i+1)] = query
			for _, problem := range undefined(strings.ReplaceAll(query, "vector(0)", "0")) {
				t.Errorf("%s: %s", p.Title, problem)
			}
			for _, label := range target.Labels() {
				if !regexp.MustCompile(`by \([^)]*\b` + label + `\b[^)]*\)`).MatchString(query) {
					t.Errorf("%s: the legend names %s, which the query does not keep", p.Title, label)
				}
			}
			for _, series := range name.FindAllString(quoted.ReplaceAllString(query, ""), -1) {
				if metric, ok := find(series); ok {
					shown[metric.Name] = true
				}
			}
		}
	}
	r, test := returning(scrape(), queries)
	if err := promtool(t, r, map[string][]byte{"test.json": test}, "test", "rules", "test.json"); err != nil {
		t.Error(err)
	}
	for _, m := range metrics.All() {
		if m.Of == "the leader of the masters" && !shown[m.Name] && !strings.HasSuffix(m.Name, "_timestamp_seconds") {
			t.Errorf("nothing shows %s", m.Name)
		}
	}
}

// TestQueriesThatReturnNothing: they are detected.
func TestQueriesThatReturnNothing(t *testing.T) {
	for query, found := range map[string]bool{
		"max(ovnkube_leader)": false,
		`histogram_quantile(0.5, sum by (le) (rate(ovnkube_node_probe_duration_seconds_bucket{result="answered"}[2m])))`: false,
		`ovnkube_egressip_addresses{state="held"}`: true,
		"rate(ovnkube_egress_moves_total[2m]) < 0": true,
	} {
		r, test := returning(scrape(), map[string]string{"query": query})
		if err := promtool(t, r, map[string][]byte{"test.json": test}, "test", "rules", "test.json"); (err != nil) != found {
			t.Errorf("%s: %v", query, err)
		}
	}
}
