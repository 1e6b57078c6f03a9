package conditions

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTable: the entries follow the API conventions and are unique, and each one that is a problem has a remedy.
func TestTable(t *testing.T) {
	camel := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	good := map[string]metav1.ConditionStatus{
		Assigned: metav1.ConditionTrue, Programmed: metav1.ConditionTrue, Ready: metav1.ConditionTrue, HopsValid: metav1.ConditionTrue,
		Conflict: metav1.ConditionFalse, IngressRefused: metav1.ConditionFalse,
	}
	seen := map[string]bool{}
	for _, e := range All() {
		name := strings.Join([]string{e.Kind, e.Type, string(e.Status), e.Reason}, " ")
		if seen[name] {
			t.Errorf("%s: twice", name)
		}
		seen[name] = true
		well, known := good[e.Type]
		if !known || !camel.MatchString(e.Reason) || !slices.Contains(Kinds(), e.Kind) || e.Meaning == "" {
			t.Errorf("%s: %+v", name, e)
		}
		if (e.Remedy == "") != (e.Status == well) {
			t.Errorf("%s: remedy %q", name, e.Remedy)
		}
		if strings.ContainsAny(e.Meaning+e.Remedy, "|\n") {
			t.Errorf("%s: does not fit into a table", name)
		}
		if !Known(e.Kind, metav1.Condition{Type: e.Type, Status: e.Status, Reason: e.Reason}) {
			t.Errorf("%s: not known", name)
		}
	}
	if Known(EgressIP, metav1.Condition{Type: FormerConflict, Status: metav1.ConditionFalse, Reason: "NoConflict"}) {
		t.Error("the former name is known of a kind that never had it")
	}
	if !Known(AdminPolicyBasedExternalRoute, metav1.Condition{Type: FormerConflict, Status: metav1.ConditionFalse, Reason: "NoConflict"}) {
		t.Error("the former name is not known")
	}
}

// TestReasonsInUse: each reason is a string in some package, so that the table does not keep reasons that are no
// longer used. A reason that this package declares is one in no other: they all use the declared one.
func TestReasonsInUse(t *testing.T) {
	var source strings.Builder
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "apis/conditions/") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range All() {
		says := strings.Contains(source.String(), `"`+e.Reason+`"`)
		if uses := strings.Contains(source.String(), "conditions.Reason"+e.Reason); says == uses {
			t.Errorf("%s: a package says it: %v, a package uses what is declared here: %v", e.Reason, says, uses)
		}
	}
	for _, e := range AllEvents() {
		if !strings.Contains(source.String(), `"`+e.Reason+`"`) {
			t.Errorf("nothing says %s", e.Reason)
		}
		if e.Meaning == "" || e.Remedy == "" || strings.ContainsAny(e.Meaning+e.Remedy, "|\n") {
			t.Errorf("%s: %+v does not fit into the table", e.Reason, e)
		}
	}
	for _, m := range regexp.MustCompile(`\.Eventf?\([^"\n]*Event[TypeWarningNormal]+, "([A-Za-z]+)"`).FindAllStringSubmatch(source.String(), -1) {
		if !slices.ContainsFunc(AllEvents(), func(e Event) bool { return e.Reason == m[1] }) {
			t.Errorf("Event %s is not in the table", m[1])
		}
	}
}

// TestReasonsOfFeatures: the table has every reason that a feature declares.
func TestReasonsOfFeatures(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^\t[Rr]eason[A-Za-z]+ += "([A-Za-z]+)"`)
	for dir, kind := range map[string]string{
		"egressip": EgressIP, "egressservice": EgressService, "externalroute": AdminPolicyBasedExternalRoute,
	} {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				if !slices.ContainsFunc(All(), func(e Entry) bool { return e.Kind == kind && e.Reason == m[1] }) {
					t.Errorf("%s: reason %s is not in the table", file, m[1])
				}
			}
		}
	}
}
