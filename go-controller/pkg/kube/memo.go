package kube

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Memo keeps, by name, what was made of objects of an informer's cache, for as long as the
// cache has them. Such objects are never modified: one that has changed is another one.
// What it returns is read-only, too, since many may have it.
type Memo[O, T any] struct {
	make func(*O) T

	mu   sync.Mutex
	made map[string]made[O, T]
}

type made[O, T any] struct {
	from *O
	out  T
}

// NewMemo returns a Memo of what a function makes of objects.
func NewMemo[O, T any](f func(*O) T) *Memo[O, T] {
	return &Memo[O, T]{make: f, made: map[string]made[O, T]{}}
}

// Of returns what is made of an object with a name.
func (m *Memo[O, T]) Of(name string, obj *O) T {
	m.mu.Lock()
	last, ok := m.made[name]
	m.mu.Unlock()
	if ok && last.from == obj {
		return last.out
	}
	out := m.make(obj)
	m.mu.Lock()
	m.made[name] = made[O, T]{obj, out}
	m.mu.Unlock()
	return out
}

// Forget frees what is kept of an object that is gone.
func (m *Memo[O, T]) Forget(name string) {
	m.mu.Lock()
	delete(m.made, name)
	m.mu.Unlock()
}

// Nodes decodes the nodes of an informer's cache, each of them once.
type Nodes struct {
	memo *Memo[corev1.Node, decodedNode]
}

type decodedNode struct {
	node topology.Node
	err  error
}

// NewNodes returns one that has decoded none.
func NewNodes() Nodes {
	return Nodes{NewMemo(func(n *corev1.Node) decodedNode {
		node, err := Node(n)
		return decodedNode{node, err}
	})}
}

// Node is the function Node, whose result must not be modified.
func (c Nodes) Node(n *corev1.Node) (topology.Node, error) {
	d := c.memo.Of(n.Name, n)
	return d.node, d.err
}
