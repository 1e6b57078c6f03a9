package reachability

import (
	"slices"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// samples is of how many samples a latency is the median: one answer that took long says
// nothing.
const samples = 9

// Samples keep the latest latencies of nodes.
type Samples struct {
	nodes map[string][]time.Duration // the latest last
}

// Add takes samples of all nodes that are probed, and returns what they say together with
// those before. What a node answered before it fell silent is forgotten.
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
