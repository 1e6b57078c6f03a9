package app

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	egressipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// leading returns the metrics of a process that leads.
func leading() *metrics.Set {
	set := metrics.New(version.Info{})
	set.SetLeader(true)
	return set
}

// scrape returns the metrics as Prometheus reads them.
func scrape(set *metrics.Set) string {
	answer := httptest.NewRecorder()
	set.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return "\n" + answer.Body.String()
}

// reports fails the test if a line is missing.
func reports(t *testing.T, set *metrics.Set, lines ...string) {
	t.Helper()
	text := scrape(set)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}

func programmed(is metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: conditions.Programmed, Status: is, Reason: reason}}
}

// TestReasons: all constants that are reasons for not choosing a node are listed, so that moves for
// these reasons are counted from 0.
func TestReasons(t *testing.T) {
	for dir, listed := range map[string][]place.Reason{"place": place.Reasons(), "egressip": egressip.Reasons(), "egressservice": egressservice.Reasons()} {
		kind := `place\.Reason` // the features also have reasons for rejections
		if dir == "place" {
			kind = "Reason"
		}
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		var declared []place.Reason
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range regexp.MustCompile(`(?m)^\t\w+ +`+kind+` = "(.*)"$`).FindAllSubmatch(text, -1) {
				declared = append(declared, place.Reason(found[1]))
			}
		}
		slices.Sort(declared)
		slices.Sort(listed)
		if !slices.Equal(declared, listed) || len(listed) == 0 {
			t.Errorf("%s declares %q and lists %q", dir, declared, listed)
		}
	}
}

// TestMeasuredEgressIPs counts addresses by node and objects by condition, once all are known.
func TestMeasuredEgressIPs(t *testing.T) {
	client := egressipfake.NewSimpleClientset(
		&egressipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: egressipv1.EgressIPStatus{
			Items:      []egressipv1.EgressIPStatusItem{{Node: "n1", EgressIP: "172.18.0.33"}, {Node: "n2", EgressIP: "172.18.0.34"}},
			Programmed: []egressipv1.ProgrammedStatus{{Node: "n1", EgressIPs: []string{"172.18.0.33"}}},
			Conditions: programmed(metav1.ConditionFalse, "WaitingForNode"),
		}},
		&egressipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: egressipv1.EgressIPStatus{
			Items:      []egressipv1.EgressIPStatusItem{{Node: "n1", EgressIP: "172.18.0.35"}},
			Programmed: []egressipv1.ProgrammedStatus{{Node: "n1", EgressIPs: []string{"172.18.0.35"}}, {Node: "n3", EgressIPs: []string{"172.18.0.36"}}},
			Conditions: programmed(metav1.ConditionTrue, "Programmed"),
		}},
	)
	factory, set := egressipinformers.NewSharedInformerFactory(client, 0), leading()
	measureEgressIPs(set.Leader(), factory.EgressIP().V1().EgressIPs())
	if text := scrape(set); strings.Contains(text, "\novnkube_egressip_addresses{") {
		t.Errorf("addresses before any is known:\n%s", text)
	}
	reports(t, set, `ovnkube_egress_moves_total{kind="EgressIP",reason="hands over its addresses"} 0`)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	reports(t, set, `ovnkube_egressip_addresses{node="n1",state="assigned"} 2`, `ovnkube_egressip_addresses{node="n2",state="assigned"} 1`,
		`ovnkube_egressip_addresses{node="n1",state="programmed"} 2`, `ovnkube_egressip_addresses{node="n2",state="programmed"} 0`,
		`ovnkube_egressip_addresses{node="n3",state="programmed"} 1`,
		`ovnkube_egress_objects{kind="EgressIP",reason="WaitingForNode",status="False",type="Programmed"} 1`,
		`ovnkube_egress_objects{kind="EgressIP",reason="Programmed",status="True",type="Programmed"} 1`)
}

func TestMeasuredEgressServices(t *testing.T) {
	eg := func(name, host string) *egressservicev1.EgressService {
		return &egressservicev1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
			Status: egressservicev1.EgressServiceStatus{Host: host, Conditions: programmed(metav1.ConditionTrue, "Programmed")}}
	}
	client := fake.NewSimpleClientset(eg("a", "n1"), eg("b", "n1"), eg("c", ""), eg("d", egressservicev1.HostAll))
	factory, set := externalversions.NewSharedInformerFactory(client, 0), leading()
	measureEgressServices(set.Leader(), factory.EgressService().V1().EgressServices())
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	reports(t, set, `ovnkube_egressservice_hosted{node="n1"} 2`, `ovnkube_egress_moves_total{kind="EgressService",reason="does not match nodeSelector"} 0`,
		`ovnkube_egress_objects{kind="EgressService",reason="Programmed",status="True",type="Programmed"} 4`)
	if text := scrape(set); strings.Count(text, "\novnkube_egressservice_hosted{") != 1 {
		t.Errorf("hosts that are no nodes:\n%s", text)
	}
}

// TestMeasuredNorthbound counts rows, transactions and their writes.
func TestMeasuredNorthbound(t *testing.T) {
	s, set := ovsdbtest.StartNB(t), leading()
	client, err := ovsdb.Connect(t.Context(), ovsdb.Config{Address: s.Socket(), Observe: transactionObserver(set.Leader())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := ovsdb.NewWriter(client)
	measureNorthbound(set, w)
	rows := []nb.Row{{ID: "x", Model: &nbdb.AddressSet{Name: "x"}}, {ID: "y", Model: &nbdb.AddressSet{Name: "y"}}}
	for _, want := range [][]nb.Row{rows, rows, rows[:1]} {
		if _, err := w.Apply(t.Context(), nb.Owner{Feature: "f", Object: "o"}, want); err != nil {
			t.Fatal(err)
		}
	}
	reports(t, set, `ovnkube_northbound_rows{table="Address_Set"} 1`, `ovnkube_northbound_rows_written_total{operation="insert"} 2`,
		`ovnkube_northbound_rows_written_total{operation="delete"} 1`, `ovnkube_drift_repaired_total{kind="northbound rows"} 0`,
		`ovnkube_northbound_transaction_duration_seconds_count{result="committed"} 2`)
	transactionObserver(set.Leader())(ovsdb.Transaction{Took: time.Second, Err: errors.New("refused")})
	reports(t, set, `ovnkube_northbound_transaction_duration_seconds_count{result="failed"} 1`)
}

// TestMeasuredMaster: the leader's metrics are connected to their sources.
func TestMeasuredMaster(t *testing.T) {
	client, err := ovsdb.Connect(t.Context(), ovsdb.Config{Address: ovsdbtest.StartNB(t).Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	m := &master{env: clusterEnv(t), writer: ovsdb.NewWriter(client), runners: map[string]runner{}}
	if _, err := m.build(); err != nil {
		t.Fatal(err)
	}
	leader := m.env.Metrics.Leader()
	for _, name := range []string{"egress IPs", "egress services"} {
		deps := reflect.ValueOf(m.runners[name]).Elem().FieldByName("deps")
		if got := deps.FieldByName("Metrics").Pointer(); got != reflect.ValueOf(leader).Pointer() {
			t.Errorf("nobody measures %s", name)
		}
	}
	m.env.Metrics.SetLeader(true)
	m.tracker.SetTargets(map[string][]netip.Addr{"n1": {netip.MustParseAddr("10.244.0.2")}})
	reports(t, m.env.Metrics, "ovnkube_pods_held_at_start 0", `ovnkube_node_reachability{node="n1",state="unknown"} 1`)
}

// TestMeasuredNode: repairs on a host are counted by kind.
func TestMeasuredNode(t *testing.T) {
	n := hostNode(t)
	for _, kind := range []string{chains, routes, addresses, ipRules, parameters} {
		reports(t, n.env.Metrics, fmt.Sprintf("ovnkube_drift_repaired_total{kind=%q} 0", kind))
	}
}
