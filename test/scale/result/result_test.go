package result

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/scale/load"
)

func size(t *testing.T, times int) load.Size {
	t.Helper()
	s, err := load.SizeOf("small", times)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scale.json")
	want := []Result{
		{Size: size(t, 1), Phase: "cold start", Rows: 14500, CPU: 10.25, Kinds: map[string]float64{"ports": 9000}, Writes: map[string]int{"nodes": 100}},
		{Size: size(t, 1), Phase: "restart", Done: 3000},
	}
	for _, r := range want {
		if err := Append(path, r); err != nil {
			t.Fatal(err)
		}
	}
	have, err := Load(path)
	if err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("kept %+v: %v", have, err)
	}
	for _, text := range []string{"{", `{"rowsMs":1}`} {
		if all, err := Read(strings.NewReader(text + "\n")); err == nil {
			t.Errorf("%s was read as %+v", text, all)
		}
	}
}

func TestTables(t *testing.T) {
	event := func(phase string, rows float64) Result {
		return Result{Size: size(t, 1), Phase: phase, Rows: rows, Transactions: 2, Writes: map[string]int{"nodes": 3, "pods": 1}}
	}
	a := []Result{event("pod started", 40), event("pod started", 20), event("pod started", 30), event("gone", 7)}
	b := []Result{event("pod started", 10), event("new", 5)}
	var out bytes.Buffer
	if err := WriteTable(&out, a); err != nil {
		t.Fatal(err)
	}
	lines(t, out.String(),
		"size phase times rows ms transactions API writes",
		"small pod started 3 30 2 4",
		"small gone 1 7 2 4",
		"pod started, API writes: nodes 3, pods 1",
		"gone, API writes: nodes 3, pods 1")
	out.Reset()
	if err := WriteComparison(&out, a, b); err != nil {
		t.Fatal(err)
	}
	lines(t, out.String(),
		"size phase rows ms A rows ms B transactions A transactions B API writes A API writes B",
		"small pod started 30 10 2 2 4 4",
		"small gone 7 2 4",
		"small new 5 2 4")
}

// lines compares a table with the wanted lines, ignoring blanks.
func lines(t *testing.T, table string, want ...string) {
	t.Helper()
	var have []string
	for line := range strings.Lines(table) {
		have = append(have, strings.Join(strings.Fields(line), " "))
	}
	if got, want := strings.Join(have, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("have\n%s\nwant\n%s", got, want)
	}
}

func TestPlot(t *testing.T) {
	var all []Result
	for _, times := range []int{4, 1, 2} {
		all = append(all,
			Result{Size: size(t, times), Phase: "cold start", Rows: 1000 * float64(times)},
			Result{Size: size(t, times), Phase: "restart", Done: 500},
			Result{Size: size(t, times), Phase: "nothing"})
	}
	all = append(all, Result{Size: size(t, 1), Phase: "once", Rows: 3})
	drawn := curves(all, "small")
	if len(drawn) != 2 {
		t.Fatalf("curves %+v", drawn)
	}
	for i, want := range []float64{1, 0} {
		if got := drawn[i].exponent(); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s grows with exponent %v, want %v", drawn[i].phase, got, want)
		}
	}
	var out bytes.Buffer
	if err := WritePlot(&out, all, "small", regexp.MustCompile("")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"cold start (1.00)", "restart (0.00)", ">4x<"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q is not in the plot", text)
		}
	}
	var one strings.Builder
	if err := WritePlot(&one, all, "small", regexp.MustCompile("^restart")); err != nil || strings.Contains(one.String(), "cold start") {
		t.Errorf("one phase: %v, %s", err, one.String())
	}
	for dec := xml.NewDecoder(&out); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := WritePlot(&out, all, "large", regexp.MustCompile("")); err == nil {
		t.Error("a size that was not measured is plotted")
	}
}
