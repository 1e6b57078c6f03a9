package fakeapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	watching map[*queued]scope
	cut      map[scope]int       // watches that will be restarted
	resumed  map[scope][]*queued // those of them that started together with their list
	injected int
}

// scope is what a watch covers.
type scope struct {
	resource  schema.GroupVersionResource
	namespace string // "" for all
}

// The last error handler of the runtime package throttles repeated errors by the time between them: if one is from
// before a testing/synctest bubble, whose clock starts in 2000, it sleeps for decades.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// NewFaults returns faults that do not occur until Set is called.
func NewFaults(rng *rand.Rand) *Faults {
	return &Faults{rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), watching: map[*queued]scope{},
		cut: map[scope]int{}, resumed: map[scope][]*queued{}}
}

// Set makes a share of the controllers' requests fail from now on.
func (f *Faults) Set(share float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share = share
}

// Injected returns how many requests have failed.
func (f *Faults) Injected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.injected
}

// Do runs a user's requests, which must not fail.
func (f *Faults) Do(user func()) {
	if f == nil {
		user()
		return
	}
	f.mu.Lock()
	share := f.share
	f.share = 0
	f.mu.Unlock()
	user()
	f.Set(share)
}

// Inject adds the faults to a fake clientset: patches and updates run into conflicts and into servers that do not
// answer, some of which carried out the request; lists fail.
func (f *Faults) Inject(cs Clientset) {
	react := strictly(cs.Tracker())
	var resumed watches
	for _, verb := range []string{"update", "patch"} {
		cs.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			switch f.fault() {
			case 0:
				return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "object", fmt.Errorf("the object has been modified"))
			case 1:
				return true, nil, apierrors.NewServerTimeout(a.GetResource().GroupResource(), verb, 1)
			case 2: // the response is lost
				if _, _, err := react(a); err != nil {
					return true, nil, err
				}
				return true, nil, apierrors.NewTimeoutError("no answer", 1)
			}
			return false, nil, nil
		})
	}
	cs.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if f.fault() >= 0 {
			return true, nil, apierrors.NewInternalError(fmt.Errorf("etcd has no leader"))
		}
		return false, nil, f.resume(cs, &resumed, a)
	})
	cs.PrependReactor("*", "*", resumed.makeRoom)
}

// fault picks one of three faults, or -1 for none.
func (f *Faults) fault() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.share == 0 || f.rng.Float64() >= f.share {
		return -1
	}
	f.injected++
	return f.rng.IntN(3)
}

// resume starts the watch of an informer that starts, or whose watch was cut, together with its list: a fake
// clientset would lose what happens in between.
func (f *Faults) resume(cs Clientset, all *watches, a clienttesting.Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := scope{a.GetResource(), a.GetNamespace()}
	list, ok := a.(clienttesting.ListActionImpl)
	starts := ok && list.ListOptions.ResourceVersion == "0"
	if f.cut[r] == 0 && !starts {
		return nil
	}
	w, err := cs.Tracker().Watch(r.resource, r.namespace)
	if err != nil {
		return err
	}
	f.cut[r] = max(0, f.cut[r]-1)
	f.resumed[r] = append(f.resumed[r], all.add(w))
	return nil
}

// watch returns the watch for an informer.
func (f *Faults) watch(cs Clientset, all *watches, r schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (watch.Interface, error) {
	if f == nil {
		return all.begin(cs, r, namespace, opts)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var q *queued
	at := scope{r, namespace}
	if resumed := f.resumed[at]; len(resumed) > 0 {
		q, f.resumed[at] = resumed[0], resumed[1:]
		q.begin()
	} else {
		w, err := all.begin(cs, r, namespace, opts)
		if err != nil {
			return nil, err
		}
		q = w
	}
	f.watching[q] = at
	return q, nil
}

// Cut ends all watches as a server does that no longer knows their resource version: informers list again after
// some seconds.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for q, r := range f.watching {
		if !q.source.IsStopped() {
			f.cut[r]++
			q.makeRoom()
			q.source.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
			q.source.Stop()
		}
	}
	clear(f.watching)
}

// Start is like the function Start, with these faults unless f is nil.
func (f *Faults) Start(ctx context.Context, t testing.TB, cs Clientset, factory Factory) {
	t.Helper()
	start(ctx, t, cs, factory, f)
}

// UndoUnseen makes another client undo the next patch of a resource that contains the text, while no informer
// watches: informers that list again see the object as it was before, with another resource version. Call it before
// starting the informers.
func (f *Faults) UndoUnseen(cs Clientset, resource, text string) {
	react, once := strictly(cs.Tracker()), sync.Once{}
	cs.PrependReactor("patch", resource, func(a clienttesting.Action) (handled bool, result runtime.Object, err error) {
		patch, ok := a.(clienttesting.PatchAction)
		if !ok || !strings.Contains(string(patch.GetPatch()), text) {
			return false, nil, nil
		}
		once.Do(func() {
			f.Cut()
			var before runtime.Object
			before, err = cs.Tracker().Get(a.GetResource(), a.GetNamespace(), patch.GetName())
			if err != nil {
				return
			}
			before = before.DeepCopyObject()
			if handled, result, err = react(a); err != nil {
				return
			}
			if o, bad := meta.Accessor(before); bad == nil {
				o.SetResourceVersion("")
			}
			_, _, err = react(clienttesting.NewUpdateAction(a.GetResource(), a.GetNamespace(), before))
		})
		return handled, result, err
	})
}
