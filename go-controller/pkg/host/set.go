package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Set keeps one kind of kernel object equal to the union of what several contributors want. It
// lists the objects before each write, so it repairs what others have changed and writes nothing if
// nothing differs.
//
// If two contributors want one key with different values, the contributor whose name sorts first
// wins, whatever the order of the calls. Reads and writes of the kernel are serialized; one pass
// serves every Apply that waited for it.
type Set[K comparable, V any] struct {
	name   string
	kernel Kernel[K, V]
	equal  func(a, b V) bool
	passes *Coalescer[outcome[K]]

	mu    sync.Mutex // guards the fields below, never held over I/O
	want  map[string]map[K]V
	gone  map[K]dropped // dropped by a contributor: deleted even before Sweep
	drops uint64
	swept bool

	settled  map[K]V // what the last pass left in the kernel; only used by write, which never runs concurrently
	repaired atomic.Uint64
}

// dropped is a key that has to be deleted because a contributor no longer wants it.
type dropped struct {
	by string // the contributor that gets its errors until it is deleted
	at uint64 // value of Set.drops at that time
}

// outcome is how a pass ended.
type outcome[K comparable] struct {
	broken error       // the kernel could not be read
	failed map[K]error // keys that could not be written
}

// errors joins the errors of the keys that concern the caller.
func (o outcome[K]) errors(concerns func(K) bool) error {
	if o.broken != nil {
		return o.broken
	}
	var errs []error
	for _, k := range ordered(o.failed) {
		if concerns(k) {
			errs = append(errs, o.failed[k])
		}
	}
	return errors.Join(errs...)
}

// NewSet returns an empty Set over kernel. name is used in errors, e.g. "routes". equal compares
// the desired value with the listed one.
func NewSet[K comparable, V any](name string, kernel Kernel[K, V], equal func(want, have V) bool) *Set[K, V] {
	return &Set[K, V]{
		name: name, kernel: kernel, equal: equal,
		passes: NewCoalescer[outcome[K]](),
		want:   map[string]map[K]V{},
		gone:   map[K]dropped{},
	}
}

// Apply implements Writer. It returns the errors of the keys that contributor wants, and of those
// that it dropped and that are not deleted yet, but not the errors of other contributors' keys.
func (s *Set[K, V]) Apply(ctx context.Context, contributor string, want map[K]V) error {
	mine := s.contribute(contributor, want)
	return s.pass(ctx, func(k K) bool { return mine[k] })
}

// contribute records a contribution and returns the keys that it concerns.
func (s *Set[K, V]) contribute(contributor string, want map[K]V) map[K]bool {
	if c, ok := s.kernel.(Canonical[K]); ok {
		canonical := make(map[K]V, len(want))
		for k, v := range want {
			canonical[c.Canonical(k)] = v
		}
		want = canonical
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops++
	mine := map[K]bool{}
	for k := range s.want[contributor] {
		if _, ok := want[k]; !ok {
			s.gone[k] = dropped{by: contributor, at: s.drops}
		}
	}
	for k, d := range s.gone {
		if d.by == contributor {
			mine[k] = true
		}
	}
	for k := range want {
		mine[k] = true
	}
	if len(want) == 0 {
		delete(s.want, contributor)
	} else {
		s.want[contributor] = maps.Clone(want)
	}
	return mine
}

// Drop deletes the objects selected by which that no contributor wants, even before Sweep. A
// contributor uses it for what an earlier run left and must not wait for Sweep. An object that could
// not be deleted is one that the contributor dropped: its next Apply returns the error.
func (s *Set[K, V]) Drop(ctx context.Context, contributor string, which func(K) bool) error {
	have, err := s.kernel.List(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", s.name, err)
	}
	maps.DeleteFunc(have, func(k K, _ V) bool { return !which(k) })
	if len(have) == 0 {
		return nil
	}
	s.mu.Lock()
	s.drops++
	for k := range have {
		s.gone[k] = dropped{by: contributor, at: s.drops}
	}
	s.mu.Unlock()
	return s.pass(ctx, which)
}

// Sweep implements Writer.
func (s *Set[K, V]) Sweep(ctx context.Context) error {
	s.mu.Lock()
	s.swept = true
	s.mu.Unlock()
	return s.Resync(ctx)
}

// Resync reads the kernel again and repairs what differs. It returns the errors
// of all keys.
func (s *Set[K, V]) Resync(ctx context.Context) error {
	return s.pass(ctx, func(K) bool { return true })
}

// pass makes sure that everything requested so far is written, and returns the errors of the keys
// that concern the caller.
func (s *Set[K, V]) pass(ctx context.Context, concerns func(K) bool) error {
	result, err := s.passes.Do(ctx, s.passes.Request(), s.write)
	if err != nil {
		return fmt.Errorf("write %s: %w", s.name, err)
	}
	return result.errors(concerns)
}

// write does one pass. It is never called concurrently.
func (s *Set[K, V]) write(ctx context.Context) outcome[K] {
	s.mu.Lock()
	union, gone, swept, drops := s.union(), maps.Clone(s.gone), s.swept, s.drops
	s.mu.Unlock()

	have, err := s.kernel.List(ctx)
	if err != nil {
		return outcome[K]{broken: fmt.Errorf("list %s: %w", s.name, err)}
	}
	result := outcome[K]{failed: s.diff(ctx, union, have, func(k K) bool { return swept || gone[k].at > 0 })}
	s.countRepairs(union, have, result.failed)

	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range gone {
		// A key that was dropped again after the pass began remains to be deleted.
		if result.failed[k] == nil && s.gone[k].at <= drops {
			delete(s.gone, k)
		}
	}
	return result
}

// countRepairs counts the objects that the previous pass had left as they are still wanted, and
// that this pass found missing or changed.
func (s *Set[K, V]) countRepairs(union, have map[K]V, failed map[K]error) {
	settled := union
	if len(failed) > 0 {
		settled = maps.Clone(union)
	}
	for k := range failed {
		delete(settled, k)
	}
	for k, v := range settled {
		was, known := s.settled[k]
		is, there := have[k]
		if known && s.equal(v, was) && (!there || !s.equal(v, is)) {
			s.repaired.Add(1)
		}
	}
	s.settled = settled
}

// Wanted returns the union of what contributors want.
func (s *Set[K, V]) Wanted() map[K]V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.union()
}

// Repaired returns how many objects were written again because somebody else had changed or removed
// them.
func (s *Set[K, V]) Repaired() uint64 { return s.repaired.Load() }

// diff writes the difference between union and have and returns the keys that failed. Adds that
// fail are retried as long as others succeed, since one object may need another (a route needs the
// link route to its gateway).
func (s *Set[K, V]) diff(ctx context.Context, union, have map[K]V, mayDelete func(K) bool) map[K]error {
	failed := map[K]error{}
	if o, ok := s.kernel.(Overlapper); ok && o.MayOverlap() {
		s.put(ctx, union, have, failed)
		replaced := s.replaced(union, failed)
		s.remove(ctx, union, have, func(k K) bool { return mayDelete(k) || replaced(k) }, failed)
		return failed
	}
	s.remove(ctx, union, have, mayDelete, failed)
	s.put(ctx, union, have, failed)
	return failed
}

// replaced returns a function that reports whether a wanted object has been written that a key, which is not wanted,
// would keep from taking effect.
func (s *Set[K, V]) replaced(union map[K]V, failed map[K]error) func(K) bool {
	e, ok := s.kernel.(Exclusive[K])
	if !ok {
		return func(K) bool { return false }
	}
	written := make(map[K]bool, len(union))
	for k := range union {
		if failed[k] == nil {
			written[e.Match(k)] = true
		}
	}
	return func(k K) bool { return written[e.Match(k)] }
}

// remove deletes what is not wanted, in reverse order of adding, and notes what fails.
func (s *Set[K, V]) remove(ctx context.Context, union, have map[K]V, mayDelete func(K) bool, failed map[K]error) {
	for _, k := range slices.Backward(ordered(have)) {
		if _, ok := union[k]; ok || !mayDelete(k) {
			continue
		}
		if err := s.kernel.Delete(ctx, k, have[k]); err != nil {
			failed[k] = fmt.Errorf("delete %s %v: %w", s.name, k, err)
		}
	}
}

// put writes what is missing or differs, and notes what fails.
func (s *Set[K, V]) put(ctx context.Context, union, have map[K]V, failed map[K]error) {
	var todo []K
	for _, k := range ordered(union) {
		if old, ok := have[k]; !ok || !s.equal(union[k], old) {
			todo = append(todo, k)
		}
	}
	for progress := true; progress && len(todo) > 0; {
		progress = false
		var again []K
		for _, k := range todo {
			old, exists := have[k]
			if err := s.putOne(ctx, k, union[k], old, exists); err != nil {
				failed[k] = fmt.Errorf("add %s %v: %w", s.name, k, err)
				again = append(again, k)
				continue
			}
			delete(failed, k)
			progress = true
		}
		todo = again
	}
}

// putOne writes one object that is missing or differs.
func (s *Set[K, V]) putOne(ctx context.Context, k K, value, old V, exists bool) error {
	if !exists {
		return s.kernel.Add(ctx, k, value)
	}
	if r, ok := s.kernel.(Replacer[K, V]); ok {
		return r.Replace(ctx, k, old, value)
	}
	if err := s.kernel.Delete(ctx, k, old); err != nil {
		return err
	}
	return s.kernel.Add(ctx, k, value)
}

// union merges the contributions; s.mu is held.
func (s *Set[K, V]) union() map[K]V {
	all := map[K]V{}
	for _, name := range slices.Sorted(maps.Keys(s.want)) {
		for k, v := range s.want[name] {
			if _, taken := all[k]; !taken {
				all[k] = v
			}
		}
	}
	if r, ok := s.kernel.(Reducer[K, V]); ok {
		r.Reduce(all)
	}
	return all
}

// Contributors returns the names of the contributors that want something, sorted.
func (s *Set[K, V]) Contributors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.want))
}

// ordered returns the keys of m in the order of their printed form, so that the same difference is
// always written in the same order.
func ordered[K comparable, V any](m map[K]V) []K {
	type printed struct {
		key  K
		text string
	}
	keys := make([]printed, 0, len(m))
	for k := range m {
		keys = append(keys, printed{k, fmt.Sprint(k)})
	}
	slices.SortFunc(keys, func(a, b printed) int { return strings.Compare(a.text, b.text) })
	out := make([]K, len(keys))
	for i, k := range keys {
		out[i] = k.key
	}
	return out
}
