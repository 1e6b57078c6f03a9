package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// outcome is the outcome of a mutation.
type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "survived"
	// wrong means that the mutation is unusable: its patch does not apply or compile, or its tests fail even
	// without it.
	wrong outcome = "wrong"
)

// result is a mutation that was tried.
type result struct {
	mutation
	outcome outcome
	why     string
	output  string
	took    time.Duration
}

func (r result) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s, %s", r.outcome, r.why), ", ")
}

// root is the root of the repository, relative to the module.
const root = ".."

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	notBuilt   = regexp.MustCompile(`(?m)^FAIL\s.*\[(build|setup) failed\]$`)
)

// try applies one mutation and runs its tests.
func try(ctx context.Context, m mutation) result {
	start := time.Now()
	r := result{mutation: m}
	r.outcome, r.why, r.output = judge(ctx, m)
	r.took = time.Since(start)
	return r
}

func judge(ctx context.Context, m mutation) (verdict outcome, why, output string) {
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return wrong, err.Error(), ""
	}
	defer os.RemoveAll(dir)
	overlay, err := apply(ctx, m, dir)
	if err != nil {
		return wrong, "the patch does not apply", err.Error()
	}
	output, err = test(ctx, append([]string{"-count=1", "-overlay", overlay}, m.tests...))
	var failed *exec.ExitError
	switch {
	case err == nil && strings.Contains(output, "[no tests to run]"):
		return wrong, "it names no test", output
	case err == nil:
		return survived, m.breaks, output
	case !errors.As(err, &failed):
		return wrong, err.Error(), output
	case notBuilt.MatchString(output):
		return wrong, "it does not compile", output
	}
	// Tests that always fail detect nothing. If they pass, go test has cached that by now.
	if sane, err := test(ctx, m.tests); err != nil {
		return wrong, "its tests fail without it", sane
	}
	names := failedTest.FindAllStringSubmatch(output, -1)
	if len(names) == 0 {
		return killed, "the test crashed or hung", output
	}
	return killed, "by " + names[len(names)-1][1], output
}

// apply patches copies of the files in dir, and returns the overlay file that makes the compiler use them.
func apply(ctx context.Context, m mutation, dir string) (string, error) {
	replace := map[string]string{}
	for _, file := range m.files {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		content, err := os.ReadFile(original)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(replace[original]), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(replace[original], content, 0o644); err != nil {
			return "", err
		}
	}
	patch := exec.CommandContext(ctx, "git", "apply", m.path)
	patch.Dir = dir
	patch.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if output, err := patch.CombinedOutput(); err != nil {
		return "", fmt.Errorf("git apply: %w: %s", err, output)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

// test runs go test and returns its output.
func test(ctx context.Context, args []string) (string, error) {
	args = append([]string{"test", "-failfast", "-vet=off", "-timeout=5m"}, args...)
	output, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	return string(output), err
}
