package build

import (
	"os"
	"path/filepath"
	"testing"
)

// A change of one module makes only what is built from it stale:
// rebuilding Kubernetes takes minutes.
func TestModulesAgeApart(t *testing.T) {
	source, a := t.TempDir(), Artifacts(t.TempDir())
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range modules {
		for _, name := range []string{"go.mod", "go.sum", "cmd/program/main.go"} {
			write(filepath.Join(source, m.dir, name), "as it was\n")
		}
		if a.Current(source) {
			t.Fatal("current before all is built")
		}
		built, err := m.digest(source)
		if err != nil {
			t.Fatal(err)
		}
		write(a.stamp(m), built)
	}
	if !a.Current(source) {
		t.Fatal("not current though all is built")
	}
	for _, changed := range modules {
		path := filepath.Join(source, changed.dir, "cmd/program/main.go")
		write(path, "changed\n")
		for _, m := range modules {
			if got, want := a.current(source, m), m.dir != changed.dir; got != want {
				t.Errorf("after a change of %s %s is current: %v", changed.dir, m.dir, got)
			}
		}
		write(path, "as it was\n")
	}
}
