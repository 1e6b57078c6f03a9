// Package fakereach replaces the probes of nodes in tests, which set which nodes respond.
package fakereach

import (
	"maps"
	"slices"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// Nodes is a place.Reachability whose results a test sets.
type Nodes struct {
	mu          sync.Mutex
	states      map[string]place.Reach
	subscribers []func(string)
	probed      chan struct{}
	blocked     chan struct{} // callers wait until it is closed; nil: they do not wait
}

// New returns one that knows no nodes and does not wait for first results.
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

// Subscribe registers a function that is called on each change.
func (n *Nodes) Subscribe(f func(node string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subscribers = append(n.subscribers, f)
}

// Unsubscribe removes all subscribers, as when their process ends.
func (n *Nodes) Unsubscribe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subscribers = nil
}

// Set sets the state of a node and notifies the subscribers.
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

// DelayProbed keeps Probed open until the returned function is called.
func (n *Nodes) DelayProbed() (answered func()) {
	probed := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probed = probed
	return func() { close(probed) }
}

// Block makes callers of Reach wait until the returned function is called.
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
