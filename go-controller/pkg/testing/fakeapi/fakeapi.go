// Package fakeapi mends what client-go's fake clientsets do otherwise than an API
// server. Imported by tests only.
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

// Clientset is a fake one.
type Clientset interface {
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	PrependWatchReactor(resource string, reaction clienttesting.WatchReactionFunc)
	Tracker() clienttesting.ObjectTracker
}

// Factory is one of shared informers.
type Factory interface {
	Start(stop <-chan struct{})
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}

// NoResync is the resync period of informers in a testing/synctest bubble. With a
// period of zero they wait for a channel that is not of the bubble, which is never
// at rest then; this one does not end either.
const NoResync = 10 * 365 * 24 * time.Hour

// Start starts the informers of a factory over a fake clientset until ctx is done,
// and returns when each of them has its objects and watches: a fake clientset
// forgets what happens between an informer's list and its watch. However many requests
// come in a burst, each watch delivers all of their events; what a test gives to the
// tracker itself has room for a hundred.
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

// reactions are what this package makes of the requests to one clientset. They are
// added to it once: an informer that was stopped may have a list under way while the
// next ones start, and a clientset's reactions may not be changed then.
type reactions struct {
	cs      Clientset
	watches watches

	mu       sync.Mutex
	faults   *Faults
	watching chan struct{}
}

// known has the reactions of the clientsets of all tests that run.
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

// begin has watches meet these faults from now on, and returns a channel that has a
// value for each one that begins.
func (r *reactions) begin(f *Faults) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.watching = f, make(chan struct{}, 1000)
	return r.watching
}

// watch is the reaction to a watch that begins.
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
	default: // nobody counts any more
	}
	return true, w, err
}

// Settle lets a minute of a testing/synctest bubble go by, and waits until all in it
// are at rest: every event is delivered, every key reconciled, and what waited for a
// moment or failed once has had its turn.
func Settle() {
	<-time.After(time.Minute)
	synctest.Wait()
}
