package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	servicefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	ipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

const anEgressIPFile = `
apiVersion: k8s.ovn.org/v1
kind: EgressIP
metadata:
  name: shop
spec:
  egressIPs: [172.18.0.44]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: prod}}
`

// askWhatIf runs "what-if" with the given standard input.
func askWhatIf(t *testing.T, stdin string, args ...string) (status int, out, errs string) {
	t.Helper()
	cluster := egressCluster()
	var stdout, stderr bytes.Buffer
	e := &egress{in: strings.NewReader(stdin), out: &stdout, now: func() time.Time { return egressTime }, connect: func(string, string) (reader.Clients, error) {
		return reader.Clients{Kube: fakeapi.NewClientset(cluster...), IPs: ipfake.NewSimpleClientset([]runtime.Object{anEgressIP()}...),
			Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset()}, nil
	}}
	status = e.run(t.Context(), append([]string{"what-if"}, args...), &stderr)
	return status, stdout.String(), stderr.String()
}

func TestWhatIf(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name       string
		args       []string
		stdin      string
		status     int
		out, error string
	}{
		{name: "a name that is empty", args: []string{"--lose", "n1,"}, status: 2, error: "--lose=n1,: a name is missing"},
		{name: "lose", args: []string{"--lose", "n1"}, out: "What if: lose node n1\n"},
		{name: "drain", args: []string{"--drain=n1"}, out: "What if: drain node n1\n"},
		{name: "label", args: []string{"--label", "n1", "k8s.ovn.org/egress-assignable=", "--lose", "n1"}, out: "What if: label node n1 k8s.ovn.org/egress-assignable=\n    and: lose node n1\n"},
		{name: "labels", args: []string{"--label", "n1", "a=b", "c-", "-o", "yaml"}, out: "- label node n1 a=b\n- label node n1 c-\n"},
		{name: "one argument", args: []string{"--label=n1 a=b"}, out: "What if: label node n1 a=b\n"},
		{name: "delete", args: []string{"--delete", "egressip/prod"}, out: "What if: delete egressip/prod\n"},
		{name: "a file", args: []string{"-f", file("eip.yaml", anEgressIPFile)}, status: 1, out: "! EgressIP/shop NoNode: Assigned is False"},
		{name: "standard input", args: []string{"-f", "-", "-o", "json"}, stdin: "---\n" + anEgressIPFile + "---\n", status: 1, out: `"apply EgressIP/shop"`},
		{name: "a list", args: []string{"-f", "-"}, stdin: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: dev}\n", out: "What if: apply Namespace/dev\n"},
		{name: "nothing", status: 2, error: "a change is missing: --filename, --delete, --drain, --lose or --label"},
		{name: "an argument", args: []string{"n1", "--lose", "n1"}, status: 2, error: "n1: unexpected argument"},
		{name: "no such node", args: []string{"--lose", "n1,n2"}, status: 2, error: "node n2: not found"},
		{name: "no such object", args: []string{"--delete", "egressip/nothing"}, status: 2, error: "EgressIP nothing: not found"},
		{name: "no label", args: []string{"--label", "n1"}, status: 2, error: "--label=n1: no label of a node; allowed: NODE KEY=VALUE, or NODE KEY-"},
		{name: "a bad label", args: []string{"--label", "n1", "a=b c"}, status: 2, error: "--label=n1 a=b c: a valid label must"},
		{name: "no file", args: []string{"-f", filepath.Join(dir, "nothing")}, status: 2, error: "no such file"},
		{name: "an empty file", args: []string{"-f", "-"}, stdin: "---\n", status: 2, error: "--filename=-: there is no object in it"},
		{name: "a field that there is not", args: []string{"-f", "-"}, stdin: strings.Replace(anEgressIPFile, "egressIPs", "egressIps", 1), status: 2, error: `unknown field "spec.egressIps"`},
		{name: "a kind without a part in it", args: []string{"-f", "-"}, stdin: "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\n", status: 2, error: "Secret/b/a: no egress feature depends on objects of this kind"},
		{name: "an unknown kind", args: []string{"-f", "-"}, stdin: "apiVersion: example.org/v1\nkind: Thing\n", status: 2, error: `no kind "Thing" is registered for version "example.org/v1"`},
		{name: "no name", args: []string{"-f", "-"}, stdin: "apiVersion: v1\nkind: Node\n", status: 2, error: "--filename=-: object 1: Node: metadata.name is missing"},
		{name: "no namespace", args: []string{"-f", "-"}, stdin: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", status: 2, error: "Pod a: metadata.namespace is missing"},
		{name: "unknown format", args: []string{"--lose", "n1", "-o", "xml"}, status: 2, error: "--output=xml: unknown format"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, out, errs := askWhatIf(t, tc.stdin, tc.args...)
			if status != tc.status || !strings.Contains(out, tc.out) || !strings.Contains(errs, tc.error) || (tc.error == "") != (errs == "") {
				t.Errorf("exit %d, want %d\n%s\n%s", status, tc.status, out, errs)
			}
		})
	}
}

func TestLabelsInOrder(t *testing.T) {
	got := labelsInOrder([]string{"what-if", "--label", "n1", "a=b", "c-", "--lose", "n2", "--label", "n2", "--label", "n3 x=y", "-o", "json"})
	want := []string{"what-if", "--label", "n1 a=b", "--label", "n1 c-", "--lose", "n2", "--label", "n2", "--label", "n3 x=y", "-o", "json"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
