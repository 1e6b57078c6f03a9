package kube

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

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

// NewMemo returns a Memo of what a function makes of the objects of an informer, whose kind
// has no namespaces. It fails where the informer has stopped.
func NewMemo[O, T any](inf cache.SharedIndexInformer, f func(*O) T) (*Memo[O, T], error) {
	m := &Memo[O, T]{make: f, made: map[string]made[O, T]{}}
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			m.forget(name)
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("follow deletions: %w", err)
	}
	return m, nil
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

func (m *Memo[O, T]) forget(name string) {
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

// NewNodes returns one that has decoded none of an informer's nodes. It fails where that has
// stopped.
func NewNodes(inf cache.SharedIndexInformer) (Nodes, error) {
	memo, err := NewMemo(inf, func(n *corev1.Node) decodedNode {
		node, err := Node(n)
		return decodedNode{node, err}
	})
	return Nodes{memo}, err
}

// Node is the function Node, whose result must not be modified.
func (c Nodes) Node(n *corev1.Node) (topology.Node, error) {
	d := c.memo.Of(n.Name, n)
	return d.node, d.err
}
