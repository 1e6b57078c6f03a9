package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// page is a document: its text outside of code blocks, and its anchors.
type page struct {
	text    string
	anchors map[string]bool
}

// pages returns the documents of the repository, by path relative to its root.
func pages(t *testing.T) map[string]page {
	t.Helper()
	all := map[string]page{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), "_") || strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[name] = parse(string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parse parses a document. Anchors of headings are formed as on GitHub: lower-case letters, digits, dashes and
// underscores, and a dash for each space.
func parse(content string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(content) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		p.text += line
		heading := strings.TrimLeft(line, "#")
		if level := len(line) - len(heading); level == 0 || level > 6 || !strings.HasPrefix(heading, " ") {
			continue
		}
		var anchor strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
			switch {
			case r == ' ':
				anchor.WriteRune('-')
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				anchor.WriteRune(r)
			}
		}
		p.anchors[anchor.String()] = true
	}
	return p
}

var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// broken returns the broken links of a document.
func broken(name string, all map[string]page) []string {
	var out []string
	for _, m := range link.FindAllStringSubmatch(all[name].text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		file := name
		if target != "" {
			file = filepath.Join(filepath.Dir(name), target)
		}
		if _, err := os.Stat(filepath.Join(root, file)); err != nil && all[file].anchors == nil {
			out = append(out, m[1])
			continue
		}
		if anchor != "" && !all[file].anchors[anchor] {
			out = append(out, m[1])
		}
	}
	return out
}

// TestLinks: every link between documents leads to an existing file, and to a heading in it.
func TestLinks(t *testing.T) {
	all := pages(t)
	links := 0
	for name := range all {
		links += len(link.FindAllString(all[name].text, -1))
		for _, target := range broken(name, all) {
			t.Errorf("%s: the link to %s leads nowhere", name, target)
		}
	}
	if links < 60 {
		t.Errorf("only %d links found", links)
	}
}

func TestBroken(t *testing.T) {
	all := map[string]page{
		"docs/a.md": parse("# A page\n\n[b](b.md) [b](b.md#the-b-1) [here](#a-page) [out](https://example.org/x) [up](../README.md)\n" +
			"[gone](c.md) [no heading](b.md#c) [not here](#b)\n```\n# in a block\n[x](x.md)\n```\n[block](#in-a-block)\n"),
		"docs/b.md": parse("## The `B`, 1\n"),
	}
	if have := strings.Join(broken("docs/a.md", all), " "); have != "c.md b.md#c #b #in-a-block" {
		t.Errorf("broken links: %s", have)
	}
}
