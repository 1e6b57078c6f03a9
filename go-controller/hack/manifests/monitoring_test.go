package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/monitoring"
)

const monitoringDir = dist + "/monitoring"

// podMonitor is the part of the Prometheus Operator's PodMonitor that is used.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
			Scheme   string `json:"scheme"`
			TLS      struct {
				CA         struct{ Secret key } `json:"ca"`
				ServerName string               `json:"serverName"`
			} `json:"tlsConfig"`
			Authorization struct {
				Credentials key `json:"credentials"`
			} `json:"authorization"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// key is a key of a Secret.
type key struct{ Name, Key string }

// decode decodes a document strictly.
func decode(t *testing.T, document []byte, into any) {
	t.Helper()
	text, err := yaml.ToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
}

func alerts(t *testing.T) monitoring.Rules {
	t.Helper()
	r, err := monitoring.ReadAlerts(monitoringDir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// promtool runs promtool on rules, which are in rules.yaml, and further files.
func promtool(t *testing.T, r monitoring.Rules, files map[string][]byte, args ...string) error {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(r) // which is valid YAML
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// TestAlerts: Prometheus accepts each alert, and each uses only existing metrics, explains what it means, is
// documented, and fires in a test.
func TestAlerts(t *testing.T) {
	r := alerts(t)
	tests, err := os.ReadFile("testdata/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := promtool(t, r, nil, "check", "rules", "rules.yaml"); err != nil {
		t.Error(err)
	}
	if err := promtool(t, r, map[string][]byte{"alerts_test.yaml": tests}, "test", "rules", "alerts_test.yaml"); err != nil {
		t.Error(err)
	}

	var cases struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Want  []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	text, err := yaml.ToJSON(tests)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range cases.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Want) > 0
			quiet[c.Alert] = quiet[c.Alert] || len(c.Want) == 0
		}
	}
	page, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^\\| `(Ovnkube[A-Za-z]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented[name[1]] = true
	}
	for _, group := range r.Groups {
		for _, a := range group.Rules {
			if !fires[a.Alert] || !quiet[a.Alert] {
				t.Errorf("no test has %s fire, or none has it keep quiet", a.Alert)
			}
			if !documented[a.Alert] {
				t.Errorf("docs/monitoring.md has no %s", a.Alert)
			}
			delete(documented, a.Alert)
			if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) || a.Annotations["summary"] == "" ||
				a.Annotations["description"] == "" {
				t.Errorf("%s: labels %v, annotations %v", a.Alert, a.Labels, a.Annotations)
			}
			for _, problem := range undefined(a.Expr) {
				t.Errorf("%s: %s", a.Alert, problem)
			}
		}
	}
	for name := range documented {
		t.Errorf("docs/monitoring.md has %s, which is no alert", name)
	}
}

// TestCertificatesOfAlerts: an alert about certificates covers all that masters and nodes use.
func TestCertificatesOfAlerts(t *testing.T) {
	files := map[string]bool{}
	for _, w := range workloads(t) {
		for _, c := range w.template.Spec.Containers {
			for _, arg := range c.Args {
				if flag, file, _ := strings.Cut(arg, "="); strings.HasSuffix(flag, "-cert") || strings.HasSuffix(flag, "-cacert") {
					files[file] = true
				}
			}
		}
	}
	if len(files) < 3 {
		t.Fatalf("only found the certificates %v", files)
	}
	byFile := regexp.MustCompile(`\bfile=~"([^"]*)"`)
	found := 0
	for _, group := range alerts(t).Groups {
		for _, a := range group.Rules {
			for _, match := range byFile.FindAllStringSubmatch(a.Expr, -1) {
				found++
				covered := regexp.MustCompile("^(?:" + match[1] + ")$") // as Prometheus reads it
				for file := range files {
					if !covered.MatchString(file) {
						t.Errorf("%s does not cover %s", a.Alert, file)
					}
				}
			}
		}
	}
	if found != 2 {
		t.Errorf("%d alerts are about certificates, want 2", found)
	}
}

var (
	name      = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	quoted    = regexp.MustCompile(`"[^"]*"`)
	selector  = regexp.MustCompile(`(ovnkube_[a-z0-9_]+)\{([^}]*)\}`)
	grouping  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	scraped   = []string{"instance", "job", "namespace", "pod"} // labels that Prometheus adds
	functions = []string{"and", "or", "unless", "by", "absent", "count", "histogram_quantile", "increase", "max", "min", "min_over_time", "offset",
		"rate", "sum", "time", "m", "h"} // with units of time
)

// find returns the definition of a series' metric.
func find(series string) (metrics.Definition, bool) {
	for _, d := range metrics.All() {
		if series == d.Name || d.Type == "histogram" &&
			slices.Contains([]string{d.Name + "_bucket", d.Name + "_sum", d.Name + "_count"}, series) {
			return d, !(series == d.Name && d.Type == "histogram")
		}
	}
	return metrics.Definition{}, false
}

// undefined returns the identifiers in a query that are neither our metrics nor their labels.
func undefined(query string) []string {
	var problems []string
	query = quoted.ReplaceAllString(query, `""`)
	known := slices.Concat(scraped, []string{"le"})
	for _, s := range selector.FindAllStringSubmatch(query, -1) {
		d, _ := find(s[1])
		for _, label := range name.FindAllString(s[2], -1) {
			if !slices.Contains(d.Labels, label) && !slices.Contains(scraped, label) {
				problems = append(problems, s[1]+" has no label "+label)
			}
		}
	}
	rest := selector.ReplaceAllString(query, "$1")
	for _, n := range name.FindAllString(grouping.ReplaceAllString(rest, "by"), -1) {
		if d, ok := find(n); ok {
			known = append(known, d.Labels...)
		} else if !slices.Contains(functions, n) {
			problems = append(problems, n+" is no metric of ovnkube")
		}
	}
	for _, group := range grouping.FindAllStringSubmatch(rest, -1) {
		for _, label := range name.FindAllString(group[1], -1) {
			if !slices.Contains(known, label) {
				problems = append(problems, "no metric has the label "+label)
			}
		}
	}
	return problems
}

// TestUndefined: mistakes in queries are detected.
func TestUndefined(t *testing.T) {
	for query, want := range map[string]int{
		`max by (node) (ovnkube_node_reachability{state="dead"}) == 1`:                          0,
		`increase(ovnkube_drift_repaired_total[10m] offset 10m) > 0`:                            0,
		`sum by (le) (rate(ovnkube_node_probe_duration_seconds_bucket{result="answered"}[5m]))`: 0,
		`max by (node) (ovnkube_node_reachable{state="dead"}) == 1`:                             3, // and its labels
		`ovnkube_node_probe_duration_seconds`:                                                   1, // a histogram
		`ovnkube_leader{node="n1"}`:                                                             1,
		`sum by (pods) (ovnkube_leader)`:                                                        1,
		`sum by (node) (up)`:                                                                    2,
	} {
		if got := undefined(query); len(got) != want {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// TestPodMonitors: each selects one of our workloads and names one of its ports.
func TestPodMonitors(t *testing.T) {
	ports := map[string]string{}
	scrapable := func(pod corev1.PodTemplateSpec) {
		for _, c := range pod.Spec.Containers {
			for _, p := range c.Ports {
				if strings.HasSuffix(p.Name, "metrics") {
					ports[pod.Labels["app"]] = p.Name
				}
			}
		}
	}
	for _, object := range objects(t) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			scrapable(o.Spec.Template)
		case *appsv1.DaemonSet:
			scrapable(o.Spec.Template)
		}
	}
	var secret corev1.Secret
	decode(t, documents(t, monitoringDir+"/token.yaml")[0], &secret)
	if secret.Type != corev1.SecretTypeServiceAccountToken || secret.Namespace != "ovn-kubernetes" || secret.Annotations[corev1.ServiceAccountNameKey] != "ovnkube-metrics" {
		t.Errorf("no Secret with a token: %+v", secret)
	}
	for _, document := range documents(t, monitoringDir+"/podmonitors.yaml") {
		var m podMonitor
		decode(t, document, &m)
		app := m.Spec.Selector.MatchLabels["app"]
		if m.Kind != "PodMonitor" || len(m.Spec.Endpoints) != 1 || m.Spec.Endpoints[0].Port == "" || m.Spec.Endpoints[0].Port != ports[app] {
			t.Errorf("%s %s scrapes %v of %s, which has %q", m.Kind, m.Name, m.Spec.Endpoints, app, ports[app])
		}
		delete(ports, app)
		e := m.Spec.Endpoints[0]
		token, ca := e.Authorization.Credentials, e.TLS.CA.Secret
		if e.Scheme != "https" || ca != (key{"ovnkube-metrics", "cacert.pem"}) || e.TLS.ServerName != "ovnkube-metrics" ||
			token != (key{secret.Name, corev1.ServiceAccountTokenKey}) {
			t.Errorf("%s scrapes without TLS or a token: %+v", m.Name, e)
		}
	}
	if len(ports) > 0 {
		t.Errorf("nobody scrapes %v", ports)
	}
}

// TestPrometheus: Prometheus accepts the configuration for use without the operator.
func TestPrometheus(t *testing.T) {
	text, err := os.ReadFile(monitoringDir + "/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := json.Marshal(alerts(t))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"prometheus.yaml": text, "ovnkube-rules.yaml": rules, "ovnkube-ca.pem": authority.Certificate(), "ovnkube-token": []byte("token")}
	if err := promtool(t, alerts(t), files, "check", "config", "prometheus.yaml"); err != nil {
		t.Error(err)
	}
}
