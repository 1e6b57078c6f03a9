package fakeapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// Faults makes fake clientsets fail as API servers do under load.
type Faults struct {
	mu       sync.Mutex
	rng      *rand.Rand
	share    float64 // of requests that fail
	watching map[*watch.RaceFreeFakeWatcher]schema.GroupVersionResource
	cut      map[schema.GroupVersionResource]int  // watches that are to come back
	listing  map[schema.GroupVersionResource]bool // some of them have their list already
	injected int
}

// FaultyClientset is a fake one that can be made to fail.
type FaultyClientset interface {
	Clientset
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}

// The last error handler of the runtime package slows down loops of errors, with the
// time between two of them: it sleeps for decades where one is from before a bubble
// of testing/synctest, whose clock starts in 2000.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// NewFaults returns faults that do not happen before Set.
func NewFaults(rng *rand.Rand) *Faults {
	return &Faults{rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), watching: map[*watch.RaceFreeFakeWatcher]schema.GroupVersionResource{},
		cut: map[schema.GroupVersionResource]int{}, listing: map[schema.GroupVersionResource]bool{}}
}

// Set makes a share of the controllers' requests fail from now on.
func (f *Faults) Set(share float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share = share
}

// Injected is how many requests failed.
func (f *Faults) Injected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.injected
}

// Do runs what is not to fail: a user's request.
func (f *Faults) Do(user func()) {
	f.mu.Lock()
	share := f.share
	f.share = 0
	f.mu.Unlock()
	user()
	f.Set(share)
}

// Inject puts the faults into a fake clientset: patches and updates meet conflicts and
// servers that do not answer, some of which did what was asked; lists fail.
func (f *Faults) Inject(cs FaultyClientset) {
	react := clienttesting.ObjectReaction(cs.Tracker())
	for _, verb := range []string{"update", "patch"} {
		cs.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			kind, gap := f.fault(a.GetResource())
			switch {
			case gap: // a fake clientset would not tell the watch that is to come
				return true, nil, apierrors.NewServerTimeout(a.GetResource().GroupResource(), verb, 1)
			case kind == 0:
				return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "object", fmt.Errorf("the object has been modified"))
			case kind == 1:
				return true, nil, apierrors.NewServerTimeout(a.GetResource().GroupResource(), verb, 1)
			case kind == 2: // the answer is lost
				if _, _, err := react(a); err != nil {
					return true, nil, err
				}
				return true, nil, apierrors.NewTimeoutError("no answer", 1)
			}
			return false, nil, nil
		})
	}
	cs.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if kind, _ := f.fault(a.GetResource()); kind >= 0 {
			return true, nil, apierrors.NewInternalError(fmt.Errorf("etcd has no leader"))
		}
		f.listed(a.GetResource())
		return false, nil, nil
	})
}

// listed notes a list after which an informer whose watch was cut will watch.
func (f *Faults) listed(r schema.GroupVersionResource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut[r] > 0 {
		f.listing[r] = true
	}
}

// fault picks one of three faults, or -1; gap tells that a list of the resource waits
// for its watch.
func (f *Faults) fault(r schema.GroupVersionResource) (kind int, gap bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listing[r] {
		return -1, true
	}
	if f.share == 0 || f.rng.Float64() >= f.share {
		return -1, false
	}
	f.injected++
	return f.rng.IntN(3), false
}

// watched notes a watch that began.
func (f *Faults) watched(r schema.GroupVersionResource, w watch.Interface) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if w, ok := w.(*watch.RaceFreeFakeWatcher); ok {
		f.watching[w] = r
	}
	f.cut[r] = max(0, f.cut[r]-1)
	f.listing[r] = false
}

// Cut ends all watches as a server does that has forgotten their resource version:
// informers list anew, after some seconds.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w, r := range f.watching {
		if !w.IsStopped() {
			f.cut[r]++
			w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
			w.Stop()
		}
	}
	clear(f.watching)
}

// Start is Start with these faults, if they are not nil.
func (f *Faults) Start(ctx context.Context, t testing.TB, cs Clientset, factory Factory) {
	t.Helper()
	start(ctx, t, cs, factory, f.watched)
}
