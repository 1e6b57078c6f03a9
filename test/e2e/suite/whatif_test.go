package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// whatIfStep is a change that "ovnkube egress what-if" is asked about, and that is then made.
type whatIfStep struct {
	name string
	// objects are applied; args describe other changes, which make has kubectl make.
	objects []string
	args    []string
	make    [][]string
	// then is what kubectl does afterwards, without a prediction.
	then [][]string
	// nothing reports whether no row should change.
	nothing bool
}

// whatIfAnswer has the fields of the answers that the test reads.
type whatIfAnswer struct {
	Moves []struct{ Object, Address, From, To string } `json:"moves"`
	Rows  []struct{ Change, Owner, Row string }        `json:"rows"`
}

// whatIf asks about one change after another, makes it, and compares the northbound database with
// the prediction.
func (s *suite) whatIf(t *testing.T) {
	w := &whatIfTest{suite: s}
	w.begin(t)
	for i, step := range w.steps(t) {
		if !t.Run(fmt.Sprintf("%02d %s", i+1, step.name), func(t *testing.T) { w.step(t, step) }) {
			return // later steps depend on it
		}
	}
}

type whatIfTest struct{ *suite }

// The names and labels of objects in the test, in the namespace of all pods.
const (
	whatIfName  = "what-if"
	whatIfLabel = "what-if"
)

// clusterSettings are the settings of the cluster, which "ovnkube egress" reads from the ConfigMap
// in the manifests.
const clusterSettings = `[default]
cluster-subnets=10.244.0.0/16/24,fd00:10:244::/48/64
[kubernetes]
service-cidrs=10.96.0.0/16,fd00:10:96::/112
[ovnkubernetesfeature]
enable-egress-ip=true
enable-egress-service=true
enable-multi-external-gateway=true
`

// tellSettings creates that ConfigMap until the test ends: the daemons here have flags instead.
func (s *suite) tellSettings(t *testing.T) {
	t.Helper()
	maps := s.Kube.CoreV1().ConfigMaps(ovnkubeAccounts)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ovnkube"},
		Data: map[string]string{"ovnkube.conf": clusterSettings}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := maps.Delete(context.WithoutCancel(t.Context()), "ovnkube", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func (w *whatIfTest) begin(t *testing.T) {
	ctx := t.Context()
	w.tellSettings(t)
	for name, node := range map[string]string{"what-if-a": "ovn-worker", "what-if-b": "ovn-worker2"} {
		labels := map[string]string{whatIfLabel: strings.TrimPrefix(name, "what-if-")}
		if _, err := w.RunServer(ctx, name, node, labels); err != nil {
			t.Fatal(err)
		}
	}
	e := &served{suite: w.suite, name: whatIfName, ingress: addresses("5.5.5.77", "5555::77")}
	e.makeService(t)
	w.kubectl(t, "patch", "service", "-n", lab.Namespace, whatIfName, "-p", `{"spec":{"selector":{"app":null,"`+whatIfLabel+`":"a"}}}`)
	for _, node := range nodes {
		value := assignableLabel + "="
		if node == lab.ControlPlane {
			value = assignableLabel + "-"
		}
		w.kubectl(t, "label", "node", node, value)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, args := range [][]string{
			{"delete", "egressip,apbexternalroute", "-l", whatIfLabel}, {"delete", "egressservice", "-n", lab.Namespace, "-l", whatIfLabel},
			{"uncordon", "ovn-worker", "ovn-worker2"}, {"taint", "node", "ovn-worker", "k8s.ovn.org/egress-"},
			{"label", "node", "ovn-worker", "ovn-worker2", assignableLabel + "-"}, {"label", "namespace", lab.Namespace, whatIfLabel + "-"},
			{"delete", "pod", "-n", lab.Namespace, "--grace-period=0", "--force", "-l", whatIfLabel},
		} {
			if out, err := lab.Run(ctx, append(w.Kubectl(), args...)...); err != nil && !strings.Contains(out, "not found") {
				t.Error(err)
			}
		}
	})
}

func (w *whatIfTest) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := lab.Run(t.Context(), append(w.Kubectl(), args...)...); err != nil {
		t.Fatal(err)
	}
}

// steps returns the changes, each of which is made after the previous ones.
func (w *whatIfTest) steps(t *testing.T) []whatIfStep {
	gateways := newGatewayTest(t, w.suite).gateways
	ip := func(name, spec string) string {
		return fmt.Sprintf("apiVersion: k8s.ovn.org/v1\nkind: EgressIP\nmetadata: {name: what-if-%[1]s, labels: {%[2]s: %[1]s}}\nspec: {%[3]s}\n", name, whatIfLabel, spec)
	}
	pods := func(label string) string {
		return fmt.Sprintf("namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}, podSelector: {matchLabels: {%s: %s}}", lab.Namespace, whatIfLabel, label)
	}
	a := func(addresses string) string { return ip("a", "egressIPs: ["+addresses+"], "+pods("a")) }
	b := func(more string) string { return ip("b", "egressIPs: [172.18.0.212], "+pods("b")+more) }
	service := func(spec string) string {
		return fmt.Sprintf("apiVersion: k8s.ovn.org/v1\nkind: EgressService\nmetadata: {namespace: %s, name: %s, labels: {%s: s}}\nspec: {%s}\n", lab.Namespace, whatIfName, whatIfLabel, spec)
	}
	route := func(hops ...lab.Gateway) string {
		var static []string
		for _, gw := range hops {
			for _, a := range gw.Addresses {
				static = append(static, fmt.Sprintf("{ip: %q}", a))
			}
		}
		return fmt.Sprintf("apiVersion: k8s.ovn.org/v1\nkind: AdminPolicyBasedExternalRoute\nmetadata: {name: %s, labels: {%s: r}}\n"+
			"spec: {from: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}, nextHops: {static: [%s]}}\n",
			whatIfName, whatIfLabel, lab.Namespace, strings.Join(static, ", "))
	}
	label := func(node, label string) whatIfStep {
		return whatIfStep{name: "label " + label, args: []string{"--label", node, label}, make: [][]string{{"label", "node", node, label}}}
	}
	deleted := func(kind, name string) whatIfStep {
		namespaced := []string{}
		as := kind + "/" + name
		if kind == "egressservice" || kind == "pod" {
			namespaced, as = []string{"-n", lab.Namespace}, kind+"/"+lab.Namespace+"/"+name
		}
		return whatIfStep{name: "delete " + kind, args: []string{"--delete", as}, make: [][]string{append([]string{"delete", kind, name}, namespaced...)}}
	}
	relabelled := func(pod, value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: %s, labels: {%s: %q}}\n", lab.Namespace, pod, whatIfLabel, value)
	}
	both := "172.18.0.211, 'fc00:f853:ccd:e793::211'"
	drain := [][]string{{"cordon", "ovn-worker"}, {"taint", "node", "ovn-worker", "k8s.ovn.org/egress=drain:NoSchedule"}}
	undrain := [][]string{{"uncordon", "ovn-worker"}, {"taint", "node", "ovn-worker", "k8s.ovn.org/egress-"}}
	return []whatIfStep{
		{name: "an EgressIP of both families", objects: []string{a(both)}},
		{name: "another one", objects: []string{b("")}},
		{name: "one for pods that have one", objects: []string{ip("c", "egressIPs: [172.18.0.213], "+pods("a"))}, nothing: true},
		{name: "one with the address of another", objects: []string{ip("d", "egressIPs: [172.18.0.211], "+pods("b"))}, nothing: true},
		deleted("egressip", "what-if-c"),
		deleted("egressip", "what-if-d"),
		label("ovn-worker2", assignableLabel+"-"),
		{name: "label it again", args: []string{"--label", "ovn-worker2", assignableLabel + "="}, make: [][]string{{"label", "node", "ovn-worker2", assignableLabel + "="}}, nothing: true},
		{name: "drain", args: []string{"--drain", "ovn-worker"}, make: drain, then: undrain},
		{name: "another address", objects: []string{a("172.18.0.214, 'fc00:f853:ccd:e793::211'")}},
		{name: "two addresses", objects: []string{a("172.18.0.214, 172.18.0.215, 'fc00:f853:ccd:e793::211'")}},
		{name: "one for each pod", objects: []string{ip("a", "egressIPs: [172.18.0.214, 172.18.0.215, 'fc00:f853:ccd:e793::211'], addressAffinity: Pod, "+pods("a"))}},
		{name: "without one of them", objects: []string{a("172.18.0.215, 'fc00:f853:ccd:e793::211'")}},
		{name: "drop what is unavailable", objects: []string{b(", onUnavailable: Drop")}, nothing: true},
		{name: "no node left", args: []string{"--label", "ovn-worker", assignableLabel + "-", "--label", "ovn-worker2", assignableLabel + "-"},
			make: [][]string{{"label", "node", "ovn-worker", "ovn-worker2", assignableLabel + "-"}}},
		label("ovn-worker", assignableLabel+"="),
		{name: "a second node", args: []string{"--label", "ovn-worker2", assignableLabel + "="}, make: [][]string{{"label", "node", "ovn-worker2", assignableLabel + "="}}, nothing: true},
		{name: "an EgressIP for a namespace that is yet to be labelled", nothing: true,
			objects: []string{ip("late", fmt.Sprintf("egressIPs: [172.18.0.216], namespaceSelector: {matchLabels: {%s: chosen}}, podSelector: {matchExpressions: [{key: %[1]s, operator: Exists}]}", whatIfLabel))}},
		{name: "a pod that is no longer chosen", objects: []string{relabelled("what-if-b", "none")}},
		{name: "the namespace is labelled", objects: []string{fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s: chosen}}\n", lab.Namespace, whatIfLabel)}},
		{name: "the pod is chosen again", objects: []string{relabelled("what-if-b", "b")}},
		deleted("egressip", "what-if-late"),
		{name: "an EgressService", objects: []string{service("nodeSelector: {matchLabels: {kubernetes.io/hostname: ovn-worker}}")}},
		{name: "on another node", objects: []string{service("nodeSelector: {matchLabels: {kubernetes.io/hostname: ovn-worker2}}")}},
		{name: "on none", objects: []string{service("nodeSelector: {matchLabels: {no-such: node}}")}},
		{name: "on the nodes with a label", objects: []string{service(fmt.Sprintf("nodeSelector: {matchLabels: {%s: ''}}", whatIfLabel))}, nothing: true},
		label("ovn-worker", whatIfLabel+"="),
		label("ovn-worker", whatIfLabel+"-"),
		{name: "by a network of each node", objects: []string{service("sourceIPBy: Network, network: '254'")}, nothing: true},
		deleted("egressservice", whatIfName),
		{name: "external gateways", objects: []string{route(gateways[0])}},
		{name: "one more", objects: []string{route(gateways[:2]...)}},
		deleted("apbexternalroute", whatIfName),
		{name: "several changes", objects: []string{a(both), service("nodeSelector: {matchLabels: {kubernetes.io/hostname: ovn-worker2}}")},
			args: []string{"--delete", "egressip/what-if-b", "--drain", "ovn-worker"}, make: append([][]string{{"delete", "egressip", "what-if-b"}}, drain...), then: undrain},
		deleted("pod", "what-if-a"),
		deleted("egressip", "what-if-a"),
	}
}

// step asks about a change, makes it, and waits until the database is as predicted.
func (w *whatIfTest) step(t *testing.T, step whatIfStep) {
	ctx := t.Context()
	args := slices.Clone(step.args)
	for i, o := range step.objects {
		path, err := w.WriteFile(fmt.Sprintf("what-if-%d.yaml", i), o)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "-f", path)
	}
	before, err := northboundRows(ctx, w.Lab)
	if err != nil {
		t.Fatal(err)
	}
	answer, text := w.ask(t, args...)
	if step.nothing != (len(answer.Rows) == 0) && !strings.HasPrefix(step.name, "delete ") {
		t.Errorf("%d rows are to change:\n%s", len(answer.Rows), text)
	}
	want := maps.Clone(before)
	for _, change := range []string{"removed", "added"} {
		for _, r := range answer.Rows {
			for _, key := range rowKeys(t, r.Row) {
				if r.Change != change {
					continue
				}
				if delete(want, key); change == "added" {
					want[key] = true
				}
			}
		}
	}
	for i := range step.objects {
		w.kubectl(t, "apply", "-f", filepath.Join(w.Dir, fmt.Sprintf("what-if-%d.yaml", i)))
	}
	for _, args := range step.make {
		w.kubectl(t, args...)
	}
	w.until(t, "the rows that were foretold", want, text)
	if t.Failed() || step.then == nil {
		return
	}
	for _, args := range step.then {
		w.kubectl(t, args...)
	}
}

// until waits until the database has exactly the wanted rows.
func (w *whatIfTest) until(t *testing.T, what string, want map[string]bool, text string) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, what, func(ctx context.Context) error {
		is, err := northboundRows(ctx, w.Lab)
		if err != nil {
			return err
		}
		var diff []string
		for key := range want {
			if !is[key] {
				diff = append(diff, "foretold, and not there: "+key)
			}
		}
		for key := range is {
			if !want[key] {
				diff = append(diff, "there, and not foretold: "+key)
			}
		}
		slices.Sort(diff)
		if len(diff) > 0 {
			return errors.New(strings.Join(diff, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// ask asks what a change would do.
func (w *whatIfTest) ask(t *testing.T, args ...string) (whatIfAnswer, string) {
	t.Helper()
	program := filepath.Join(filepath.Dir(w.Kin.Program), "ovnkube")
	args = append(append([]string{"egress", "what-if"}, args...), "-o", "json", "--kubeconfig", w.Kubeconfig)
	out, err := exec.CommandContext(t.Context(), program, args...).Output()
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() != 1 {
		t.Fatalf("%q: %v: %s", args, err, status.Stderr)
	}
	var answer whatIfAnswer
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	return answer, string(out)
}

// northboundRows returns the policies, translations, routes of pods and members of address sets in
// the database, each on one line.
func northboundRows(ctx context.Context, l *lab.Lab) (map[string]bool, error) {
	all := map[string]bool{}
	for table, columns := range whatIfColumns {
		out, err := l.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "--no-leader-only", "--db=unix:/run/ovn/ovnnb_db.sock", "--format=json", "--columns="+strings.Join(columns, ","), "list", table)
		if err != nil {
			return nil, err
		}
		var rows struct{ Data [][]any }
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		for _, row := range rows.Data {
			values := map[string][]string{}
			for i, v := range row {
				values[columns[i]] = atoms(v)
			}
			for _, key := range keysOfRow(table, values) {
				all[key] = true
			}
		}
	}
	return all, nil
}

// whatIfColumns are the columns that are compared.
var whatIfColumns = map[string][]string{
	"Logical_Router_Policy":       {"priority", "match", "action", "nexthops", "options"},
	"NAT":                         {"type", "external_ip", "logical_ip", "logical_port"},
	"Logical_Router_Static_Route": {"ip_prefix", "nexthop", "policy", "output_port"},
	"Address_Set":                 {"name", "addresses"},
}

// atoms returns the values of a column in OVSDB's JSON, sorted.
func atoms(v any) []string {
	pair, ok := v.([]any)
	if !ok {
		return []string{fmt.Sprint(v)}
	}
	var all []string
	items, _ := pair[1].([]any)
	for _, item := range items {
		if kv, ok := item.([]any); ok {
			all = append(all, fmt.Sprintf("%v=%v", kv[0], kv[1]))
		} else {
			all = append(all, fmt.Sprint(item))
		}
	}
	slices.Sort(all)
	return all
}

// keysOfRow formats a row as a line, or each member of an address set.
func keysOfRow(table string, values map[string][]string) []string {
	if table == "Address_Set" {
		var keys []string
		for _, a := range values["addresses"] {
			keys = append(keys, fmt.Sprintf("%s %s: %s", table, strings.Join(values["name"], ""), a))
		}
		return keys
	}
	parts := []string{table}
	for _, column := range whatIfColumns[table] {
		parts = append(parts, column+"="+strings.Join(values[column], ","))
	}
	return []string{strings.Join(parts, " ")}
}

// columnText matches a column of a row as text: name=value, with the value quoted if necessary, or
// in brackets.
var columnText = regexp.MustCompile(`([a-z_]+)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|\S+)`)

// rowKeys formats a row of an answer as northboundRows does; it returns nothing for tables that are
// not compared.
func rowKeys(t *testing.T, text string) []string {
	t.Helper()
	table, rest, _ := strings.Cut(text, " ")
	if name, a, ok := strings.Cut(rest, ": "); ok && table == "Address_Set" {
		if _, err := netip.ParseAddr(a); err == nil {
			return []string{fmt.Sprintf("%s %s: %s", table, name, a)}
		}
	}
	if whatIfColumns[table] == nil {
		return nil
	}
	values := map[string][]string{}
	for _, m := range columnText.FindAllStringSubmatch(rest, -1) {
		value := m[2]
		switch value[0] {
		case '"':
			if err := json.Unmarshal([]byte(value), &value); err != nil {
				t.Fatal(err)
			}
			values[m[1]] = []string{value}
		case '[', '{':
			values[m[1]] = strings.Split(strings.Trim(value, "[]{}"), ", ")
		default:
			values[m[1]] = []string{value}
		}
	}
	return keysOfRow(table, values)
}
