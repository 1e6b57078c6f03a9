package reachability

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

const (
	// ConfigMap is the name of the ConfigMap with the report, in the namespace of ovnkube.
	ConfigMap = "ovnkube-reachability"
	// Key is the key of the report in the ConfigMap.
	Key = "reachability.json"
	// APIVersion is the version of the schema. Fields may be added; existing ones keep their names
	// and meanings.
	APIVersion = "egress.ovnkube/v1"

	// Pause is the minimum time between two writes if only latencies have changed.
	Pause = 10 * time.Second
	// StatePause is the minimum time between two writes.
	StatePause = 2 * time.Second
	// Refresh is the maximum time between two writes.
	Refresh = 5 * time.Minute
)

// State is the state of a node.
type State string

// The states.
const (
	// Reachable: it answers.
	Reachable State = "Reachable"
	// Unreachable: it has been silent for so long that it is considered dead.
	Unreachable State = "Unreachable"
	// Unknown: it has neither answered yet nor been silent for long enough.
	Unknown State = "Unknown"
)

// states maps the states of the tracker.
var states = map[place.Reach]State{place.Alive: Reachable, place.Dead: Unreachable, place.Unknown: Unknown}

// Report is what the leading master publishes about the nodes that it probes.
type Report struct {
	APIVersion string `json:"apiVersion"`
	// AsOf is when it was written.
	AsOf time.Time `json:"asOf"`
	// Nodes are the probed nodes, by name.
	Nodes map[string]Node `json:"nodes"`
}

// Node is what is published about one node.
type Node struct {
	State State `json:"state"`
	// Since is when the change to this state was noticed.
	Since time.Time `json:"since"`
	// LatencyMilliseconds is the time within which it answers; absent if it does not answer.
	LatencyMilliseconds int64 `json:"latencyMilliseconds,omitempty"`
}

// Fact is what the probes say about a node. Latency is 0 if it is not known.
type Fact struct {
	Reach   place.Reach
	Latency time.Duration
}

// Encode returns a report in its published form.
func (r Report) Encode() (string, error) {
	r.APIVersion = APIVersion
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode the reachability of nodes: %w", err)
	}
	return string(text), nil
}

// Decode decodes a report that Encode has encoded.
func Decode(text string) (Report, error) {
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, fmt.Errorf("decode the reachability of nodes: %w", err)
	}
	if r.APIVersion != APIVersion {
		return Report{}, fmt.Errorf("decode the reachability of nodes: apiVersion %q is not %s", r.APIVersion, APIVersion)
	}
	for name, n := range r.Nodes {
		if !slices.Contains([]State{Reachable, Unreachable, Unknown}, n.State) || n.LatencyMilliseconds < 0 {
			return Report{}, fmt.Errorf("decode the reachability of nodes: node %q: state %q, latency %d ms", name, n.State, n.LatencyMilliseconds)
		}
	}
	return r, nil
}

// Stale reports whether a report is no longer kept up to date.
func (r Report) Stale(now time.Time) bool { return now.Sub(r.AsOf) > 2*Refresh }

// Plan returns the report to publish after a previous one, zero if there is none, or false if the
// previous one should stay.
func Plan(was Report, facts map[string]Fact, now time.Time) (Report, bool) {
	age := now.Sub(was.AsOf)
	// A report from the future was written by a master with a different clock.
	due := age < 0 || age >= Refresh
	if !due && age < Pause && (age < StatePause || !changed(was, facts)) {
		return was, false
	}
	next := Report{APIVersion: APIVersion, AsOf: now.UTC().Truncate(time.Second), Nodes: make(map[string]Node, len(facts))}
	for name, f := range facts {
		before := was.Nodes[name]
		n := Node{State: states[f.Reach], Since: next.AsOf}
		if n.State == before.State {
			n.Since = before.Since
		}
		if n.State == Reachable && f.Latency > 0 {
			n.LatencyMilliseconds = within(f.Latency, before.LatencyMilliseconds)
		}
		next.Nodes[name] = n
	}
	if !due && maps.EqualFunc(was.Nodes, next.Nodes, Node.equal) {
		return was, false
	}
	return next, true
}

// changed reports whether a node has another state than in a report.
func changed(was Report, facts map[string]Fact) bool {
	for name, f := range facts {
		if was.Nodes[name].State != states[f.Reach] {
			return true
		}
	}
	return len(facts) != len(was.Nodes)
}

func (n Node) equal(o Node) bool {
	return n.State == o.State && n.LatencyMilliseconds == o.LatencyMilliseconds && n.Since.Equal(o.Since)
}

// lower is how many times too high a bound has to be before it is lowered, so that a latency that
// varies around a step does not change the bound each time.
const lower = 3

// within returns an upper bound of a latency, in milliseconds: the previous one if it is good
// enough, else the next one of 1, 2, 5, 10, 20, 50 and so on.
func within(latency time.Duration, before int64) int64 {
	if bound := time.Duration(before) * time.Millisecond; latency <= bound && bound < lower*latency {
		return before
	}
	for decade := int64(1); ; decade *= 10 {
		for _, step := range []int64{1, 2, 5} {
			if latency <= time.Duration(step*decade)*time.Millisecond {
				return step * decade
			}
		}
	}
}
