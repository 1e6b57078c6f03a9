package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

// lint returns the errors in a workflow: in its schema, expressions, and inputs of known actions.
func lint(t *testing.T, name string, text []byte) []*actionlint.Error {
	t.Helper()
	// Without shellcheck and pyflakes, which may not be installed.
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := linter.Lint(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// made returns the make targets that a workflow runs.
func made(t *testing.T, text []byte) []string {
	t.Helper()
	workflow, errs := actionlint.Parse(text)
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	line := regexp.MustCompile(`(?m)^\s*(?:sudo )?make((?: [a-z0-9-]+)+)`)
	var targets []string
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			run, ok := step.Exec.(*actionlint.ExecRun)
			if !ok {
				continue
			}
			for _, found := range line.FindAllStringSubmatch(run.Run.Value, -1) {
				targets = append(targets, strings.Fields(found[1])...)
			}
		}
	}
	return targets
}

// TestWorkflows: the workflows are valid, and run targets that exist in the Makefile: all tests,
// those on kind, and a release.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range lint(t, file, text) {
			t.Error(e)
		}
		targets := made(t, text)
		for _, target := range targets {
			if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
				t.Errorf("%s: there is no make %s", file, target)
			}
		}
		all = append(all, targets...)
	}
	for _, want := range []string{"test", "kind-e2e", "release"} {
		if !slices.Contains(all, want) {
			t.Errorf("no workflow runs make %s, but these: %q", want, all)
		}
	}
}

// TestLint: errors in a workflow are found.
func TestLint(t *testing.T) {
	const valid = "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - uses: actions/checkout@v4\n        with: {fetch-depth: 0}\n      - run: make test lint\n"
	if found := lint(t, "valid.yml", []byte(valid)); len(found) > 0 {
		t.Errorf("valid: %v", found)
	}
	if got := made(t, []byte(valid)); !slices.Equal(got, []string{"test", "lint"}) {
		t.Errorf("targets %q", got)
	}
	for name, change := range map[string][2]string{
		"key":        {"runs-on", "runs-at"},
		"input":      {"fetch-depth", "depth"},
		"expression": {"make test", "make ${{ matrix.mode }}"},
		"runner":     {"ubuntu-24.04", "debian"},
	} {
		if found := lint(t, "broken.yml", []byte(strings.Replace(valid, change[0], change[1], 1))); len(found) == 0 {
			t.Errorf("a wrong %s is not found", name)
		}
	}
}
