package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Reach is the reachability of a node.
type Reach uint8

// The states of reachability. A node that has not been probed long enough is Unknown: it
// keeps its claims and gets no new ones.
const (
	Unknown Reach = iota
	Alive
	Dead
)

// String returns "unknown", "alive" or "dead".
func (r Reach) String() string {
	return [...]string{"unknown", "alive", "dead"}[r]
}

// Reachability provides the reachability of nodes.
type Reachability interface {
	Reach(node string) Reach
	// Probed is closed once the state of the initial nodes is known, or they have had
	// enough time to answer.
	Probed() <-chan struct{}
	// Subscribe registers a function that is called for each change of a node's state.
	Subscribe(func(node string))
}

// Node is a candidate.
type Node struct {
	topology.Node
	Reach Reach
	// NotAcknowledging: the node can be reached, but has not acknowledged its claims in time.
	NotAcknowledging bool
	// Stuck: the node's ovn-controller does not apply changes of the database.
	Stuck bool
}

// Reason is why a node may not have a claim. The empty Reason means no objection.
type Reason string

// The reasons Assign itself gives; a claim's Allow adds its own.
const (
	NotReady         Reason = "not ready"
	Unreachable      Reason = "unreachable"
	NotProbedYet     Reason = "reachability not known yet"
	GroupOnNode      Reason = "serves another of the same group"
	NodeGone         Reason = "no such node"
	NotAcknowledging Reason = "has not acknowledged in time what it was given"
	Stuck            Reason = "has an ovn-controller that does not apply changes"
)

// Reasons returns the reasons that Assign itself gives.
func Reasons() []Reason {
	return []Reason{NotReady, Unreachable, NotProbedYet, GroupOnNode, NodeGone, NotAcknowledging, Stuck}
}

// Claim is a request for a node.
type Claim struct {
	// Key is unique, e.g. "ns/svc".
	Key string
	// Allow returns why a node cannot serve the claim (labels, addresses,
	// endpoints); nil allows every node.
	Allow func(Node) Reason
	// Avoid returns why a node gets no new claims and gives up existing ones as soon as
	// another node can take them; nil avoids no node. A node that is avoided because it
	// does not acknowledge, or because its ovn-controller is stuck, still gets claims that
	// no other node may have: it may just be slow.
	Avoid func(Node) Reason
	// Group separates claims: those of one group never share a node. Empty: no group.
	Group string
	// Prefer is the node that serves the claim now; empty: none.
	Prefer string
}

// Result is the result for one claim.
type Result struct {
	Node string // empty: no node may have it
	// Rejected holds the rejected nodes by reason, if Node is empty.
	Rejected map[Reason]Rejection
	// Left is why the preferred node was not kept; empty if it was, or if there was none.
	Left Reason
}

// Rejection holds the nodes that were rejected for one reason.
type Rejection struct {
	Count int
	First []string // the first of them by name, at most listed
}

// listed is how many nodes are listed for each reason: the text is used in an Event.
const listed = 5

// add adds a node. Nodes are added in the order of their names.
func (r Rejection) add(node string) Rejection {
	if r.Count++; len(r.First) < listed {
		r.First = append(r.First, node)
	}
	return r
}

// Explain returns, in one line, why there is no node: "no nodes", or each reason with its
// nodes, sorted.
func (r Result) Explain() string {
	if len(r.Rejected) == 0 {
		return "no nodes"
	}
	parts := make([]string, 0, len(r.Rejected))
	for why, nodes := range r.Rejected {
		names := strings.Join(nodes.First, ", ")
		if nodes.Count > len(nodes.First) {
			names += ", ..."
		}
		parts = append(parts, names+": "+string(why))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// Assign assigns each claim a node, or none. If two claims have the same key, the first in
// the order of Group, Prefer counts.
func Assign(nodes []Node, claims []Claim) map[string]Result {
	a := assignment{
		nodes:  map[string]*Node{},
		load:   map[string]int{},
		groups: map[groupNode]bool{},
		left:   map[string]Reason{},
		result: make(map[string]Result, len(claims)),
	}
	for i := range nodes {
		a.nodes[nodes[i].Name] = &nodes[i]
	}
	for name := range a.nodes {
		a.names = append(a.names, name)
	}
	slices.Sort(a.names)

	var open []Claim
	for _, c := range sorted(claims) {
		why := a.keep(c)
		if why == "" {
			continue
		}
		open = append(open, c)
		if c.Prefer != "" {
			a.left[c.Key] = why
		}
	}
	a.place(open)
	return a.result
}

// sorted returns the claims sorted by key, each key once.
func sorted(claims []Claim) []Claim {
	s := slices.Clone(claims)
	slices.SortFunc(s, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Prefer, b.Prefer))
	})
	return slices.CompactFunc(s, func(a, b Claim) bool { return a.Key == b.Key })
}

type groupNode struct{ group, node string }

type assignment struct {
	nodes  map[string]*Node
	names  []string // sorted
	load   map[string]int
	groups map[groupNode]bool
	left   map[string]Reason
	result map[string]Result
}

// object returns why n may not have c. With staying, c is already on n, so that reasons to
// avoid n do not count.
func (a *assignment) object(n *Node, c Claim, staying bool) Reason {
	switch {
	case !n.Ready:
		return NotReady
	case n.Reach == Dead:
		return Unreachable
	}
	if c.Allow != nil {
		if why := c.Allow(*n); why != "" {
			return why
		}
	}
	if staying {
		return ""
	}
	if why := c.avoids(n); why != "" {
		return why
	}
	if n.Reach == Unknown {
		return NotProbedYet
	}
	return ""
}

func (c Claim) avoids(n *Node) Reason {
	if c.Avoid == nil {
		return ""
	}
	return c.Avoid(*n)
}

func (a *assignment) give(c Claim, node string) {
	a.result[c.Key] = Result{Node: node, Left: a.left[c.Key]}
	a.load[node]++
	if c.Group != "" {
		a.groups[groupNode{c.Group, node}] = true
	}
}

// keep leaves c on its node if that is still allowed and not to be avoided; otherwise it
// returns why not.
func (a *assignment) keep(c Claim) Reason {
	if why := a.mayStay(c); why != "" {
		return why
	}
	if why := c.avoids(a.nodes[c.Prefer]); why != "" {
		return why
	}
	a.give(c, c.Prefer)
	return ""
}

// mayStay returns why c may not stay where it is.
func (a *assignment) mayStay(c Claim) Reason {
	n, ok := a.nodes[c.Prefer]
	if !ok {
		return NodeGone
	}
	if a.groups[groupNode{c.Group, n.Name}] {
		return GroupOnNode
	}
	return a.object(n, c, true)
}

// candidate is a claim without a node, and the nodes that may have it.
type candidate struct {
	claim Claim
	may   []uint64 // one bit for each of names
	count int
}

// place finds nodes for claims that have none. Claims with the fewest candidates go first,
// so that no claim loses its only candidate to a claim that had a choice.
func (a *assignment) place(claims []Claim) {
	todo := make([]candidate, 0, len(claims))
	for _, c := range claims {
		t := candidate{claim: c, may: make([]uint64, (len(a.names)+63)/64)}
		for i, name := range a.names {
			if a.object(a.nodes[name], c, false) == "" {
				t.may[i/64] |= 1 << (i % 64)
				t.count++
			}
		}
		todo = append(todo, t)
	}
	slices.SortStableFunc(todo, func(x, y candidate) int { return cmp.Compare(x.count, y.count) })

	for _, t := range todo {
		best := a.best(t.claim, func(i int) bool { return t.may[i/64]&(1<<(i%64)) != 0 })
		if best == "" && a.mayStay(t.claim) == "" {
			delete(a.left, t.claim.Key)
			best = t.claim.Prefer // to be avoided, but no other node can
		}
		if best == "" {
			best = a.best(t.claim, func(i int) bool { return a.lastResort(a.nodes[a.names[i]], t.claim) })
		}
		if best == "" {
			a.result[t.claim.Key] = Result{Rejected: a.rejected(t.claim), Left: a.left[t.claim.Key]}
			continue
		}
		a.give(t.claim, best)
	}
}

// best returns the node for c among those of names that may have it; empty for none.
func (a *assignment) best(c Claim, may func(i int) bool) string {
	best, hash := "", uint64(0)
	for i, name := range a.names {
		if !may(i) || a.groups[groupNode{c.Group, name}] {
			continue
		}
		if h := rendezvous(c.Key, name); best == "" || a.before(name, h, best, hash) {
			best, hash = name, h
		}
	}
	return best
}

// lastResort reports whether n may have c if no better node can.
func (a *assignment) lastResort(n *Node, c Claim) bool {
	why := a.object(n, c, false)
	return (why == NotAcknowledging || why == Stuck) && n.Reach == Alive
}

// rejected returns why each node was rejected for a claim that none can have.
func (a *assignment) rejected(c Claim) map[Reason]Rejection {
	rejected := map[Reason]Rejection{}
	for _, name := range a.names {
		why := a.object(a.nodes[name], c, false)
		if why == "" {
			why = GroupOnNode
		}
		rejected[why] = rejected[why].add(name)
	}
	return rejected
}

// before reports whether x is preferred to y: the less loaded node is, and among equally
// loaded ones that with the higher rendezvous hash of key and node, which spreads the keys
// and does not change when another node is added or removed.
func (a *assignment) before(x string, hx uint64, y string, hy uint64) bool {
	if a.load[x] != a.load[y] {
		return a.load[x] < a.load[y]
	}
	if hx != hy {
		return hx > hy
	}
	return x < y
}

func rendezvous(key, node string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // of FNV-1a
	v := uint64(offset)
	for i := range len(key) {
		v = (v ^ uint64(key[i])) * prime
	}
	v *= prime // for a zero byte
	for i := range len(node) {
		v = (v ^ uint64(node[i])) * prime
	}
	// The high bits of FNV hardly depend on the last bytes: mix before comparing.
	v ^= v >> 33
	v *= 0xff51afd7ed558ccd
	v ^= v >> 33
	return v
}
