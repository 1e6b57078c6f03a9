// Package monitoring reads the alerts and the Grafana dashboard in dist/monitoring.
//
// Callers: hack/manifests, which checks both against the definitions of metrics, and test/monitoring, which queries
// a Prometheus that scrapes a cluster.
package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Rules are a Prometheus rule file, and the spec of a PrometheusRule.
type Rules struct {
	Groups []RuleGroup `json:"groups"`
}

// RuleGroup is a group of rules that are evaluated together.
type RuleGroup struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule is an alerting rule.
type Rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// prometheusRule is the Prometheus Operator's PrometheusRule.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Rules `json:"spec"`
}

// Dashboard is the part of a Grafana dashboard that is checked.
type Dashboard struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is a graph, a single number, or the title of a row of panels.
type Panel struct {
	ID          int                      `json:"id"`
	Type        string                   `json:"type"`
	Title       string                   `json:"title"`
	Description string                   `json:"description"`
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
}

// Target is a query of a panel.
type Target struct {
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// ReadAlerts reads the alerts below a directory.
func ReadAlerts(dir string) (Rules, error) {
	text, err := os.ReadFile(filepath.Join(dir, "alerts.yaml"))
	if err != nil {
		return Rules{}, err
	}
	if text, err = yaml.ToJSON(text); err != nil {
		return Rules{}, fmt.Errorf("decode alerts: %w", err)
	}
	var r prometheusRule
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Rules{}, fmt.Errorf("decode alerts: %w", err)
	}
	if r.Kind != "PrometheusRule" || len(r.Spec.Groups) == 0 {
		return Rules{}, fmt.Errorf("%s has a %s with %d groups", dir, r.Kind, len(r.Spec.Groups))
	}
	return r.Spec, nil
}

// ReadDashboard reads the dashboard below a directory.
func ReadDashboard(dir string) (Dashboard, error) {
	text, err := os.ReadFile(filepath.Join(dir, "dashboard.json"))
	if err != nil {
		return Dashboard{}, err
	}
	var d Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return Dashboard{}, fmt.Errorf("decode dashboard: %w", err)
	}
	return d, nil
}

// Query returns the query that Grafana sends with interval for $__rate_interval.
func (t Target) Query(interval string) string {
	return strings.ReplaceAll(t.Expr, "$__rate_interval", interval)
}

var placeholder = regexp.MustCompile(`{{([a-z_]+)}}`)

// Labels returns the labels that the legend uses.
func (t Target) Labels() []string {
	var labels []string
	for _, label := range placeholder.FindAllStringSubmatch(t.Legend, -1) {
		labels = append(labels, label[1])
	}
	return labels
}

// Name returns a series' name in the legend.
func (t Target) Name(labels map[string]string) string {
	return placeholder.ReplaceAllStringFunc(t.Legend, func(p string) string { return labels[strings.Trim(p, "{}")] })
}

var selector = regexp.MustCompile(`ovnkube_[a-z0-9_]+(\{[^}]*\})?`)

// Selectors returns the parts of a query that select series of ovnkube.
func Selectors(query string) []string { return selector.FindAllString(query, -1) }
