// Package fakereach stands in for the probes of nodes: tests say which nodes answer.
package fakereach

import (
	"maps"
	"slices"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// Nodes is a place.Reachability whose answers a test sets.
type Nodes struct {
	mu          sync.Mutex
	states      map[string]place.Reach
	subscribers []func(string)
	probed      chan struct{}
	blocked     chan struct{} // whoever asks waits until it is closed; nil: nobody does
}

// New returns one that knows no node and does not wait for first answers.
func New() *Nodes {
	n := &Nodes{states: map[string]place.Reach{}, probed: make(chan struct{})}
	close(n.probed)
	return n
}

// Reach returns what was last set for a node.
func (n *Nodes) Reach(node string) place.Reach {
	n.mu.Lock()
	blocked := n.blocked
	n.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.states[node]
}

// Probed is closed, unless DelayProbed was called.
func (n *Nodes) Probed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.probed
}

// Subscribe has a function called for each change.
func (n *Nodes) Subscribe(f func(node string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subscribers = append(n.subscribers, f)
}

// Unsubscribe forgets all subscribers, as when the process that they are part of ends.
func (n *Nodes) Unsubscribe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subscribers = nil
}

// Set sets the state of a node and tells the subscribers.
func (n *Nodes) Set(node string, state place.Reach) {
	n.mu.Lock()
	n.states[node] = state
	subscribers := slices.Clone(n.subscribers)
	n.mu.Unlock()
	for _, f := range subscribers {
		f(node)
	}
}

// States returns a copy of all states, by node.
func (n *Nodes) States() map[string]place.Reach {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.states)
}

// DelayProbed has the nodes not yet have answered until the returned function is called.
func (n *Nodes) DelayProbed() (answered func()) {
	probed := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probed = probed
	return func() { close(probed) }
}

// Block has whoever asks for a state wait until the returned function is called.
func (n *Nodes) Block() (unblock func()) {
	blocked := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked = blocked
	return func() {
		n.mu.Lock()
		n.blocked = nil
		n.mu.Unlock()
		close(blocked)
	}
}
