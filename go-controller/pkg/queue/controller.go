package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Backoff bounds of a failing key. A key that fails because the API server does not answer waits at most for
// outageBackoff: the cause is not the key's, and once it ends, nodes and users wait for what could not be written.
const (
	minBackoff    = 50 * time.Millisecond
	maxBackoff    = 30 * time.Second
	outageBackoff = 4 * time.Second
)

// stall is how long no start-up key may finish before the remaining ones no longer
// delay Attempted.
const stall = time.Minute

// Controller turns events into keys and reconciles them, individually or in
// batches. It is safe for concurrent use; a key is never processed by two workers at
// once.
type Controller struct {
	name            string
	limit           int // maximum number of keys per batch
	reconcile       func(ctx context.Context, keys []string) map[string]error
	queue           workqueue.TypedRateLimitingInterface[string]
	backoff         workqueue.TypedRateLimiter[string]
	order           *order // of the keys in queue
	informersSynced []cache.InformerSynced
	seeds           []func() []string
	hooks           []func(ctx context.Context) error
	stall           time.Duration

	// Enqueue holds bulk for reading: a worker that takes keys sees all keys of one call or none.
	bulk sync.RWMutex

	mu        sync.Mutex
	started   time.Time           // Run was called
	seeded    bool                // untried and unsynced contain the start-up keys
	untried   map[string]struct{} // start-up keys not attempted yet
	unsynced  map[string]struct{} // start-up keys not synced yet
	failing   map[string]Failure
	working   map[string]time.Time // start of the current attempt
	tried     chan struct{}        // closed when untried becomes empty
	syncedAll chan struct{}        // closed when unsynced becomes empty
	attempted chan struct{}
}

// New returns a controller that calls reconcile for each key. An error returned
// by reconcile is logged, and the key is retried after a backoff of 50 ms
// that doubles up to 30 s, or 4 s while the API server does not answer. A panic in reconcile counts as an error of its key.
func New(name string, reconcile func(ctx context.Context, key string) error) *Controller {
	return NewBatch(name, 1, func(ctx context.Context, keys []string) map[string]error {
		return map[string]error{keys[0]: reconcile(ctx, keys[0])}
	})
}

// NewBatch returns a controller that calls reconcile for batches of up to limit ready
// keys: for features whose writes are cheaper together. It does not wait
// for more keys to become ready, but the keys of one Enqueue call form one batch if they
// fit. reconcile returns the errors by key; keys with an error are retried as by
// New, the others are done. There should be more than one worker, so that a
// single key need not wait for a large batch.
//
// If reconcile panics, it is called again for each key of the batch separately, so that
// only the key that causes the panic fails. It must tolerate finding its earlier writes
// in place.
func NewBatch(name string, limit int, reconcile func(ctx context.Context, keys []string) map[string]error) *Controller {
	waiting := &order{urgent: func(string) bool { return false }}
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff)
	return &Controller{
		name:      name,
		limit:     limit,
		reconcile: reconcile,
		order:     waiting,
		backoff:   backoff,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
			workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
					Name:  name,
					Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, Queue: waiting}),
				}),
			}),
		stall:     stall,
		failing:   map[string]Failure{},
		working:   map[string]time.Time{},
		tried:     make(chan struct{}),
		syncedAll: make(chan struct{}),
		attempted: make(chan struct{}),
	}
}

// Watch enqueues keys(old, new) for every event of inf. For an added object old
// is nil, for a deleted one new is nil: a function that considers both cannot
// miss the previous state of an object. A deletion seen only by a relist arrives with
// the last known state. Watch must be called before Run.
//
// If keys panics, the key "namespace/name" of the object is enqueued: most
// keys have this form, and reconciling a key without an object has no effect.
func (c *Controller) Watch(inf cache.SharedIndexInformer, keys func(old, new any) []string) error {
	synced, err := c.Follow(inf, keys)
	if err != nil {
		return err
	}
	c.informersSynced = append(c.informersSynced, synced)
	return nil
}

// Follow is like Watch for an informer that the start does not wait for: it may be called
// while the controller runs. The returned function reports whether the keys of all initial
// objects have been enqueued.
func (c *Controller) Follow(inf cache.SharedIndexInformer, keys func(old, new any) []string) (cache.InformerSynced, error) {
	event := func(old, new any) {
		err := panics.Catch(c.name, func() error {
			c.Enqueue(keys(old, new)...)
			return nil
		})
		if err == nil {
			return
		}
		for _, obj := range []any{old, new} {
			if key, err := cache.ObjectToName(obj); obj != nil && err == nil {
				c.Enqueue(key.String())
			}
		}
	}
	h, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { event(nil, obj) },
		UpdateFunc: event,
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			event(obj, nil)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch for %s: %w", c.name, err)
	}
	return h.HasSynced, nil
}

// Prefer makes keys for which urgent returns true precede all others. urgent is called when a key is
// enqueued, and when it is enqueued again after its worker is done, with the queue locked: it must
// not block or use the queue. Prefer must be called before Watch and Enqueue.
func (c *Controller) Prefer(urgent func(key string) bool) { c.order.urgent = urgent }

// Seed adds a function whose keys are reconciled once at start-up, after the
// watched informers have synced: the objects in the listers and the owners
// present in the target. Only seeded keys delay Attempted and Synced.
func (c *Controller) Seed(keys func() []string) { c.seeds = append(c.seeds, keys) }

// OnAttempted adds a function that runs once when every start-up key has been attempted.
// It is retried until it succeeds.
func (c *Controller) OnAttempted(f func(ctx context.Context) error) { c.hooks = append(c.hooks, f) }

// Attempted is closed when every start-up key has been attempted once, whether or not it
// succeeded, and the OnAttempted functions have run: the end of the start
// must not depend on one object that keeps failing. A key that hangs delays it
// as long as other keys finish, and a minute longer.
//
// A failed key has not declared its wanted state. Its state from an earlier
// run must not be treated as a leftover: code that deletes leftovers must wait for
// Synced.
func (c *Controller) Attempted() <-chan struct{} { return c.attempted }

// Synced is closed when every start-up key has been reconciled successfully, or has
// called MarkSynced: from then on, unwanted state is a leftover.
func (c *Controller) Synced() <-chan struct{} { return c.syncedAll }

// MarkSynced records that reconcile has handed over the wanted state of key to targets that are
// swept, which may not have been written yet. Later failures do not delay Synced.
func (c *Controller) MarkSynced(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	removeKey(c.unsynced, key, c.syncedAll)
}

// removeKey removes a key from a set and closes done if this makes the set empty.
func removeKey(set map[string]struct{}, key string, done chan struct{}) {
	if _, ok := set[key]; !ok {
		return
	}
	if delete(set, key); len(set) == 0 {
		close(done)
	}
}

// Enqueue adds keys. A key already waiting is not added twice.
func (c *Controller) Enqueue(keys ...string) {
	c.bulk.RLock()
	defer c.bulk.RUnlock()
	for _, k := range keys {
		c.queue.Add(k)
	}
}

// EnqueueAfter adds keys after a delay, so that a burst of events causes a single
// reconcile.
func (c *Controller) EnqueueAfter(delay time.Duration, keys ...string) {
	for _, k := range keys {
		c.queue.AddAfter(k, delay)
	}
}

// Run waits for the watched informers, seeds the queue and works until ctx is
// done. It returns nil then, and an error only if the informers never synced.
func (c *Controller) Run(ctx context.Context, workers int) error {
	defer c.queue.ShutDown()
	c.mu.Lock()
	c.started = time.Now()
	c.mu.Unlock()
	defer waits.Report(c.waits)()
	if !cache.WaitForCacheSync(ctx.Done(), c.informersSynced...) {
		return fmt.Errorf("run %s: stopped before the caches synced", c.name)
	}
	defer register(c)()
	c.seed()
	var wg sync.WaitGroup
	slots := make(chan struct{}, workers)
	wg.Go(func() {
		for {
			slots <- struct{}{}
			keys := c.take()
			if len(keys) == 0 {
				return
			}
			wg.Go(func() {
				s := &slot{all: slots}
				defer s.leave()
				c.work(context.WithValue(ctx, slotKey{}, s), keys)
			})
		}
	})
	wg.Go(func() { c.finish(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
	return nil
}

// seed enqueues the start-up keys and records them as outstanding.
func (c *Controller) seed() {
	untried := map[string]struct{}{}
	for _, f := range c.seeds {
		// A panicking seed does not affect the others: events enqueue its keys.
		_ = panics.Catch(c.name, func() error {
			for _, k := range f() {
				untried[k] = struct{}{}
			}
			return nil
		})
	}
	keys := slices.Collect(maps.Keys(untried))
	c.mu.Lock()
	c.untried, c.unsynced, c.seeded = untried, maps.Clone(untried), true
	if len(keys) == 0 {
		close(c.tried)
		close(c.syncedAll)
	}
	c.mu.Unlock()
	c.Enqueue(keys...)
}

// take waits for a key and returns it with the others that are ready; nil after
// the queue is shut down.
func (c *Controller) take() []string {
	key, shutdown := c.queue.Get()
	if shutdown {
		return nil
	}
	keys := []string{key}
	if c.limit == 1 {
		return keys
	}
	c.bulk.Lock()
	defer c.bulk.Unlock()
	for len(keys) < c.limit && c.queue.Len() > 0 { // no other worker takes keys meanwhile
		key, shutdown := c.queue.Get()
		if shutdown {
			break
		}
		keys = append(keys, key)
	}
	return keys
}

// slot is the place of a worker among those that may work at once.
type slot struct {
	all  chan struct{}
	once sync.Once
}

// slotKey is the key of a worker's slot in its context.
type slotKey struct{}

func (s *slot) leave() { s.once.Do(func() { <-s.all }) }

// Yield is called by a reconcile function, with its ctx, that is about to wait for another controller. From then on its
// worker does not count, so that it does not delay keys that need not wait.
func Yield(ctx context.Context) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok {
		s.leave()
	}
}

// work reconciles keys.
func (c *Controller) work(ctx context.Context, keys []string) {
	start := time.Now()
	c.begin(start, keys)
	errs := c.try(ctx, keys)
	c.bulk.RLock() // keys enqueued meanwhile form one batch again
	defer c.bulk.RUnlock()
	for _, key := range keys {
		err := errs[key]
		if err != nil {
			failures := c.queue.NumRequeues(key) + 1
			if ctx.Err() == nil {
				klog.ErrorS(err, "Reconcile failed, will retry", "controller", c.name, "key", key, "failures", failures)
			}
			delay := c.backoff.When(key)
			if unanswered(err) {
				delay = min(delay, outageBackoff)
			}
			c.queue.AddAfter(key, delay)
		} else {
			klog.V(5).InfoS("Reconciled", "controller", c.name, "key", key, "keys", len(keys), "took", time.Since(start))
			c.queue.Forget(key)
		}
		c.end(key, err)
		c.queue.Done(key)
	}
}

// unanswered reports whether the API server did not answer a request, or not yet: it is away, or starts.
func unanswered(err error) bool {
	var failed *url.Error
	return errors.As(err, &failed) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}

// try reconciles keys, and if that panics, each of them separately.
func (c *Controller) try(ctx context.Context, keys []string) map[string]error {
	errs := map[string]error{}
	err := panics.Catch(c.name, func() error {
		maps.Copy(errs, c.reconcile(ctx, keys))
		return nil
	})
	switch {
	case err == nil:
	case len(keys) == 1:
		errs[keys[0]] = err
	default:
		for _, key := range keys {
			maps.Copy(errs, c.try(ctx, []string{key}))
		}
	}
	return errs
}

// finish waits until all start-up keys are done and runs the OnAttempted functions.
func (c *Controller) finish(ctx context.Context) {
	if !c.awaitTried(ctx) {
		return
	}
	for _, f := range c.hooks {
		err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			if err := panics.Catch(c.name, func() error { return f(ctx) }); err != nil {
				klog.ErrorS(err, "Completing the start-up failed, will retry", "controller", c.name)
				return false, nil
			}
			return true, nil
		})
		if err != nil {
			return
		}
	}
	c.mu.Lock()
	failing := len(c.failing)
	c.mu.Unlock()
	klog.V(2).InfoS("All start-up keys tried", "controller", c.name, "failing", failing)
	close(c.attempted)
}

// awaitTried waits until every start-up key has been attempted, or none of the remaining ones
// finishes; false if ctx ended.
func (c *Controller) awaitTried(ctx context.Context) bool {
	left := -1
	ticker := time.NewTicker(c.stall)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.tried:
			return true
		case <-ticker.C:
		}
		c.mu.Lock()
		keys := slices.Sorted(maps.Keys(c.untried))
		c.mu.Unlock()
		if len(keys) == left {
			klog.ErrorS(nil, "Start-up keys do not finish, continuing without them", "controller", c.name, "keys", keys)
			return true
		}
		left = len(keys)
	}
}
