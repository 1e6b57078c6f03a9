package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestKept: every stored mutation can be parsed and still applies, and the sample is neither empty nor large.
func TestKept(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	all, err := read(mutations)
	if err != nil {
		t.Fatal(err)
	}
	samples := 0
	for _, m := range all {
		if m.sample {
			samples++
		}
		if _, err := apply(t.Context(), m, t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(all) < 60 || samples < 5 || samples > 20 {
		t.Errorf("%d mutations, %d of them in the sample", len(all), samples)
	}
}

func TestParse(t *testing.T) {
	const diff = "--- a/go-controller/x.go\n+++ b/go-controller/x.go\n@@ -1 +1 @@\n-a\n+b\n"
	m, err := parse("Breaks: all of it\nTests: ./pkg/x -run Y\nSample: yes\n\n" + diff)
	if err != nil || m.breaks != "all of it" || strings.Join(m.tests, " ") != "./pkg/x -run Y" || !m.sample || strings.Join(m.files, " ") != "go-controller/x.go" {
		t.Errorf("%+v, %v", m, err)
	}
	for what, text := range map[string]string{
		"says nothing":   "\n" + diff,
		"names no test":  "Breaks: it\n\n" + diff,
		"has no diff":    "Breaks: it\nTests: ./pkg/x\n\n",
		"unknown header": "Breaks: it\nTests: ./pkg/x\nWhy: because\n\n" + diff,
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("one that %s is accepted", what)
		}
	}
}
