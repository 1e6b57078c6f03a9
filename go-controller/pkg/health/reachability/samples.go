package reachability

import (
	"slices"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// samples is the number of samples whose median is the latency, so that a single slow answer does
// not matter.
const samples = 9

// Samples keeps the latest latencies of nodes.
type Samples struct {
	nodes map[string][]time.Duration // the latest is last
}

// Add adds samples of all probed nodes, and returns what they say together with earlier ones. The
// samples from before a node fell silent are discarded.
func (s *Samples) Add(latest map[string]Fact) map[string]Fact {
	nodes, facts := make(map[string][]time.Duration, len(latest)), make(map[string]Fact, len(latest))
	for name, f := range latest {
		if f.Reach != place.Alive || f.Latency <= 0 {
			facts[name] = Fact{Reach: f.Reach}
			continue
		}
		all := append(s.nodes[name], f.Latency)
		nodes[name] = all[max(0, len(all)-samples):]
		sorted := slices.Sorted(slices.Values(nodes[name]))
		facts[name] = Fact{Reach: f.Reach, Latency: sorted[len(sorted)/2]}
	}
	s.nodes = nodes
	return facts
}
