// Package chaos draws random faults: what fails, where and for how long. The same seed always
// yields the same faults.
//
// Callers: the test that injects them into a cluster.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. The comments say what Target holds for kinds that use it.
const (
	Kill      Kind = "kill"                   // SIGKILL to the process Target
	Stop      Kind = "stop"                   // SIGSTOP to the process Target
	CutOff    Kind = "cut off"                // drop all TCP traffic of the process Target
	LinkDown  Kind = "uplink down"            //
	Loss      Kind = "packet loss"            // percentage of packets dropped on the uplink, in Target
	Power     Kind = "power cut"              //
	APIServer Kind = "API server away"        //
	Disk      Kind = "disk of databases full" //
	Partition Kind = "partition"              // from the node Target
	Bridge    Kind = "bridge deleted"         // Target
	Flush     Kind = "flushed"                // everything of one kind, Target, that ovnkube has in the kernel
	Leader    Kind = "leader killed"          // SIGKILL to the leading member of the database Target, wherever it is
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind Kind
	// Node is where it happens; "" if that is only known when it does.
	Node   string
	Target string
	// For is how long it lasts; 0 if nothing reverts it.
	For time.Duration
}

// String formats the fault for output.
func (f Fault) String() string {
	text := string(f.Kind)
	if f.Target != "" {
		text += " " + f.Target
	}
	if f.Node != "" {
		text += " at " + f.Node
	}
	if f.For > 0 {
		text += " for " + f.For.String()
	}
	return text
}

// Step is a set of faults that happen at the same time.
type Step struct {
	Number int
	Faults []Fault
	// Change reports whether cluster objects are changed at the same time.
	Change bool
}

// String formats the step for output.
func (s Step) String() string {
	texts := make([]string, len(s.Faults))
	for i, f := range s.Faults {
		texts[i] = f.String()
	}
	text := fmt.Sprintf("%d %s", s.Number, strings.Join(texts, " and "))
	if s.Change {
		text += ", during a change"
	}
	return text
}

// Has reports whether one of the step's faults is of the given kind.
func (s Step) Has(kind Kind) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == kind })
}

// Cluster is what faults can be injected into.
type Cluster struct {
	// Nodes are all nodes, the control-plane node first.
	Nodes []string
	// Central are the processes of the control plane, Local those on every node.
	Central, Local []Process
	// Bridges are the bridges on every node, Kernel the kinds of state that ovnkube has in every
	// node's kernel.
	Bridges, Kernel []string
	// Databases are the clustered databases.
	Databases []string
}

// Process is a process that faults can be injected into.
type Process struct {
	Name string
	// TCP reports whether the process can be cut off, because it communicates by TCP.
	TCP bool
}

// kinds are the kinds that are drawn; a kind listed twice is drawn twice as often.
var kinds = []Kind{Kill, Kill, Stop, Stop, CutOff, LinkDown, Loss, Power, APIServer, Disk, Partition, Bridge, Flush}

// kindsFor returns the kinds that can be injected into a cluster.
func kindsFor(c Cluster) []Kind {
	if len(c.Databases) == 0 {
		return kinds
	}
	return append(slices.Clone(kinds), Leader, Leader)
}

// silence is how long a connection may carry nothing: OVN's databases and their clients probe each other every five seconds.
const silence = 6 * time.Second

// Plan draws steps. The first steps are the same for any number.
func Plan(seed uint64, number int, cluster Cluster) []Step {
	steps := make([]Step, number)
	for i := range steps {
		// A generator for each step, so that what one step draws does not affect the others.
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		first := draw(random, cluster)
		step := Step{Number: i + 1, Faults: []Fault{first}}
		if random.IntN(10) == 0 {
			second := draw(random, cluster)
			for !together(first, second) {
				second = draw(random, cluster)
			}
			step.Faults = append(step.Faults, second)
		}
		// A full disk affects only those who write to it.
		step.Change = random.IntN(3) == 0 || step.Has(Disk)
		steps[i] = step
	}
	return steps
}

// together reports whether two faults can be combined: a process that is gone cannot be stopped,
// and on a node without power nothing can be done. Two processes may be killed on the same node. Two nodes are
// partitioned from each other only once.
func together(a, b Fault) bool {
	if a.Kind == Partition && b.Kind == Partition && a.Target == b.Node && b.Target == a.Node {
		return false
	}
	if a.Kind == Leader || b.Kind == Leader { // the leader may be on any node
		return a.Kind == b.Kind && a != b
	}
	if a.Kind == Kill && b.Kind == Kill {
		return a != b
	}
	return a.Node != b.Node && (a.Kind != Partition || a.Target != b.Node || b.Kind != Power) &&
		(b.Kind != Partition || b.Target != a.Node || a.Kind != Power)
}

// draw draws one fault.
func draw(random *rand.Rand, c Cluster) Fault {
	f := Fault{Kind: pick(random, kindsFor(c)), Node: pick(random, c.Nodes), For: between(random, 2, 10)}
	process := func(tcp bool) {
		var can []Process
		for _, p := range slices.Concat(c.Central, c.Local) {
			if p.TCP || !tcp {
				can = append(can, p)
			}
		}
		p := pick(random, can)
		f.Target = p.Name
		if slices.Contains(c.Central, p) {
			f.Node = c.Nodes[0]
		}
	}
	switch f.Kind {
	case Kill:
		process(false)
		f.For = 0
	case Stop:
		process(false)
	case CutOff:
		process(true)
		f.For = max(f.For, silence)
	case LinkDown:
	case Loss:
		f.Target = fmt.Sprintf("%d%%", 5+random.IntN(46))
	case Power:
		// The databases are in memory on the control-plane node.
		f.Node = pick(random, c.Nodes[1:])
	case APIServer:
		f.Node, f.For = c.Nodes[0], between(random, 5, 30)
	case Disk:
		f.Node = c.Nodes[0]
	case Partition:
		f.Target = f.Node
		for f.Target == f.Node {
			f.Target = pick(random, c.Nodes)
		}
	case Bridge:
		f.Target, f.For = pick(random, c.Bridges), 0
	case Flush:
		f.Target, f.For = pick(random, c.Kernel), 0
	case Leader:
		f.Node, f.Target, f.For = "", pick(random, c.Databases), 0
	}
	return f
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// between returns a random number of seconds.
func between(random *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+random.IntN(most-least+1)) * time.Second
}
