package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// TestSecurity: the tests that SECURITY.md refers to exist, in the given packages.
func TestSecurity(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	// By directory: the content of its tests.
	tests := map[string]string{}
	for top, suffix := range map[string]string{"go-controller/pkg": "_test.go", "test/e2e": ".go"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, suffix) {
				return err
			}
			content, err := os.ReadFile(path)
			dir, _ := filepath.Rel(filepath.Join(root, top), filepath.Dir(path))
			tests[dir] += string(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	row := regexp.MustCompile(`(?m)^\|.*\|$`)
	quoted := regexp.MustCompile("`([^`]+)`")
	checked := 0
	for _, line := range row.FindAllString(string(text), -1) {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		var dirs []string
		named := false
		for _, word := range quoted.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			name := word[1]
			if _, ok := tests[name]; ok {
				if named {
					dirs, named = nil, false
				}
				dirs = append(dirs, name)
				continue
			}
			named = true
			for _, dir := range dirs {
				for part := range strings.SplitSeq(name, "/") {
					checked++
					if !strings.Contains(tests[dir], "func "+part+"(") && !strings.Contains(tests[dir], `"`+part+`"`) {
						t.Errorf("no test %s in %s: %s", part, dir, line)
					}
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d names of tests found", checked)
	}
}
