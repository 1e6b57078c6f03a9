package kube

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Memo caches, by name, values computed from objects in an informer's cache, as long as the
// cache has the objects. Such objects are never modified: a changed object is a different one.
// The returned values are read-only, too, since they are shared.
type Memo[O, T any] struct {
	make func(*O) T

	mu   sync.Mutex
	made map[string]made[O, T]
}

type made[O, T any] struct {
	from *O
	out  T
}

// NewMemo returns a Memo of the values that f computes from the objects of an informer for a
// cluster-scoped kind. It fails if the informer has stopped.
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

// Of returns the value computed from the object with a name.
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

// Nodes decodes the nodes in an informer's cache, each of them once.
type Nodes struct {
	memo *Memo[corev1.Node, decodedNode]
}

type decodedNode struct {
	node topology.Node
	err  error
}

// NewNodes returns an empty Nodes for an informer. It fails if the informer has
// stopped.
func NewNodes(inf cache.SharedIndexInformer) (Nodes, error) {
	memo, err := NewMemo(inf, func(n *corev1.Node) decodedNode {
		node, err := Node(n)
		return decodedNode{node, err}
	})
	return Nodes{memo}, err
}

// Node is like the function Node, but its result must not be modified.
func (c Nodes) Node(n *corev1.Node) (topology.Node, error) {
	d := c.memo.Of(n.Name, n)
	return d.node, d.err
}
