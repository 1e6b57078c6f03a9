package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Reach is what is known of a node's reachability.
type Reach uint8

// The states of reachability. Unknown is that of a node not probed long enough:
// it keeps what it has and gets nothing new.
const (
	Unknown Reach = iota
	Alive
	Dead
)

// String returns "unknown", "alive" or "dead".
func (r Reach) String() string {
	return [...]string{"unknown", "alive", "dead"}[r]
}

// Reachability tells which nodes can be reached.
type Reachability interface {
	Reach(node string) Reach
	// Probed is closed once something is known of the nodes that there are first, or they
	// have had time enough to answer.
	Probed() <-chan struct{}
	// Subscribe has a function called for each change of a node's state.
	Subscribe(func(node string))
}

// Node is a candidate.
type Node struct {
	topology.Node
	Reach Reach
	// NotAcknowledging: it can be reached, but has not acknowledged in time what it was given.
	NotAcknowledging bool
	// Stuck: its ovn-controller does not put in force what is in the database.
	Stuck bool
}

// Reason says why a node may not have a claim. The empty Reason is no objection.
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

// Reasons returns those that Assign itself gives.
func Reasons() []Reason {
	return []Reason{NotReady, Unreachable, NotProbedYet, GroupOnNode, NodeGone, NotAcknowledging, Stuck}
}

// Claim asks for a node.
type Claim struct {
	// Key is unique, e.g. "ns/svc".
	Key string
	// Allow returns why a node cannot serve the claim (labels, addresses,
	// endpoints); nil allows every node.
	Allow func(Node) Reason
	// Avoid returns why a node gets nothing new and gives up what it has as soon
	// as another can take it; until then it keeps it. nil avoids none. One that does
	// not acknowledge, or whose ovn-controller is stuck, gets what no other may have:
	// it may be merely slow.
	Avoid func(Node) Reason
	// Group keeps claims apart: those of one group never share a node. Empty: none.
	Group string
	// Prefer is the node that serves the claim now; empty: none.
	Prefer string
}

// Result is the answer to one claim.
type Result struct {
	Node string // empty: no node may have it
	// Rejected are the nodes by what speaks against them, where Node is empty.
	Rejected map[Reason]Rejection
	// Left is why the preferred node was not kept; empty where it was, and where
	// there was none.
	Left Reason
}

// Rejection says which nodes a reason speaks against.
type Rejection struct {
	Count int
	First []string // the first of them by name, at most listed
}

// listed is how many nodes are named for each reason: the line ends up in an Event.
const listed = 5

// add adds a node, which come in the order of their names.
func (r Rejection) add(node string) Rejection {
	if r.Count++; len(r.First) < listed {
		r.First = append(r.First, node)
	}
	return r
}

// Explain says in a line why there is no node: "no nodes", or each reason with
// its nodes, sorted.
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

// Assign gives each claim a node, or none. Where two claims have one key, the
// first in the order of Group, Prefer counts.
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

// sorted returns the claims in the order of their keys, each key once.
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

// object returns why n may not have c; staying says that c is there already, and
// may stay where it is rather not to be.
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

// keep leaves c where it is, if that is still allowed and nothing speaks for
// another node, and returns why not.
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

// candidate is a claim that has no node, and who may have it.
type candidate struct {
	claim Claim
	may   []uint64 // a bit for each of names
	count int
}

// place finds nodes for claims that have none. Those with the fewest candidates
// go first, so that a choosy claim is not left without by one that had a choice.
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
			best = t.claim.Prefer // rather not there, but nobody else can
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

// lastResort reports whether n may have c where no better node can.
func (a *assignment) lastResort(n *Node, c Claim) bool {
	why := a.object(n, c, false)
	return (why == NotAcknowledging || why == Stuck) && n.Reach == Alive
}

// rejected returns what speaks against each node for a claim that none can have.
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

// before reports whether a key rather goes to x than to y: to the less loaded; among
// equals to the higher rendezvous hash of key and node, which spreads the keys and does
// not change where another node comes or goes.
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
	// FNV's high bits hardly depend on the last bytes: mix before comparing.
	v ^= v >> 33
	v *= 0xff51afd7ed558ccd
	v ^= v >> 33
	return v
}
