package monitoring

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/monitoring"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/plot"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

// patience is how long the cluster and Prometheus together may take for a step.
const patience = 4 * time.Minute

// first is the node that fails, second the one that takes over.
var first, second = labtest.Nodes[1], labtest.Nodes[2]

// drawn are the panels that the documentation shows.
var drawn = []string{"Reachability", "Egress addresses by node", "EgressServices by host", "Stages of failovers, median"}

// greater are panels whose values are meaningless while they are 0, and in how many series of each
// the failover must be visible.
var greater = map[string]int{
	"Unreachable nodes":                    1,
	"Without node":                         1,
	"Not programmed":                       1,
	"Moves":                                2, // of the EgressIP, of the EgressService
	"Stages of failovers, median":          6, // three of each
	"Stages of failovers, 99th percentile": 6,
	"Detection":                            2,
	"Egress addresses by node":             2,
	"EgressServices by host":               2,
}

// TestMonitoring lets a node fail that holds the addresses of EgressIPs and serves
// EgressServices, while Prometheus scrapes the cluster.
func TestMonitoring(t *testing.T) {
	l := labtest.Start(t, "monitoring", lab.Options{Name: fmt.Sprintf("monitoring-%d", os.Getpid()), GatewayMode: "shared", Install: "manifests"})
	w := &watched{Lab: l, prometheus: startPrometheus(t, l), from: time.Now()}
	w.prepare(t)
	w.failover(t)
	w.to = time.Now()
	t.Run("Dashboard", w.dashboard)
	t.Run("Alerts", w.alerts)
}

// watched is a cluster with a Prometheus.
type watched struct {
	*lab.Lab
	prometheus
	from, to time.Time
	marks    []plot.Tick // events, in seconds since the beginning
}

func (w *watched) mark(what string) {
	w.marks = append(w.marks, plot.Tick{At: time.Since(w.from).Seconds(), Label: what})
}

func (w *watched) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := lab.Run(t.Context(), append(w.Kubectl(), args...)...); err != nil {
		t.Fatal(err)
	}
}

// prepare creates the objects and their pods. At that time only the first node can be chosen.
func (w *watched) prepare(t *testing.T) {
	w.kubectl(t, "label", "node", first, "k8s.ovn.org/egress-assignable=")
	w.kubectl(t, "apply", "--filename=testdata/objects.yaml")
	for service, address := range map[string]string{"shop": "5.5.5.5", "till": "5.5.5.6", "lost": "5.5.5.7"} {
		w.kubectl(t, "patch", "service", service, "--subresource=status", "--type=merge",
			fmt.Sprintf(`--patch={"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, address))
	}
	for _, app := range []string{"web", "api", "shop", "till", "lost"} {
		if _, err := w.RunServer(t.Context(), app, lab.ControlPlane, map[string]string{"app": app}); err != nil {
			t.Fatal(err)
		}
	}
	w.until(t, "the EgressIPs and EgressServices to be programmed",
		`sum(ovnkube_egress_objects{kind=~"EgressIP|EgressService",type="Programmed",status="True"}) == 4`)
	w.kubectl(t, "label", "node", second, "k8s.ovn.org/egress-assignable=")
	w.until(t, "a while in which the first node serves all", served(first, "")+" and on() "+served(first, " offset 45s"))
}

// served returns a query that returns something while a node has both addresses, and both
// EgressServices.
func served(node, at string) string {
	return fmt.Sprintf(`(ovnkube_egressip_addresses{node=%[1]q,state="programmed"}%[2]s == 2 and on(node) ovnkube_egressservice_hosted{node=%[1]q}%[2]s == 2)`, node, at)
}

// failover cuts the power of the first node until the alert fires, and then starts the node again.
func (w *watched) failover(t *testing.T) {
	w.mark("power lost")
	if err := w.Kin.Node(t.Context(), "kill", first); err != nil {
		t.Fatal(err)
	}
	firing := fmt.Sprintf(`ALERTS{alertname="OvnkubeNodeUnreachable",alertstate="firing",node=%q}`, first)
	w.until(t, "the alert", firing)
	w.until(t, "the second node to serve all", served(second, ""))
	w.mark("power back")
	if err := w.Kin.Node(t.Context(), "start", first); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the alert to end", "absent("+firing+") and on() (sum(up) == 4)")
	w.until(t, "the alert about what is not programmed", `ALERTS{alertname="OvnkubeEgressNotProgrammed",alertstate="firing",kind="EgressService",reason="NetworkNotFound"}`)
}

// dashboard fails the test if a query never returned a number.
func (w *watched) dashboard(t *testing.T) {
	d, err := monitoring.ReadDashboard(dist)
	if err != nil {
		t.Fatal(err)
	}
	titles := map[string]bool{}
	for _, panel := range d.Panels {
		titles[panel.Title] = true
		positive := 0
		var curves []plot.Curve
		for i, target := range panel.Targets {
			query := target.Query(rateInterval)
			found, err := w.between(t.Context(), query, w.from, w.to)
			if err != nil {
				t.Errorf("%s: %s: %v", panel.Title, query, err)
				continue
			}
			all := 0
			for _, s := range found {
				n, largest := s.numbers()
				all += n
				if largest > 0 {
					positive++
				}
				curves = append(curves, w.curve(target, s))
			}
			if all == 0 {
				t.Errorf("%s, query %d has returned no number: %s", panel.Title, i+1, query)
			}
		}
		if want := greater[panel.Title]; positive < want {
			t.Errorf("%s has %d series that were greater than 0, want %d", panel.Title, positive, want)
		}
		w.draw(t, panel, curves)
	}
	for _, title := range append(slices.Collect(maps.Keys(greater)), drawn...) {
		if !titles[title] {
			t.Errorf("there is no panel %q", title)
		}
	}
}

// alerts fails the test if a series that an alert uses never existed, if Prometheus
// cannot evaluate an alert, or if one fires without a reason.
func (w *watched) alerts(t *testing.T) {
	rules, err := monitoring.ReadAlerts(dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			for _, selector := range monitoring.Selectors(rule.Expr) {
				switch found, err := w.between(t.Context(), selector, w.from, w.to); {
				case err != nil:
					t.Errorf("%s: %s: %v", rule.Alert, selector, err)
				case len(found) == 0:
					t.Errorf("%s: there has been no %s", rule.Alert, selector)
				}
			}
		}
	}
	var evaluated struct {
		Groups []struct {
			Rules []struct {
				Name   string `json:"name"`
				Health string `json:"health"`
				Error  string `json:"lastError"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := w.get(t.Context(), "rules", nil, &evaluated); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, group := range evaluated.Groups {
		for _, rule := range group.Rules {
			n++
			if rule.Health != "ok" {
				t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.Error)
			}
		}
	}
	if n == 0 {
		t.Error("Prometheus has no rules")
	}
	fired, err := w.between(t.Context(), `ALERTS{alertname=~"OvnkubeNoLeader|OvnkubeNorthbound.*|OvnkubePanics|OvnkubeRepeatedDrift",alertstate="firing"}`, w.from, w.to)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range fired {
		t.Errorf("%v fires", alert.Metric)
	}
}
