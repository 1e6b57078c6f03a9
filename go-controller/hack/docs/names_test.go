package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared returns the names that a package declares, including methods and fields. It is nil if there is no such
// package.
func declared(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	dir := filepath.Join(root, "go-controller/pkg", pkg)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	set := token.NewFileSet()
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, filepath.Join(dir, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Name.Name] = true
				return false
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.Field:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	}
	if len(names) == 0 {
		return nil
	}
	return names
}

// TestNames: names in the code that the design pages refer to, as `package.Name`, exist.
func TestNames(t *testing.T) {
	name := regexp.MustCompile("`([a-z]+(?:/[a-z]+)*)((?:\\.[A-Za-z]+)+)`")
	packages := map[string]map[string]bool{}
	checked := 0
	for path, p := range pages(t) {
		if !strings.HasPrefix(path, "docs/") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(p.text, -1) {
			pkg := m[1]
			if _, ok := packages[pkg]; !ok {
				packages[pkg] = declared(t, pkg)
			}
			if packages[pkg] == nil {
				continue // a name of OVN or Kubernetes
			}
			if !strings.HasPrefix(path, "docs/design/") && m[2] == strings.ToLower(m[2]) {
				continue // a field of a file: the other pages refer to exported names only
			}
			for part := range strings.SplitSeq(strings.TrimPrefix(m[2], "."), ".") {
				if checked++; !packages[pkg][part] {
					t.Errorf("%s: package %s has no %s: %s", path, pkg, part, m[0])
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d names found", checked)
	}
}
