package reachability

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const ms = time.Millisecond

func alive(latency time.Duration) Fact { return Fact{place.Alive, latency} }

func (r Report) text() string {
	n := r.Nodes["n"]
	return fmt.Sprintf("%s %s %d %s", r.AsOf.Sub(start), n.State, n.LatencyMilliseconds, n.Since.Sub(start))
}

// TestPlan follows one node.
func TestPlan(t *testing.T) {
	type step struct {
		at   time.Duration
		fact Fact
		want string // "": nothing is written
	}
	dead, unknown := Fact{Reach: place.Dead}, Fact{}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"the first report", []step{{0, alive(ms / 5), "0s Reachable 1 0s"}}},
		{"nothing changes", []step{{0, alive(ms), "0s Reachable 1 0s"}, {30 * time.Second, alive(ms), ""}}},
		{"not within the pause", []step{{0, alive(ms), "0s Reachable 1 0s"}, {9 * time.Second, alive(20 * ms), ""}, {10 * time.Second, alive(20 * ms), "10s Reachable 20 0s"}}},
		{"states have a shorter pause", []step{{0, alive(ms), "0s Reachable 1 0s"}, {time.Second, dead, ""}, {2 * time.Second, dead, "2s Unreachable 0 2s"},
			{3 * time.Second, alive(ms), ""}, {4 * time.Second, alive(ms), "4s Reachable 1 4s"}}},
		{"back before the pause is over", []step{{0, alive(ms), "0s Reachable 1 0s"}, {time.Second, dead, ""}, {10 * time.Second, alive(ms), ""}}},
		{"at once after a pause", []step{{0, alive(ms), "0s Reachable 1 0s"}, {59 * time.Second, dead, "59s Unreachable 0 59s"}}},
		{"refreshed", []step{{0, alive(ms), "0s Reachable 1 0s"}, {299 * time.Second, alive(ms), ""}, {300 * time.Second, alive(ms), "5m0s Reachable 1 0s"},
			{599 * time.Second, alive(ms), ""}}},
		{"exceeded", []step{{0, alive(ms), "0s Reachable 1 0s"}, {20 * time.Second, alive(ms + 1), "20s Reachable 2 0s"}}},
		{"far exceeded", []step{{0, alive(ms), "0s Reachable 1 0s"}, {20 * time.Second, alive(1234 * ms), "20s Reachable 2000 0s"}}},
		{"a little less", []step{{0, alive(4 * ms), "0s Reachable 5 0s"}, {20 * time.Second, alive(7 * ms / 4), ""}}},
		{"much less", []step{{0, alive(4 * ms), "0s Reachable 5 0s"}, {20 * time.Second, alive(5 * ms / 3), "20s Reachable 2 0s"}}},
		{"back to another latency", []step{{0, alive(40 * ms), "0s Reachable 50 0s"}, {20 * time.Second, dead, "20s Unreachable 0 20s"},
			{40 * time.Second, alive(20 * ms), "40s Reachable 20 40s"}}},
		{"no answer yet", []step{{0, unknown, "0s Unknown 0 0s"}, {10 * time.Second, unknown, ""}, {20 * time.Second, alive(ms), "20s Reachable 1 20s"}}},
		{"dead nodes have no latency", []step{{0, Fact{place.Dead, ms}, "0s Unreachable 0 0s"}}},
		{"a clock that was ahead", []step{{time.Hour, alive(ms), "1h0m0s Reachable 1 1h0m0s"}, {0, alive(ms), "0s Reachable 1 1h0m0s"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Report
			for _, s := range tc.steps {
				next, write := Plan(r, map[string]Fact{"n": s.fact}, start.Add(s.at))
				if write != (s.want != "") || write && next.text() != s.want {
					t.Errorf("after %s: written %v, %s; want %q", s.at, write, next.text(), s.want)
				}
				if !write && !maps.EqualFunc(next.Nodes, r.Nodes, Node.equal) {
					t.Errorf("after %s: %+v, which is not written, was %+v", s.at, next, r)
				}
				text, err := next.Encode()
				if err != nil {
					t.Fatal(err)
				}
				if r, err = Decode(text); err != nil { // what another master reads
					t.Fatal(err)
				}
			}
		})
	}
}

// TestPlanNodes: nodes that are added and removed change the report.
func TestPlanNodes(t *testing.T) {
	first, _ := Plan(Report{}, map[string]Fact{"a": alive(ms), "b": alive(ms)}, start)
	if next, write := Plan(first, map[string]Fact{"a": alive(ms)}, start.Add(Pause)); !write || len(next.Nodes) != 1 {
		t.Errorf("b went: written %v, %+v", write, next)
	}
	next, write := Plan(first, map[string]Fact{"a": alive(ms), "b": alive(ms), "c": alive(ms)}, start.Add(Pause))
	if !write || len(next.Nodes) != 3 || !next.Nodes["a"].Since.Equal(start) || !next.Nodes["c"].Since.Equal(start.Add(Pause)) {
		t.Errorf("c came: written %v, %+v", write, next)
	}
	if none, write := Plan(first, nil, start.Add(Pause)); !write || len(none.Nodes) != 0 {
		t.Errorf("all went: written %v, %+v", write, none)
	}
}

func TestStale(t *testing.T) {
	r := Report{AsOf: start}
	if r.Stale(start.Add(2*Refresh)) || !r.Stale(start.Add(2*Refresh+1)) {
		t.Error("stale after another time than two refreshes")
	}
}

// TestSamples: one slow answer does not affect the latency, and answers before a silence do not
// count.
func TestSamples(t *testing.T) {
	var s Samples
	add := func(f Fact) time.Duration { return s.Add(map[string]Fact{"n": f})["n"].Latency }
	for i := range samples {
		took := ms
		if i%2 == 1 && i < samples-1 {
			took = time.Second
		}
		add(alive(took))
	}
	if got := add(alive(ms)); got != ms {
		t.Errorf("the median is %s", got)
	}
	for range samples/2 + 1 {
		add(alive(20 * ms))
	}
	if got := add(alive(20 * ms)); got != 20*ms {
		t.Errorf("the median is %s after most answers took longer", got)
	}
	if got := s.Add(map[string]Fact{"n": {place.Dead, ms}})["n"]; got != (Fact{Reach: place.Dead}) {
		t.Errorf("of a dead node: %+v", got)
	}
	if got := add(alive(3 * ms)); got != 3*ms {
		t.Errorf("after a silence: %s", got)
	}
	s.Add(nil)
	if len(s.nodes) != 0 {
		t.Errorf("kept of nodes that are gone: %v", s.nodes)
	}
}

// TestVolume: on 120 nodes whose answers take about as long as a step, with one answer in a hundred
// taking a hundred times as long, there are hardly more writes than refreshes.
func TestVolume(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r Report
	var s Samples
	writes, bytes := 0, 0
	for now := start; now.Before(start.Add(time.Hour)); now = now.Add(Pause) {
		latest := map[string]Fact{}
		for i := range 120 {
			took := time.Duration((0.7 + 0.6*random.Float64()) * float64(ms))
			if random.IntN(100) == 0 {
				took *= 100
			}
			latest[fmt.Sprintf("worker-%d.cluster.example", i)] = alive(took)
		}
		next, write := Plan(r, s.Add(latest), now)
		if !write {
			continue
		}
		text, err := next.Encode()
		if err != nil {
			t.Fatal(err)
		}
		r, writes, bytes = next, writes+1, max(bytes, len(text))
	}
	t.Logf("%d writes in an hour, %d bytes at most", writes, bytes)
	if refreshes := int(time.Hour / Refresh); writes > 4*refreshes {
		t.Errorf("%d writes in an hour, of which %d are due", writes, refreshes)
	}
	if bytes > 16<<10 {
		t.Errorf("%d bytes", bytes)
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range []string{"", "{}", `{"apiVersion":"egress.ovnkube/v1","asOf":"2026-03-01T12:00:00Z","nodes":{"n":{"state":"Reachable","since":"2026-03-01T12:00:00Z","latencyMilliseconds":2}}}`,
		`{"apiVersion":"egress.ovnkube/v1","nodes":{"n":{"state":"Well"}}}`, `{"apiVersion":"egress.ovnkube/v1","nodes":{"n":{"state":"Reachable","latencyMilliseconds":-1}}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Decode(text)
		if err != nil {
			return
		}
		next, _ := Plan(r, map[string]Fact{"n": alive(ms)}, start)
		again, err := next.Encode()
		if err != nil {
			return // a year that RFC 3339 does not have
		}
		if _, err := Decode(again); err != nil {
			t.Errorf("%s is encoded as %s: %v", text, again, err)
		}
	})
}
