// Package result keeps what a run measured: a file with a JSON object on each line, one
// for each measurement. It prints one run as a table, compares two,
// and plots several of different sizes.
package result

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ovnkube/ovnkube/test/scale/load"
)

// Result is one measurement.
type Result struct {
	Size  load.Size `json:"size"`
	Phase string    `json:"phase"`

	// First, Rows and Done are milliseconds from the cause: until the first and
	// the last change of rows were committed, and until everything requested was reported as
	// done. 0 if there was no such change or report.
	First float64 `json:"firstMs"`
	Rows  float64 `json:"rowsMs"`
	Done  float64 `json:"doneMs"`
	// Kinds, for starts only, are the milliseconds until the last row of a kind was inserted.
	Kinds map[string]float64 `json:"kindsMs,omitempty"`

	// CPU is the CPU time of the master in seconds, without what it uses when
	// idle; for starts including it.
	CPU float64 `json:"cpuSeconds"`
	// Peak is its peak resident memory meanwhile, Settled its resident memory afterwards, in MiB.
	Peak    float64 `json:"peakMiB"`
	Settled float64 `json:"settledMiB"`

	Transactions int   `json:"transactions"`
	Changed      int   `json:"rows"` // rows inserted, changed or deleted
	Sent         int64 `json:"sentBytes"`
	Received     int64 `json:"receivedBytes"`
	// Writes are the master's writes to the API server by kind, without leases, Events and
	// the ConfigMap with the reachability of nodes.
	Writes map[string]int `json:"apiWrites,omitempty"`

	// For a node agent, Changed is the number of changed flows of the external bridge, and
	// First and Rows are the times of these changes. Flows is the number of flows afterwards, SwitchCPU the CPU seconds
	// that ovs-vswitchd used meanwhile, Execs the programs that the agent has started, by
	// name, whose CPU time is included in CPU, and Requests its requests to the API server; Sent and
	// Received are bytes between the two.
	Flows     int            `json:"flows,omitempty"`
	SwitchCPU float64        `json:"switchCPUSeconds,omitempty"`
	Execs     map[string]int `json:"execs,omitempty"`
	Requests  map[string]int `json:"apiRequests,omitempty"`

	// Raw is the time in milliseconds that a client that does nothing else needs to write the RawRows
	// rows that exist at the end; 0 if that was not measured.
	Raw     float64 `json:"rawMs,omitempty"`
	RawRows int     `json:"rawRows,omitempty"`
}

// AllWrites returns the number of writes of all kinds.
func (r Result) AllWrites() int { return sum(r.Writes) }

// AllExecs returns the number of programs that were started.
func (r Result) AllExecs() int { return sum(r.Execs) }

// AllRequests returns the number of requests to the API server.
func (r Result) AllRequests() int { return sum(r.Requests) }

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Append appends a result to a file.
func Append(path string, r Result) error {
	line, err := json.Marshal(r)
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

// Load reads the results in a file.
func Load(path string) ([]Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

// Read reads the results of a run.
func Read(r io.Reader) ([]Result, error) {
	var all []Result
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one Result
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(all)+1, err)
		}
		if one.Phase == "" {
			return nil, fmt.Errorf("line %d has no phase", len(all)+1)
		}
		all = append(all, one)
	}
	return all, lines.Err()
}

// Phase has the results of repeated measurements of one phase and size.
type Phase struct {
	Name string
	Size load.Size
	All  []Result
}

// Phases groups results, in the order in which they were measured.
func Phases(all []Result) []Phase {
	var phases []Phase
	for _, r := range all {
		i := slices.IndexFunc(phases, func(p Phase) bool { return p.Name == r.Phase && p.Size == r.Size })
		if i < 0 {
			i = len(phases)
			phases = append(phases, Phase{Name: r.Phase, Size: r.Size})
		}
		phases[i].All = append(phases[i].All, r)
	}
	return phases
}

// Median returns the smallest value that half of the results do not exceed.
func (p Phase) Median(value func(Result) float64) float64 {
	values := make([]float64, 0, len(p.All))
	for _, r := range p.All {
		values = append(values, value(r))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// column is a value of a result in tables and plots.
type column struct {
	name   string
	value  func(Result) float64
	format string
}

var columns = []column{
	{"first ms", func(r Result) float64 { return r.First }, "%.0f"},
	{"rows ms", func(r Result) float64 { return r.Rows }, "%.0f"},
	{"done ms", func(r Result) float64 { return r.Done }, "%.0f"},
	{"raw ms", func(r Result) float64 { return r.Raw }, "%.0f"},
	{"CPU s", func(r Result) float64 { return r.CPU }, "%.3f"},
	{"switch CPU s", func(r Result) float64 { return r.SwitchCPU }, "%.3f"},
	{"peak MiB", func(r Result) float64 { return r.Peak }, "%.0f"},
	{"settled MiB", func(r Result) float64 { return r.Settled }, "%.0f"},
	{"transactions", func(r Result) float64 { return float64(r.Transactions) }, "%.0f"},
	{"rows", func(r Result) float64 { return float64(r.Changed) }, "%.0f"},
	{"KB sent", func(r Result) float64 { return float64(r.Sent) / 1000 }, "%.0f"},
	{"KB received", func(r Result) float64 { return float64(r.Received) / 1000 }, "%.0f"},
	{"API writes", func(r Result) float64 { return float64(r.AllWrites()) }, "%.0f"},
	{"flows", func(r Result) float64 { return float64(r.Flows) }, "%.0f"},
	{"programs", func(r Result) float64 { return float64(r.AllExecs()) }, "%.0f"},
	{"API requests", func(r Result) float64 { return float64(r.AllRequests()) }, "%.0f"},
}
