package figures

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Variable is the environment variable that names the file of a run; if it is not set, nothing is
// recorded.
const Variable = "E2E_FIGURES"

// Figure is what one test measured.
type Figure struct {
	Name string `json:"name"`
	// Test is the name of the test that measured it.
	Test string `json:"test"`
	Unit string `json:"unit"`
	// Values has a value for each measurement, in order.
	Values []float64 `json:"values"`
	// Promised is what the documentation promises, Factor how many times as much is allowed here.
	Promised float64 `json:"promised"`
	Factor   float64 `json:"factor"`
	// Stall is allowed in addition; see Bound.Stall.
	Stall float64 `json:"stall,omitempty"`
}

// Limit is the largest value allowed.
func (f Figure) Limit() float64 { return f.Promised*f.Factor + f.Stall }

// Worst is the largest value.
func (f Figure) Worst() float64 { return slices.Max(f.Values) }

// Median is the smallest value that at least half of the values do not exceed.
func (f Figure) Median() float64 {
	sorted := slices.Sorted(slices.Values(f.Values))
	return sorted[(len(sorted)-1)/2]
}

// Bound is how long something may take.
type Bound struct {
	// Promised is what the documentation promises, on a machine that is otherwise idle.
	Promised time.Duration
	// Factor is how many times as long it may take on two cores shared by a whole cluster and its
	// tests.
	Factor float64
	// Stall is allowed in addition if the test saw the machine itself stall while it measured, or
	// stopped a process for that long.
	Stall time.Duration
}

// Limit is how long it may take in tests on this machine.
func (b Bound) Limit() time.Duration {
	return time.Duration(float64(b.Promised)*b.Factor*Slowness()) + b.Stall
}

// Slowness is how much slower this machine is than an ordinary one, from $E2E_TIME_FACTOR; at least
// 1.
var Slowness = sync.OnceValue(func() float64 {
	factor, err := strconv.ParseFloat(os.Getenv("E2E_TIME_FACTOR"), 64)
	if err != nil || factor < 1 {
		return 1
	}
	return factor
})

// T is what Record needs of a test.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Record records how long something took each time, and fails the test if any of the times exceeds
// the bound. It also fails the test if nothing was measured.
func Record(t T, name string, b Bound, took ...time.Duration) {
	t.Helper()
	f := Figure{Name: name, Test: t.Name(), Unit: "ms", Promised: milliseconds(b.Promised), Factor: b.Factor * Slowness(), Stall: milliseconds(b.Stall)}
	for _, d := range took {
		f.Values = append(f.Values, milliseconds(d))
	}
	if len(f.Values) == 0 {
		t.Errorf("%s was not measured", name)
		return
	}
	if path := os.Getenv(Variable); path != "" {
		if err := appendTo(path, f); err != nil {
			t.Errorf("keep a figure: %v", err)
		}
	}
	t.Logf("%s: %v ms, promised %g, allowed %g", name, f.Values, f.Promised, f.Limit())
	if f.Worst() > f.Limit() {
		t.Errorf("%s took %g ms, want at most %g, which is %g times what is promised", name, f.Worst(), f.Limit(), f.Factor)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Round(100*time.Microsecond)) / 1e6 }

// appendTo appends a figure as one line: a single write at the end of a file is not interleaved
// with those of other processes.
func appendTo(path string, f Figure) error {
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Read reads the figures of a run.
func Read(r io.Reader) ([]Figure, error) {
	var all []Figure
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var f Figure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(all)+1, err)
		}
		if len(f.Values) == 0 {
			return nil, fmt.Errorf("line %d: %s has no values", len(all)+1, f.Name)
		}
		all = append(all, f)
	}
	return all, lines.Err()
}

// Row is a figure over all tests of one top-level test, which stands for a kind of cluster.
type Row struct {
	Name, Cluster string
	Figure
}

// Rows merges and sorts the figures of a run that have the same name, cluster, unit and bound.
func Rows(all []Figure) []Row {
	var rows []Row
	for _, f := range all {
		cluster, _, _ := strings.Cut(f.Test, "/")
		cluster = strings.TrimPrefix(cluster, "Test")
		i := slices.IndexFunc(rows, func(r Row) bool {
			return r.Name == f.Name && r.Cluster == cluster && r.Unit == f.Unit && r.Promised == f.Promised && r.Factor == f.Factor
		})
		if i < 0 {
			rows = append(rows, Row{Name: f.Name, Cluster: cluster, Figure: f})
			rows[len(rows)-1].Values = slices.Clone(f.Values)
			continue
		}
		rows[i].Values = append(rows[i].Values, f.Values...)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Cluster, b.Cluster))
	})
	return rows
}
