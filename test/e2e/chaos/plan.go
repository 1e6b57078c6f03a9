// Package chaos draws faults: which, where, and for how long. The same seed draws the
// same ones.
//
// Callers: the test that makes them happen to a cluster.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of faults.
type Kind string

// The kinds of faults. Of what Target is the description says where it is not empty.
const (
	Kill      Kind = "kill"                   // SIGKILL to a process, Target
	Stop      Kind = "stop"                   // SIGSTOP to a process, Target
	CutOff    Kind = "cut off"                // what a process, Target, sends and gets by TCP is lost
	LinkDown  Kind = "uplink down"            //
	Loss      Kind = "packet loss"            // of a share of what leaves by the uplink, Target per cent
	Power     Kind = "power cut"              //
	APIServer Kind = "API server away"        //
	Disk      Kind = "disk of databases full" //
	Partition Kind = "partition"              // from another node, Target
	Bridge    Kind = "bridge deleted"         // Target
	Flush     Kind = "flushed"                // what ovnkube has in the kernel of one kind, Target
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind   Kind
	Node   string
	Target string
	// For is how long it lasts; 0 where nobody takes it back.
	For time.Duration
}

// String is the fault as it is printed.
func (f Fault) String() string {
	text := string(f.Kind)
	if f.Target != "" {
		text += " " + f.Target
	}
	text += " at " + f.Node
	if f.For > 0 {
		text += " for " + f.For.String()
	}
	return text
}

// Step is what goes wrong at once.
type Step struct {
	Number int
	Faults []Fault
	// Change reports whether somebody changes something at the same time.
	Change bool
}

// String is the step as it is printed.
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

// Has reports whether a fault of a kind is among those of the step.
func (s Step) Has(kind Kind) bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == kind })
}

// Cluster is what faults can happen to.
type Cluster struct {
	// Nodes are all, the one with the control plane first.
	Nodes []string
	// Central are the processes of the control plane, Local those of every node.
	Central, Local []Process
	// Bridges are those of every node, Kernel what ovnkube has in every node's kernel.
	Bridges, Kernel []string
}

// Process is one that faults can happen to.
type Process struct {
	Name string
	// TCP reports whether it can be cut off: it talks to others by TCP.
	TCP bool
}

// kinds are those that are drawn, each as often as it is listed.
var kinds = []Kind{Kill, Kill, Stop, Stop, CutOff, LinkDown, Loss, Power, APIServer, Disk, Partition, Bridge, Flush}

// Plan draws steps. The first ones are the same whatever their number.
func Plan(seed uint64, number int, cluster Cluster) []Step {
	steps := make([]Step, number)
	for i := range steps {
		// Each has randomness of its own, so that what one step draws does not move the others.
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
		// A disk that is full does nothing to who writes nothing.
		step.Change = random.IntN(3) == 0 || step.Has(Disk)
		steps[i] = step
	}
	return steps
}

// together reports whether two faults do not stand in each other's way: of a process that
// is gone nothing can be stopped, and with a node that has no power nothing can be done.
// Processes that are killed can be neighbours.
func together(a, b Fault) bool {
	if a.Kind == Kill && b.Kind == Kill {
		return a != b
	}
	return a.Node != b.Node && (a.Kind != Partition || a.Target != b.Node || b.Kind != Power) &&
		(b.Kind != Partition || b.Target != a.Node || a.Kind != Power)
}

// draw draws one fault.
func draw(random *rand.Rand, c Cluster) Fault {
	f := Fault{Kind: pick(random, kinds), Node: pick(random, c.Nodes), For: between(random, 2, 10)}
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
	case LinkDown:
	case Loss:
		f.Target = fmt.Sprintf("%d%%", 5+random.IntN(46))
	case Power:
		// The databases are in the memory of the control plane.
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
	}
	return f
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// between is a number of seconds.
func between(random *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+random.IntN(most-least+1)) * time.Second
}
