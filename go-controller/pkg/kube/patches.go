package kube

import (
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patches remembers what patches of this process have made of objects, as long as a lister may still
// show what they were before. Decisions must not be based on a state that is known to have passed: it may, for
// example, contain an acknowledgement that the patch has revoked. The zero value is ready for
// use, and it is safe for concurrent use.
type Patches[T patchable] struct {
	mu   sync.Mutex
	last map[string]patch[T]
}

type patchable interface {
	comparable
	metav1.Object
}

// patch is the object that a patch was made for, and the API server's response to it.
type patch[T patchable] struct{ from, result T }

// Record records the response to a patch that was made for an object as the lister shows it, under the
// object's key.
func (p *Patches[T]) Record(key string, from, result T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]patch[T]{}
	}
	p.last[key] = patch[T]{from, result}
}

// Known returns the last known state of an object: the given one, which the lister shows, or the result of the
// last patch if that is newer.
func (p *Patches[T]) Known(key string, shown T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.last[key]; ok && (last.from == shown || last.from.GetUID() == shown.GetUID() && precedes(shown, last.result)) {
		return last.result
	}
	delete(p.last, key)
	return shown
}

// Forget removes what is known of a deleted object.
func (p *Patches[T]) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}

// precedes reports whether a state of an object is known to be older than another one.
func precedes(a, b metav1.Object) bool {
	first, err := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	second, bad := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return err == nil && bad == nil && first < second
}
