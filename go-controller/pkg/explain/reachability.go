package explain

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// NotProbed is the state of a node that the master does not probe: it has no pod subnet
// yet, or probing is disabled.
const NotProbed reachability.State = "NotProbed"

// NodeReachability is the result of the master's probes of a node.
type NodeReachability struct {
	State reachability.State `json:"state"`
	// Since is when the master noticed the state; absent where the node is not probed.
	Since *metav1.Time `json:"since,omitempty"`
	// LatencyMilliseconds is the response time of the node; absent if it does not answer.
	LatencyMilliseconds int64 `json:"latencyMilliseconds,omitempty"`
}

// reaches maps each state to the planner's value.
var reaches = map[reachability.State]place.Reach{
	reachability.Reachable: place.Alive, reachability.Unreachable: place.Dead, reachability.Unknown: place.Unknown,
}

// probed reports whether the published probe results are current.
func (c *Cluster) probed() bool {
	return c.snap.Reachability != nil && !c.snap.Reachability.Stale(c.snap.Taken) && !c.masterAbsent()
}

// reach returns the planners' input about a node. If the probe results are unknown, a node that is
// Ready counts as reachable.
func (c *Cluster) reach(node string) place.Reach {
	if slices.Contains(c.snap.Lost, node) {
		return place.Dead
	}
	if c.probed() {
		if n, ok := c.snap.Reachability.Nodes[node]; ok {
			return reaches[n.State]
		}
	}
	return place.Alive
}

// reachability returns the published result for a node, or nil if nothing is known.
func (c *Cluster) reachability(node string) *NodeReachability {
	if c.snap.Reachability == nil {
		return nil
	}
	n, ok := c.snap.Reachability.Nodes[node]
	if !ok {
		return &NodeReachability{State: NotProbed}
	}
	at := metav1.NewTime(n.Since)
	return &NodeReachability{State: n.State, Since: &at, LatencyMilliseconds: n.LatencyMilliseconds}
}

// reachabilityNotes returns the assumptions about reachability.
func (c *Cluster) reachabilityNotes() []string {
	switch {
	case c.probed():
		return nil
	case c.snap.Reachability != nil:
		return []string{"reachability: what the master has published is too old to rely on; a node that is Ready counts as reachable"}
	}
	return []string{"reachability: what the master's probes say is not known; a node that is Ready counts as reachable"}
}

// unreachableProblem returns the problem of an unreachable node that Kubernetes considers Ready.
func (c *Cluster) unreachableProblem(s NodeState) []Problem {
	if !s.Ready || s.Reachability == nil || s.Reachability.State != reachability.Unreachable || !c.probed() {
		return nil
	}
	return []Problem{{Object: "Node/" + s.Node, Reason: ReasonNodeUnreachable, Since: s.Reachability.Since,
		Message: "the master's probes get no answer: no egress address stays there or goes there"}}
}

// cell formats the result as a table cell.
func (r *NodeReachability) cell(now time.Time) string {
	switch {
	case r == nil:
		return "not known"
	case r.State == NotProbed:
		return "not probed"
	case r.State == reachability.Unknown:
		return "no answer yet"
	case r.State == reachability.Unreachable:
		return fmt.Sprintf("no (%s)", now.Sub(r.Since.Time).Round(time.Second))
	case r.LatencyMilliseconds == 0:
		return "yes"
	}
	return fmt.Sprintf("within %d ms", r.LatencyMilliseconds)
}

// text formats the result as a sentence without a full stop; empty if nothing is known.
func (r *NodeReachability) text(now time.Time) string {
	switch {
	case r == nil:
		return ""
	case r.State == NotProbed:
		return "the master does not probe it"
	case r.State == reachability.Unknown:
		return "it has not answered the master's probes yet" + since(r.Since, now)
	case r.State == reachability.Unreachable:
		return "it does not answer the master's probes" + since(r.Since, now)
	case r.LatencyMilliseconds == 0:
		return "it answers the master's probes" + since(r.Since, now)
	}
	return fmt.Sprintf("it answers the master's probes within %d ms%s", r.LatencyMilliseconds, since(r.Since, now))
}
