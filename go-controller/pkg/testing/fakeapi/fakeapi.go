// Package fakeapi fixes differences between client-go's fake clientsets and an API server. Imported by tests only.
package fakeapi

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// Clientset is a fake clientset.
type Clientset interface {
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	PrependWatchReactor(resource string, reaction clienttesting.WatchReactionFunc)
	Tracker() clienttesting.ObjectTracker
}

// Factory is a shared informer factory.
type Factory interface {
	Start(stop <-chan struct{})
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}

// NoResync is the resync period of informers in a testing/synctest bubble. With a period of zero they wait for a
// channel from outside the bubble, which then never becomes durably blocked; this period does not expire either.
const NoResync = 10 * 365 * 24 * time.Hour

// Start starts the informers of a factory over a fake clientset until ctx is done, and returns when each of them
// has its objects and watches: a fake clientset loses what happens between an informer's list and its watch.
// However many requests come in a burst, each watch delivers all of their events; for objects that a test adds to
// the tracker directly, there is room for a hundred.
func Start(ctx context.Context, t testing.TB, cs Clientset, factory Factory) {
	t.Helper()
	start(ctx, t, cs, factory, nil)
}

func start(ctx context.Context, t testing.TB, cs Clientset, factory Factory, f *Faults) {
	t.Helper()
	watching := reactionsOf(t, cs).begin(f)
	factory.Start(ctx.Done())
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the informer of %s has no objects", informer)
		}
		<-watching
	}
}

// reactions are this package's reactions to the requests to one clientset. They are added to it only once: a
// stopped informer may still be listing while the next ones start, and a clientset's reactions must not be changed
// then.
type reactions struct {
	cs      Clientset
	watches watches

	mu       sync.Mutex
	faults   *Faults
	watching chan struct{}
}

// known are the reactions of the clientsets of all running tests.
var known sync.Map

// reactionsOf returns the reactions of a clientset.
func reactionsOf(t testing.TB, cs Clientset) *reactions {
	r := &reactions{cs: cs}
	if have, ok := known.LoadOrStore(cs, r); ok {
		return have.(*reactions)
	}
	t.Cleanup(func() { known.Delete(cs) })
	cs.PrependReactor("*", "*", r.watches.makeRoom)
	cs.PrependWatchReactor("*", r.watch)
	return r
}

// begin exposes watches to these faults from now on, and returns a channel that receives a value for each watch
// that starts.
func (r *reactions) begin(f *Faults) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.watching = f, make(chan struct{}, 1000)
	return r.watching
}

// watch is the reaction to the start of a watch.
func (r *reactions) watch(a clienttesting.Action) (bool, watch.Interface, error) {
	var opts metav1.ListOptions
	if w, ok := a.(clienttesting.WatchActionImpl); ok {
		opts = w.ListOptions
	}
	r.mu.Lock()
	faults, watching := r.faults, r.watching
	r.mu.Unlock()
	w, err := faults.watch(r.cs, &r.watches, a.GetResource(), a.GetNamespace(), opts)
	select {
	case watching <- struct{}{}:
	default: // no longer counted
	}
	return true, w, err
}

// Settle lets a minute of a testing/synctest bubble pass, and waits until all of the bubble's goroutines are
// blocked: every event has been delivered, every key reconciled, and everything that was delayed or failed once has
// been retried.
func Settle() {
	<-time.After(time.Minute)
	synctest.Wait()
}
