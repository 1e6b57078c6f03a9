package main

import (
	"go/constant"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const packages = "../../pkg"

// read parses the tree once. Each test gets its own copy to modify.
func read(t *testing.T) *source {
	t.Helper()
	s, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	own := *s
	own.constants, own.ids, own.flows = slices.Clone(s.constants), slices.Clone(s.ids), slices.Clone(s.flows)
	own.rows, own.loose, own.byName = slices.Clone(s.rows), slices.Clone(s.loose), maps.Clone(s.byName)
	return &own
}

var tree = sync.OnceValues(func() (*source, error) { return parse(packages) })

// TestPage: the page in the repository is up to date.
func TestPage(t *testing.T) {
	want, err := render(read(t))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../docs/design/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Error("docs/design/reference.md is stale: run make generate")
	}
}

// TestNew: a new constant with a role on the page but no description is refused, in any package.
func TestNew(t *testing.T) {
	for _, test := range []struct{ pkg, file, name, value string }{
		{"topology", "policy.go", "PriorityNew", "777"},
		{"topology", "policy.go", "RuleNew", "4998"},
		{"topology", "policy.go", "MarkNew", "1011"},
		{"topology", "policy.go", "ConntrackMarkNew", "3"},
		{"topology", "policy.go", "Other", "3"},
		{"topology", "names.go", "NewSwitch", `"new"`},
		{"bridge", "new.go", "priorityNew", "99"},
		{"bridge", "new.go", "TableNew", "4"},
		{"service", "new.go", "priorityOfService", "106"},
		{"egressip", "new.go", "newTable", "2000"},
		{"egressip", "new.go", "ChainNew", `"OVN-KUBE-NEW"`},
		{"host/link", "new.go", "newTableName", `"ovn-kube-new"`},
		{"kube", "annotations.go", "AnnotationNew", `"k8s.ovn.org/new"`},
		{"kube", "annotations.go", "LabelNew", `"example.org/new"`},
		{"pod/master", "new.go", "secret", `"k8s.ovn.org/new"`},
		{"nb/ovsdb", "ids.go", "newKey", `"k8s.ovn.org/new"`},
		{"cni", "port.go", "IDNew", `"new"`},
		{"gateway/node", "config.go", "idNew", `"new"`},
		{"network", "new.go", "externalNew", `"new"`},
		{"network", "new.go", "FeatureNew", `"new"`},
	} {
		t.Run(test.pkg+"."+test.name, func(t *testing.T) {
			s := read(t)
			value := constant.MakeString(strings.Trim(test.value, `"`))
			if !strings.HasPrefix(test.value, `"`) {
				value = constant.ToInt(constant.MakeFromLiteral(test.value, token.INT, 0))
			}
			c := &constantDecl{pkg: test.pkg, file: test.file, name: test.name, value: value}
			s.constants = append(s.constants, c)
			s.byName[c.key()] = c
			_, err := render(s)
			if err == nil {
				t.Fatal("the page was written")
			}
			if !strings.Contains(err.Error(), test.name) && !strings.Contains(err.Error(), strings.Trim(test.value, `"`)) {
				t.Errorf("the error does not name the constant: %v", err)
			}
		})
	}
}

// TestChanged: a changed value changes the page.
func TestChanged(t *testing.T) {
	s := read(t)
	before, err := render(s)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]constant.Value{
		"topology.PriorityEgressIP":   constant.MakeInt64(99),
		"topology.RuleEgressIP":       constant.MakeInt64(6001),
		"topology.MarkServicePort":    constant.MakeInt64(5),
		"topology.ConntrackZone":      constant.MakeInt64(7),
		"bridge.prioritySuppressARP":  constant.MakeInt64(151),
		"egressip.tableBase":          constant.MakeInt64(3000),
		"host/openflow.Cookie":        constant.MakeInt64(1),
		"host.Protocol":               constant.MakeInt64(80),
		"host/snatguard.chainName":    constant.MakeString("output"),
		"topology.JoinSwitch":         constant.MakeString("meet"),
		"noreroute.EgressServicePods": constant.MakeString("served_pods"),
	} {
		c := s.byName[key]
		old := c.value
		c.value = value
		after, err := render(s)
		if err != nil {
			t.Fatal(err)
		}
		if after == before {
			t.Errorf("%s is %s, and the page is the same", key, value)
		}
		c.value = old
	}
}

// TestUsed: values that are not constants are put on the page, or refused.
func TestUsed(t *testing.T) {
	for name, change := range map[string]func(*source){
		"external_ids": func(s *source) { s.ids = append(s.ids, externalID{"pod", "new"}) },
		"flows":        func(s *source) { s.flows = append(s.flows, "New") },
		"row":          func(s *source) { s.rows = append(s.rows, rowName{"pod", "LogicalSwitch", `"new"`}) },
		"string":       func(s *source) { s.loose = append(s.loose, "pod: k8s.ovn.org/new") },
		"gone": func(s *source) {
			s.ids = slices.DeleteFunc(s.ids, func(id externalID) bool { return id.key == "physical_ip" })
		},
	} {
		s := read(t)
		change(s)
		if _, err := render(s); err == nil {
			t.Errorf("%s: the page was written", name)
		}
	}
}

// TestParse: parses the various forms of source code.
func TestParse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("topology/names.go", `package topology
const Router = "router"
const (
	Base = 0x10
	// Next follows.
	Next = Base + 2*3
)
func Port(node string) string { return "to-" + Router + "-" + node }
func Peer(node string) string { return "peer-" + Port(node) }
`)
	write("pod/rows.go", `package pod
import "example.org/go-controller/pkg/topology"
type text string
const Mine text = text("of-" + topology.Router)
func rows() any {
	return nbdb.LogicalSwitch{Name: "a" + b, ExternalIDs: map[string]string{string(Mine): "", "other": ""}}
}
func read(ids Row) string { return ids.ExternalIDs["read"] + "OVN-KUBE-LOOSE" }
`)
	write("pod/rows_test.go", `package pod
const Priority = 5
`)
	write("bridge/flows.go", `package bridge
func Some(n int) []host.Flow { return nil }
func One() host.Flow { return "" }
func other() []host.Flow { return nil }
`)
	s, err := parse(dir)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"topology.Next": "22", "pod.Mine": "of-router"} {
		if c := s.byName[key]; c == nil || c.text() != want {
			t.Errorf("%s: %+v, want %s", key, c, want)
		}
	}
	if s.byName["topology.Next"].doc != "Next follows.\n" || s.byName["pod.Priority"] != nil {
		t.Errorf("comment %q, constant of a test %v", s.byName["topology.Next"].doc, s.byName["pod.Priority"])
	}
	if len(s.functions) != 2 || s.functions[0].pattern != "to-router-<node>" || s.functions[1].pattern != "peer-{Port}" {
		t.Errorf("functions %+v", s.functions)
	}
	want := []externalID{{"pod", "of-router"}, {"pod", "other"}, {"pod", "read"}}
	if len(s.ids) != 3 || s.ids[0] != want[0] || s.ids[1] != want[1] || s.ids[2] != want[2] {
		t.Errorf("external_ids %v, want %v", s.ids, want)
	}
	if len(s.rows) != 1 || s.rows[0] != (rowName{"pod", "LogicalSwitch", `"a" + b`}) {
		t.Errorf("rows %v", s.rows)
	}
	if strings.Join(s.flows, " ") != "One Some" {
		t.Errorf("flows %v", s.flows)
	}
	if len(s.loose) != 1 || s.loose[0] != "pod: OVN-KUBE-LOOSE" {
		t.Errorf("strings %v", s.loose)
	}
}
