package main

import (
	"os"
	"strings"
	"testing"
)

// tree returns packages for every group, with no imports except for those in change.
func tree(change map[string][]string) map[string][]string {
	imports := map[string][]string{}
	for _, row := range rows {
		for _, g := range row {
			name := g.names[0]
			if strings.HasSuffix(name, "/") {
				name += "link"
			}
			imports[name] = nil
		}
	}
	for pkg, to := range change {
		imports[pkg] = to
	}
	return imports
}

func draw(t *testing.T, imports map[string][]string) string {
	t.Helper()
	g, err := build(imports)
	if err != nil {
		t.Fatal(err)
	}
	g.layout()
	return g.svg()
}

// TestPicture: the picture in the repository matches the existing packages, and drawing is deterministic.
func TestPicture(t *testing.T) {
	t.Chdir("../..")
	imports, err := list()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../docs/design/packages.svg")
	if err != nil {
		t.Fatal(err)
	}
	want := draw(t, imports)
	if string(have) != want {
		t.Error("docs/design/packages.svg is stale: run make graph")
	}
	if draw(t, imports) != want {
		t.Error("two pictures of the same packages differ")
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		imports map[string][]string
		want    string
	}{
		"up":                  {tree(map[string][]string{"host": {"host/link"}}), "host imports host/link, which is not below it"},
		"a feature":           {tree(map[string][]string{"egressip": {"egressservice"}}), "egressip imports egressservice, which is not below it"},
		"a feature, by glue":  {tree(map[string][]string{"egressip/node": {"service"}}), "egressip/node imports service, which is not below it"},
		"app":                 {tree(map[string][]string{"nb": {"app"}}), "nb imports app, which is not below it"},
		"a driver of another": {tree(map[string][]string{"nb/ovsdb": {"host/link"}}), "nb/ovsdb imports host/link, which is not below it"},
		"a new package":       {tree(map[string][]string{"magic": nil}), "package magic has no place"},
		"none to import":      {tree(map[string][]string{"nb": {"gone"}}), "nb imports gone, which is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := build(test.imports); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	imports := tree(nil)
	delete(imports, "bridge")
	if _, err := build(imports); err == nil {
		t.Error("a group without packages was drawn")
	}
}

// TestArrows: there is an arrow for each import between groups, except for those implied by longer paths and those
// of app.
func TestArrows(t *testing.T) {
	g, err := build(tree(map[string][]string{
		"app":               {"egressip", "nb"},
		"egressip":          {"nb", "place"},
		"egressip/master":   {"egressip", "health", "kube"},
		"health":            {"place"},
		"kube":              {"topology"},
		"place":             {"topology"},
		"cni":               {"topology"},
		"cni/node":          {"cni", "kube"},
		"reserved/snapshot": {"kube"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, a := range g.arrows {
		line := a.from.names[0] + " -> " + a.to.names[0]
		if !a.pure {
			line += " (controllers)"
		}
		have = append(have, line)
	}
	want := []string{
		"cni -> nodeinfo (controllers)", "egressip -> health (controllers)", "egressip -> nodeinfo (controllers)", "egressip -> nb",
		"health -> place", "reserved -> nodeinfo (controllers)", "nodeinfo -> topology", "place -> topology",
	}
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Errorf("arrows\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestOverlap: groups do not overlap, and arrows pass between them.
func TestOverlap(t *testing.T) {
	t.Chdir("../..")
	imports, err := list()
	if err != nil {
		t.Fatal(err)
	}
	g, err := build(imports)
	if err != nil {
		t.Fatal(err)
	}
	g.layout()
	for _, row := range g.rows {
		for i, n := range row {
			if n.x < 0 || n.x+n.w > g.w || n.y+n.h > g.h {
				t.Errorf("%v is outside of the picture", n.names)
			}
			if i > 0 && row[i-1].x+row[i-1].w > n.x+0.01 {
				t.Errorf("%v and %v overlap", row[i-1].names, n.names)
			}
		}
	}
}
