package place

import (
	"slices"
	"time"
)

// unheardPercent of the nodes, and more than unheardFew, have to be unheard of before it is
// taken for an outage: Kubernetes itself goes by these numbers when it stops to evict pods
// (--unhealthy-zone-threshold of kube-controller-manager).
const (
	unheardPercent = 55
	unheardFew     = 2
)

// unheardGrace is how long a node counts as ready when Kubernetes has lost sight of it: it says
// so of one node after the other, and the first of all of them are not to give up what they
// have. One that is dead is known to be by its probes, and long before.
const unheardGrace = 5 * time.Second

// Unheard remembers since when nothing is heard of nodes. The zero value is ready to use, by
// one goroutine at a time.
type Unheard struct{ since map[string]time.Time }

// Ready is ReadyInOutage with that grace. It returns after what time it may have another
// answer, too; 0 if only other nodes would change it.
func (u *Unheard) Ready(now time.Time, nodes []Node) ([]Node, time.Duration) {
	since, ready, rest := map[string]time.Time{}, ReadyInOutage(nodes), time.Duration(0)
	for i, n := range nodes {
		if !n.ReadyUnknown {
			continue
		}
		began, known := u.since[n.Name]
		if !known {
			began = now
		}
		since[n.Name] = began
		if left := unheardGrace - now.Sub(began); left > 0 && !ready[i].Ready {
			if rest == 0 {
				ready, rest = slices.Clone(ready), left
			}
			ready[i].Ready, rest = true, min(rest, left)
		}
	}
	u.since = since
	return ready, rest
}

// ReadyInOutage returns nodes as they are to be placed on where they are probed. Kubernetes
// says Unknown of a node whose kubelet it has not heard for a while. If that is so of most
// nodes at once, or of all, it is more likely that Kubernetes was away, as after an outage of
// the API server: then they count as ready, and reachability alone decides. What a kubelet
// itself says of its node is always believed.
func ReadyInOutage(nodes []Node) []Node {
	unheard := 0
	for _, n := range nodes {
		if n.ReadyUnknown {
			unheard++
		}
	}
	most := unheard > unheardFew && unheard*100 >= len(nodes)*unheardPercent
	if unheard == 0 || !most && unheard < len(nodes) {
		return nodes
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Ready = n.Ready || n.ReadyUnknown
	}
	return nodes
}
