package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	servicefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	ipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/metadatatest"
)

var egressTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const egressConf = `
[default]
cluster-subnets=10.244.0.0/16/24
[kubernetes]
service-cidrs=10.96.0.0/16
[ovnkubernetesfeature]
enable-egress-ip=true
enable-egress-service=true
`

// egressCluster is a cluster of one node with a pod, and a master.
func egressCluster() []runtime.Object {
	return []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{
			"k8s.ovn.org/node-subnets":        `{"default":["10.244.1.0/24"]}`,
			"k8s.ovn.org/node-primary-ifaddr": `{"ipv4":"172.18.0.3/16"}`,
		}}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}, Spec: corev1.PodSpec{NodeName: "n1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.3", PodIPs: []corev1.PodIP{{IP: "10.244.1.3"}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "lb"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: "ovnkube"}, Data: map[string]string{"ovnkube.conf": egressConf}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: "ovn-kubernetes-master"},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: egressTime.Add(-time.Second)}}},
	}
}

// askEgress runs the command against fake clientsets, and returns its exit status and output.
func askEgress(t *testing.T, kube *fake.Clientset, ips []runtime.Object, args ...string) (status int, out, errs string) {
	t.Helper()
	egressIPs := ipfake.NewSimpleClientset(ips...)
	var stdout, stderr bytes.Buffer
	e := &egress{out: &stdout, now: func() time.Time { return egressTime }, connect: func(string, string) (reader.Clients, error) {
		return reader.Clients{Kube: kube, IPs: egressIPs, Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset(),
			Metadata: metadatatest.Pods(t, kube)}, nil
	}}
	status = e.run(t.Context(), args, &stderr)
	for _, a := range append(kube.Actions(), egressIPs.Actions()...) {
		if verb := a.GetVerb(); verb != "list" && verb != "get" {
			t.Errorf("the command does a %s of %s", verb, a.GetResource().Resource)
		}
	}
	return status, stdout.String(), stderr.String()
}

func anEgressIP() runtime.Object {
	return &ipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: ipv1.EgressIPSpec{EgressIPs: []ipv1.Address{"172.18.0.33"}}}
}

func TestEgressExitStatuses(t *testing.T) {
	for _, tc := range []struct {
		name       string
		args       []string
		ips        []runtime.Object
		status     int
		out, error string
	}{
		{"as planned", []string{"explain", "pod", "prod/web"}, nil, 0, "source     172.18.0.3 from node n1\n", ""},
		{"flags before", []string{"explain", "pod", "--to", "192.0.2.1:443", "prod/web"}, nil, 0, "to 192.0.2.1:443\n", ""},
		{"flags behind", []string{"explain", "pod", "prod/web", "--to=192.0.2.1", "-o", "yaml"}, nil, 0, "\nto: 192.0.2.1\n", ""},
		{"not in place", []string{"explain", "pod", "prod/web"}, []runtime.Object{anEgressIP()}, 1, "! EgressIP/prod NoStatus", ""},
		{"no such pod", []string{"explain", "pod", "prod/nobody"}, nil, 2, "", "pod prod/nobody: not found"},
		{"no namespace", []string{"explain", "pod", "web"}, nil, 2, "", `"web": no pod; allowed: NAMESPACE/NAME`},
		{"no object", []string{"explain", "pod"}, nil, 2, "", "NAMESPACE/NAME is missing"},
		{"two objects", []string{"explain", "pod", "prod/web", "prod/db"}, nil, 2, "", "prod/db: unexpected argument"},
		{"no destination", []string{"explain", "pod", "prod/web", "--to", "example"}, nil, 2, "", "--to=example: no destination"},
		{"unknown format", []string{"explain", "pod", "prod/web", "-o", "xml"}, nil, 2, "", "--output=xml: unknown format"},
		{"unknown flag", []string{"explain", "pod", "prod/web", "--all=1"}, nil, 2, "", "--all: unknown flag; allowed: the flags in ovnkube egress explain pod --help"},
		{"a flag without its value", []string{"explain", "pod", "prod/web", "--to"}, nil, 2, "", "--to: value missing"},
		{"to a link-local address", []string{"explain", "pod", "prod/web", "--to", "169.254.169.254"}, nil, 0, "169.254.169.254 means another machine on each node", ""},
		{"an EgressIP that is not in place", []string{"explain", "egressip", "prod"}, []runtime.Object{anEgressIP()}, 1, "EgressIP prod\n", ""},
		{"no such EgressIP", []string{"explain", "egressip", "nothing"}, nil, 2, "", "EgressIP nothing: not found"},
		{"no name of an EgressIP", []string{"explain", "egressip", "prod/web"}, nil, 2, "", `"prod/web": no EgressIP; allowed: NAME`},
		{"a Service", []string{"explain", "service", "prod/lb"}, nil, 0, "Service prod/lb, without an EgressService\n", ""},
		{"no such Service", []string{"explain", "service", "prod/nothing"}, nil, 2, "", "Service prod/nothing: not found"},
		{"no namespace of a Service", []string{"explain", "service", "lb"}, nil, 2, "", `"lb": no Service; allowed: NAMESPACE/NAME`},
		{"an address", []string{"explain", "address", "172.18.0.3"}, nil, 0, "Node/n1: it is an address of node n1\n", ""},
		{"an IPv6 address in brackets", []string{"explain", "address", "[2001:DB8::1]", "-o", "json"}, nil, 0, `"address": "2001:db8::1"`, ""},
		{"an address that is not in place", []string{"explain", "address", "172.18.0.33"}, []runtime.Object{anEgressIP()}, 1, "Address 172.18.0.33, an egress address\n", ""},
		{"no address", []string{"explain", "address", "example"}, nil, 2, "", `"example": no address; allowed: ADDRESS`},
		{"an address with a zone", []string{"explain", "address", "fe80::1%eth0"}, nil, 2, "", `"fe80::1%eth0": no address; allowed: ADDRESS`},
		{"a node", []string{"explain", "node", "n1"}, nil, 0, "Node n1, Ready\n", ""},
		{"no such node", []string{"explain", "node", "n2"}, nil, 2, "", "node n2: not found"},
		{"no name of a node", []string{"explain", "node", "a/b"}, nil, 2, "", `"a/b": no node; allowed: NAME`},
		{"the status", []string{"status"}, nil, 0, "NODE   STATE", ""},
		{"the status is not in place", []string{"status"}, []runtime.Object{anEgressIP()}, 1, "! EgressIP/prod NoStatus", ""},
		{"the status as JSON", []string{"status", "-o", "json"}, nil, 0, `"kind": "EgressStatus"`, ""},
		{"the status of something", []string{"status", "n1"}, nil, 2, "", "n1: unexpected argument"},
		{"the status in an unknown format", []string{"status", "-o", "xml"}, nil, 2, "", "--output=xml: unknown format"},
		{"a watch without a pause", []string{"status", "--watch", "--interval", "0s"}, nil, 2, "", "--interval=0s: too short"},
		{"unknown kind", []string{"explain", "deployment", "prod/web"}, nil, 2, "", "deployment: unknown command"},
		{"unknown command", []string{"destroy"}, nil, 2, "", "destroy: unknown command"},
		{"no command", nil, nil, 2, "", "a command is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, out, errs := askEgress(t, fakeapi.NewClientset(egressCluster()...), tc.ips, tc.args...)
			if status != tc.status || !strings.Contains(out, tc.out) || !strings.Contains(errs, tc.error) || (errs == "") != (tc.error == "") {
				t.Errorf("status %d, want %d; output:\n%s\nerrors: %s\nwant %q and %q", status, tc.status, out, errs, tc.out, tc.error)
			}
		})
	}
}

func TestEgressJSON(t *testing.T) {
	_, out, _ := askEgress(t, fakeapi.NewClientset(egressCluster()...), nil, "explain", "pod", "prod/web", "-o", "json")
	var p explain.Pod
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.APIVersion != explain.APIVersion || p.Kind != "PodExplanation" || !p.InPlace || len(p.Families) != 1 {
		t.Errorf("%v, decoded %+v from:\n%s", err, p, out)
	}
}

// If the server refuses a request or does not answer, the error names the server and the request.
func TestEgressServerRefuses(t *testing.T) {
	forbid := func(resource string) clienttesting.ReactionFunc {
		return func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule"))
		}
	}
	kube := fakeapi.NewClientset(egressCluster()...)
	kube.PrependReactor("list", "pods", forbid("pods"))
	status, out, errs := askEgress(t, kube, nil, "explain", "pod", "prod/web")
	if status != 2 || out != "" || !strings.Contains(errs, "you may not list pods: have the ClusterRole egress-reader bound to you") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	kube = fakeapi.NewClientset(egressCluster()...)
	kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if status, _, errs = askEgress(t, kube, nil, "explain", "pod", "prod/web"); status != 2 || !strings.Contains(errs, "list nodes: connection refused") {
		t.Errorf("status %d, %q", status, errs)
	}
	// Data that only improves the answer may be forbidden.
	kube = fakeapi.NewClientset(egressCluster()...)
	kube.PrependReactor("get", "configmaps", forbid("configmaps"))
	kube.PrependReactor("get", "leases", forbid("leases"))
	status, out, errs = askEgress(t, kube, nil, "explain", "pod", "prod/web")
	if status != 0 || errs != "" || !strings.Contains(out, "Note: settings: ConfigMap ovn-kubernetes/ovnkube cannot be read (Forbidden)") || !strings.Contains(out, "disable-snat-multiple-gws") ||
		!strings.Contains(out, "Note: master: Lease ovn-kubernetes/ovn-kubernetes-master cannot be read (Forbidden)") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

// The master's published probe results are shown; if they cannot be read, or reading them is forbidden, there is a
// note.
func TestEgressReachability(t *testing.T) {
	for _, tc := range []struct {
		name, published, cell, note string
		forbidden                   bool
	}{
		{name: "published", cell: "within 2 ms",
			published: `{"apiVersion":"egress.ovnkube/v1","asOf":"2026-03-01T11:59:00Z","nodes":{"n1":{"state":"Reachable","since":"2026-03-01T11:00:00Z","latencyMilliseconds":2}}}`},
		{name: "nothing", cell: "not known"},
		{name: "broken", published: "{", cell: "not known", note: "reachability: ConfigMap ovn-kubernetes/ovnkube-reachability cannot be read (decode the reachability"},
		{name: "forbidden", forbidden: true, cell: "not known", note: "reachability: ConfigMap ovn-kubernetes/ovnkube-reachability cannot be read (Forbidden)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := egressCluster()
			if tc.published != "" {
				objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: reachability.ConfigMap},
					Data: map[string]string{reachability.Key: tc.published}})
			}
			kube := fakeapi.NewClientset(objects...)
			kube.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
				name := a.(clienttesting.GetAction).GetName()
				return tc.forbidden && name == reachability.ConfigMap, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, errors.New("no rule"))
			})
			status, out, errs := askEgress(t, kube, nil, "status")
			if status != 0 || errs != "" || !strings.Contains(out, "Ready   "+tc.cell+"   ") || !strings.Contains(out, tc.note) ||
				strings.Contains(out, "cannot be read") != (tc.note != "") {
				t.Errorf("status %d, %q:\n%s", status, errs, out)
			}
		})
	}
}

func TestEgressMasterDown(t *testing.T) {
	objects := egressCluster()
	objects[5].(*coordinationv1.Lease).Spec.RenewTime.Time = egressTime.Add(-2 * time.Hour)
	status, out, _ := askEgress(t, fakeapi.NewClientset(objects...), nil, "explain", "pod", "prod/web")
	if status != 1 || !strings.Contains(out, "! master MasterSilent") || !strings.Contains(out, "the master renewed its lease 2h0m0s before") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

// A watch answers when something has changed, and continues while the API server does not answer.
func TestEgressWatch(t *testing.T) {
	kube, ips := fakeapi.NewClientset(egressCluster()...), ipfake.NewSimpleClientset()
	down := false
	kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down, nil, errors.New("connection refused")
	})
	now, turn := egressTime, 0
	turns := []func(){
		func() {}, // nothing changes but the time
		func() { down = true },
		func() {
			down = false
			if err := ips.Tracker().Add(anEgressIP()); err != nil {
				t.Error(err)
			}
		},
		func() {},
	}
	var stdout, stderr bytes.Buffer
	e := &egress{out: &stdout, now: func() time.Time { return now }, connect: func(string, string) (reader.Clients, error) {
		return reader.Clients{Kube: kube, IPs: ips, Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset()}, nil
	}, wait: func(_ context.Context, d time.Duration) bool {
		if turn == len(turns) {
			return false
		}
		now = now.Add(d)
		turns[turn]()
		turn++
		return true
	}}
	status := e.run(t.Context(), []string{"status", "--watch", "-o", "yaml", "--interval", "2s"}, &stderr)
	answers := strings.Split(stdout.String(), "---\n")
	if status != 1 || len(answers) != 2 || !strings.Contains(answers[0], "inPlace: true") || !strings.Contains(answers[1], `asOf: "2026-03-01T12:00:06Z"`) {
		t.Errorf("status %d, want 1 and two answers:\n%s", status, stdout.String())
	}
	if got := stderr.String(); got != "ovnkube egress: list nodes: connection refused; trying again\n" {
		t.Errorf("errors: %s", got)
	}
	// The first answer is required.
	down, turn = true, 0
	stderr.Reset()
	if status := e.run(t.Context(), []string{"status", "-w"}, &stderr); status != 2 || turn != 0 || !strings.Contains(stderr.String(), "connection refused") {
		t.Errorf("status %d after %d turns: %s", status, turn, stderr.String())
	}
}

// When a watch ends, the last state of the cluster determines the exit status.
func TestEgressWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr bytes.Buffer
	e := &egress{out: &stdout, now: func() time.Time { return egressTime }, connect: func(string, string) (reader.Clients, error) {
		return reader.Clients{Kube: fakeapi.NewClientset(egressCluster()...), IPs: ipfake.NewSimpleClientset(anEgressIP()),
			Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset()}, nil
	}, wait: func(ctx context.Context, d time.Duration) bool {
		cancel()
		return wait(ctx, d)
	}}
	if status := e.run(ctx, []string{"status", "--watch", "--interval", "1h"}, &stderr); status != 1 || stderr.Len() > 0 {
		t.Errorf("status %d, %s", status, stderr.String())
	}
}

// The ClusterRole egress-reader allows exactly what the commands do.
func TestEgressReader(t *testing.T) {
	data, err := os.ReadFile("../../../dist/base/egress-reader.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(data, &role); err != nil || role.Name != "egress-reader" {
		t.Fatalf("%v: %s", err, data)
	}
	allowed := map[string]bool{} // whether each permission is used
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range append([]string{""}, r.ResourceNames...) {
						if (name == "") == (len(r.ResourceNames) == 0) {
							allowed[strings.Join([]string{verb, resource, group, name}, " ")] = false
						}
					}
				}
			}
		}
	}
	for _, args := range [][]string{
		{"explain", "pod", "prod/web"}, {"explain", "egressip", "prod"}, {"explain", "service", "prod/lb"}, {"explain", "address", "172.18.0.33"},
		{"explain", "node", "n1"}, {"status"}, {"serve"},
	} {
		kube, ips := fakeapi.NewClientset(egressCluster()...), ipfake.NewSimpleClientset(anEgressIP())
		services, routes := servicefake.NewSimpleClientset(), routefake.NewSimpleClientset()
		var stdout, stderr bytes.Buffer
		e := &egress{out: &stdout, now: func() time.Time { return egressTime }, connect: func(string, string) (reader.Clients, error) {
			return reader.Clients{Kube: kube, IPs: ips, Services: services, Routes: routes, Metadata: metadatatest.Pods(t, kube)}, nil
		}}
		if args[0] == "serve" { // it would not end
			e.timeout, e.namespace = time.Minute, "ovn-kubernetes"
			if _, err := e.facts(t.Context(), reader.Clients{Kube: kube, IPs: ips, Services: services, Routes: routes}); err != nil {
				t.Error(err)
			}
		} else if status := e.run(t.Context(), args, &stderr); status == exitNoAnswer {
			t.Errorf("%q: %s", args, stderr.String())
		}
		for _, a := range slices.Concat(kube.Actions(), ips.Actions(), services.Actions(), routes.Actions()) {
			name := ""
			if get, ok := a.(clienttesting.GetAction); ok {
				name = get.GetName()
			}
			what := strings.Join([]string{a.GetVerb(), a.GetResource().Resource, a.GetResource().Group, name}, " ")
			if _, ok := allowed[what]; !ok {
				t.Errorf("%q: the ClusterRole does not allow %q", args, what)
			}
			allowed[what] = true
		}
	}
	for what, used := range allowed {
		if !used {
			t.Errorf("the ClusterRole allows %q, which nothing needs", what)
		}
	}
}

// TestEgressMissingKinds: if a kind does not exist in the API, there are no objects of it; there is a note if its
// feature is enabled.
func TestEgressMissingKinds(t *testing.T) {
	none := func(resource string) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "k8s.ovn.org", Resource: resource}, "")
		}
	}
	for _, tc := range []struct {
		missing, conf string
		args          []string
		status        int
		note          string
	}{
		{"egressips", egressConf, []string{"explain", "pod", "prod/web"}, exitInPlace, "the API server has no egressips.k8s.ovn.org"},
		{"egressips", egressConf, []string{"explain", "egressip", "prod"}, exitNoAnswer, "EgressIP prod: the feature is not enabled"},
		{"egressips", strings.Replace(egressConf, "enable-egress-ip=true", "", 1), []string{"explain", "pod", "prod/web"}, exitInPlace, ""},
		{"egressservices", egressConf, []string{"status"}, exitInPlace, "the API server has no egressservices.k8s.ovn.org"},
		{"egressservices", strings.Replace(egressConf, "enable-egress-service=true", "", 1), []string{"status"}, exitInPlace, ""},
		{"adminpolicybasedexternalroutes", egressConf, []string{"explain", "node", "n1"}, exitInPlace, ""},
		{"adminpolicybasedexternalroutes", egressConf + "enable-multi-external-gateway=true\n", []string{"explain", "node", "n1"}, exitInPlace,
			"the API server has no adminpolicybasedexternalroutes.k8s.ovn.org"},
	} {
		objects := egressCluster()
		for _, o := range objects {
			if m, ok := o.(*corev1.ConfigMap); ok {
				m.Data["ovnkube.conf"] = tc.conf
			}
		}
		kube, ips, services, routes := fakeapi.NewClientset(objects...), ipfake.NewSimpleClientset(), servicefake.NewSimpleClientset(), routefake.NewSimpleClientset()
		for _, f := range []*clienttesting.Fake{&ips.Fake, &services.Fake, &routes.Fake} {
			f.PrependReactor("list", tc.missing, none(tc.missing))
		}
		var stdout, stderr bytes.Buffer
		e := &egress{out: &stdout, now: func() time.Time { return egressTime }, connect: func(string, string) (reader.Clients, error) {
			return reader.Clients{Kube: kube, IPs: ips, Services: services, Routes: routes, Metadata: metadatatest.Pods(t, kube)}, nil
		}}
		status := e.run(t.Context(), tc.args, &stderr)
		said := stdout.String() + stderr.String()
		if status != tc.status || !strings.Contains(said, tc.note) || strings.Contains(said, "has no ") != strings.Contains(tc.note, "has no ") {
			t.Errorf("without %s, %q: status %d, want %d and %q:\n%s", tc.missing, tc.args, status, tc.status, tc.note, said)
		}
	}
}

func TestEgressArgs(t *testing.T) {
	for _, tc := range []struct{ args, want []string }{
		{[]string{"/usr/bin/ovnkube", "egress", "status"}, []string{"status"}},
		{[]string{"/usr/local/bin/kubectl-egress", "explain"}, []string{"explain"}},
		{[]string{"ovnkube", "--init-node", "egress"}, nil},
		{[]string{"ovnkube"}, nil},
	} {
		got, ok := egressArgs(tc.args)
		if !slices.Equal(got, tc.want) || ok != (tc.want != nil) {
			t.Errorf("%q: got %q, %v", tc.args, got, ok)
		}
	}
}

// The binary itself, with a kubeconfig of a server that does not exist.
func TestEgressProgram(t *testing.T) {
	kubeconfig := write(t, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}],
users: [{name: u}], contexts: [{name: c, context: {cluster: c, user: u}}]}`)
	cmd := ovnkube("egress", "explain", "pod", "prod/web", "--kubeconfig", kubeconfig)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "ovnkube egress: get configmap ") {
		t.Errorf("%v: %s", err, out)
	}
}
