package explain

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// NotProbed is the state of a node that the master does not probe: it has no subnet of pods
// yet, or probing is turned off.
const NotProbed reachability.State = "NotProbed"

// NodeReachability is what the probes of the master say of a node.
type NodeReachability struct {
	State reachability.State `json:"state"`
	// Since is when the master noticed the state; absent where the node is not probed.
	Since *metav1.Time `json:"since,omitempty"`
	// LatencyMilliseconds is the time within which the node answers; absent where it does not.
	LatencyMilliseconds int64 `json:"latencyMilliseconds,omitempty"`
}

// reaches is the planner's name of each state.
var reaches = map[reachability.State]place.Reach{
	reachability.Reachable: place.Alive, reachability.Unreachable: place.Dead, reachability.Unknown: place.Unknown,
}

// probed reports whether what the master has published of its probes is how things are.
func (c *Cluster) probed() bool {
	return c.snap.Reachability != nil && !c.snap.Reachability.Stale(c.snap.Taken) && !c.masterSilent()
}

// reach is what the planners are told of a node. Where the probes are not known, one that is
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

// reachability returns what was published of a node; nil where nothing is known.
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

// presumed is what is taken for granted of reachability.
func (c *Cluster) presumed() []string {
	switch {
	case c.probed():
		return nil
	case c.snap.Reachability != nil:
		return []string{"reachability: what the master has published is too old to rely on; a node that is Ready counts as reachable"}
	}
	return []string{"reachability: what the master's probes say is not known; a node that is Ready counts as reachable"}
}

// unreachableProblem is that of a node that Kubernetes takes to be well.
func (c *Cluster) unreachableProblem(s NodeState) []Problem {
	if !s.Ready || s.Reachability == nil || s.Reachability.State != reachability.Unreachable || !c.probed() {
		return nil
	}
	return []Problem{{Object: "Node/" + s.Node, Reason: ReasonNodeUnreachable, Since: s.Reachability.Since,
		Message: "the master's probes get no answer: no egress address stays there or goes there"}}
}

// cell is the text of a table.
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

// text is a sentence without a full stop; empty where nothing is known.
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
