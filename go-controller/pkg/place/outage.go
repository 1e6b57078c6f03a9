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

// unheardReturn is how long after a node is ready again it is still taken for one of those that
// Kubernetes had lost sight of: kubelets come back one by one, each when it happens to report,
// which it does every ten seconds, and more often fails to at an API server that has just started.
const unheardReturn = time.Minute

// Unheard remembers since when nothing is heard of nodes. The zero value is ready to use, by
// one goroutine at a time.
type Unheard struct{ since map[string]time.Time }

// Ready is ReadyInOutage with that grace. It returns after what time it may have another
// answer, too; 0 if only other nodes would change it.
func (u *Unheard) Ready(now time.Time, nodes []Node) ([]Node, time.Duration) {
	since := map[string]time.Time{}
	ready, rest := ReadyInOutage(now, nodes)
	copied := false
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
			if !copied {
				ready, copied = slices.Clone(ready), true
			}
			ready[i].Ready, rest = true, sooner(rest, left)
		}
	}
	u.since = since
	return ready, rest
}

// ReadyInOutage returns nodes as they are to be placed on where they are probed. Kubernetes
// says Unknown of a node whose kubelet it has not heard for a while. If that is so of most
// nodes at once, or of all, it is more likely that Kubernetes was away, as after an outage of
// the API server: then they count as ready, and reachability alone decides, until all kubelets
// have had time to report. What a kubelet itself says of its node is always believed. It
// returns after what time it may have another answer, too; 0 if only other nodes would change it.
func ReadyInOutage(now time.Time, nodes []Node) ([]Node, time.Duration) {
	unheard, back, rest := 0, 0, time.Duration(0)
	for _, n := range nodes {
		if n.ReadyUnknown {
			unheard++
		} else if left := unheardReturn - now.Sub(n.ReadySince); n.Ready && left > 0 && left <= 2*unheardReturn { // clocks differ
			back, rest = back+1, sooner(rest, left)
		}
	}
	lost := unheard + back
	most := lost > unheardFew && lost*100 >= len(nodes)*unheardPercent
	if unheard == 0 || !most && lost < len(nodes) {
		return nodes, 0
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Ready = n.Ready || n.ReadyUnknown
	}
	return nodes, rest
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
