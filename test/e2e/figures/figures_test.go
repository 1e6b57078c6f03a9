package figures

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recorder is a fake test that may fail without failing the real one.
type recorder struct {
	name   string
	failed []string
}

func (r *recorder) Helper()             {}
func (r *recorder) Name() string        { return r.name }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func read(t *testing.T, path string) []Figure {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMain sets the bounds to those of an ordinary machine, wherever these tests run.
func TestMain(m *testing.M) {
	os.Unsetenv("E2E_TIME_FACTOR")
	m.Run()
}

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	t.Setenv(Variable, path)
	bound := Bound{Promised: 2 * time.Second, Factor: 1.5}
	for _, c := range []struct {
		took []time.Duration
		says string // part of the failure message
	}{
		{[]time.Duration{900 * time.Millisecond, 3 * time.Second}, ""},
		{[]time.Duration{time.Second, 3001 * time.Millisecond}, "failover took 3001 ms, want at most 3000"},
		{nil, "was not measured"},
	} {
		r := &recorder{name: "TestSharedGateway/Moves/1"}
		Record(r, "failover", bound, c.took...)
		if got := strings.Join(r.failed, "; "); c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%v: failed with %q, want %q", c.took, got, c.says)
		}
	}
	stalled := &recorder{name: "TestSharedGateway/Moves/2"}
	bound.Stall = time.Second
	Record(stalled, "failover", bound, 4*time.Second)
	if len(stalled.failed) > 0 {
		t.Errorf("a stall is not allowed besides: %v", stalled.failed)
	}
	Record(stalled, "failover", bound, 4001*time.Millisecond)
	if len(stalled.failed) != 1 || bound.Limit() != 4*time.Second {
		t.Errorf("more than a stall is allowed: up to %s", bound.Limit())
	}
	if got := bound.Open().Limit(); got != 8*time.Second {
		t.Errorf("open connections may stall for %s, want twice as long as new ones", got)
	}
	all := read(t, path)
	if len(all) != 4 {
		t.Fatalf("kept %+v", all)
	}
	if f := all[0]; f.Worst() != 3000 || f.Median() != 900 || f.Limit() != 3000 {
		t.Errorf("worst %v, median %v, limit %v of %+v", f.Worst(), f.Median(), f.Limit(), f)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"{", `{"name":"nothing","values":[]}`} {
		if all, err := Read(strings.NewReader(text + "\n")); err == nil {
			t.Errorf("%s was read as %+v", text, all)
		}
	}
}

func TestTables(t *testing.T) {
	figure := func(name, test string, values ...float64) Figure {
		return Figure{Name: name, Test: test, Unit: "ms", Values: values, Promised: 2000, Factor: 2}
	}
	a := []Figure{figure("failover", "TestShared/1", 1000), figure("failover", "TestShared/2", 1400, 1600), figure("gone", "TestShared", 7)}
	b := []Figure{figure("failover", "TestShared/1", 5000), figure("failover", "TestLocal/1", 800)}
	var out bytes.Buffer
	if err := WriteTable(&out, b); err != nil {
		t.Fatal(err)
	}
	lines(t, out.String(), []string{
		"figure test times median worst promised allowed",
		"failover Local 1 800 ms 800 ms 2000 ms 4000 ms",
		"failover Shared 1 5000 ms 5000 ms 2000 ms 4000 ms exceeded",
	})
	out.Reset()
	if err := WriteComparison(&out, a, b); err != nil {
		t.Fatal(err)
	}
	lines(t, out.String(), []string{
		"figure test median A median B worst A worst B allowed",
		"failover Local - 800 ms - 800 ms 4000 ms",
		"failover Shared 1400 ms 5000 ms 1600 ms 5000 ms 4000 ms",
		"gone Shared 7 ms - 7 ms - 4000 ms",
	})
}

// lines compares a table with what it should be, ignoring blanks.
func lines(t *testing.T, table string, want []string) {
	t.Helper()
	var have []string
	for line := range strings.Lines(table) {
		have = append(have, strings.Join(strings.Fields(line), " "))
	}
	if got := strings.Join(have, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("have\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
