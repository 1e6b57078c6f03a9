package place

import (
	"slices"
	"time"
)

// outagePercent of the nodes, and more than outageMin, must have stopped reporting before
// this counts as an outage. Kubernetes itself uses these numbers when it stops evicting
// pods (--unhealthy-zone-threshold of kube-controller-manager).
const (
	outagePercent = 55
	outageMin     = 2
)

// unknownGrace is how long a node counts as ready after its Ready condition became Unknown: in
// an outage Kubernetes marks one node after another, and the first ones should not lose what
// they have. A dead node is detected by its probes long before that.
const unknownGrace = 5 * time.Second

// recoveryPeriod is how long a node that is ready again still counts as one that had stopped
// reporting: after an outage kubelets come back one by one, each at its next report. They report
// every ten seconds, and reports to an API server that has just started often fail.
const recoveryPeriod = time.Minute

// Readiness remembers since when nodes have not reported. The zero value is ready to use, by
// one goroutine at a time.
type Readiness struct{ since map[string]time.Time }

// Ready is ReadyInOutage with unknownGrace. It also returns after what time the result may
// change; 0 if only other nodes would change it.
func (r *Readiness) Ready(now time.Time, nodes []Node) ([]Node, time.Duration) {
	since := map[string]time.Time{}
	ready, rest := ReadyInOutage(now, nodes)
	copied := false
	for i, n := range nodes {
		if !n.ReadyUnknown {
			continue
		}
		began, known := r.since[n.Name]
		if !known {
			began = now
		}
		since[n.Name] = began
		if left := unknownGrace - now.Sub(began); left > 0 && !ready[i].Ready {
			if !copied {
				ready, copied = slices.Clone(ready), true
			}
			ready[i].Ready, rest = true, sooner(rest, left)
		}
	}
	r.since = since
	return ready, rest
}

// ReadyInOutage returns the nodes with the readiness to use for placement if nodes are probed.
// Kubernetes sets the Ready condition to Unknown if a kubelet has not reported for a while. If
// that affects most or all nodes at once, the more likely reason is that Kubernetes itself was
// unavailable, as after an outage of the API server: these nodes then count as ready, and only
// reachability decides, until all kubelets have had time to report. What a kubelet itself reports
// about its node always counts. ReadyInOutage also returns after what time the result may change;
// 0 if only other nodes would change it.
func ReadyInOutage(now time.Time, nodes []Node) ([]Node, time.Duration) {
	unknown, back, rest := 0, 0, time.Duration(0)
	for _, n := range nodes {
		if n.ReadyUnknown {
			unknown++
		} else if left := recoveryPeriod - now.Sub(n.ReadySince); n.Ready && left > 0 && left <= 2*recoveryPeriod { // clocks differ
			back, rest = back+1, sooner(rest, left)
		}
	}
	lost := unknown + back
	most := lost > outageMin && lost*100 >= len(nodes)*outagePercent
	if unknown == 0 || !most && lost < len(nodes) {
		return nodes, 0
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Ready = n.Ready || n.ReadyUnknown
	}
	return nodes, rest
}

// sooner returns the shorter of two waits; 0 means no wait.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
