package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Backoff bounds of a failing key.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// stall is how long none of the start-up keys may come to an end before those that
// are left do not hold up Attempted any more.
const stall = time.Minute

// Controller turns events into keys and reconciles them, one by one or many
// together. It is safe for concurrent use; a key is never worked by two workers at
// once.
type Controller struct {
	name            string
	limit           int // of the keys that are reconciled together
	reconcile       func(ctx context.Context, keys []string) map[string]error
	queue           workqueue.TypedRateLimitingInterface[string]
	informersSynced []cache.InformerSynced
	seeds           []func() []string
	hooks           []func(ctx context.Context) error
	stall           time.Duration

	// taking is held by the worker that takes keys, or waits for one: a channel, since
	// who waits for a mutex is never at rest for testing/synctest. Keys that are
	// enqueued together hold bulk for reading: who takes sees all or none of them.
	taking chan struct{}
	bulk   sync.RWMutex

	mu        sync.Mutex
	started   time.Time           // Run was called
	seeded    bool                // untried and unsynced are those of the start
	untried   map[string]struct{} // start-up keys not tried yet
	unsynced  map[string]struct{} // start-up keys that have not spoken yet
	failing   map[string]Failure
	working   map[string]time.Time // since when
	tried     chan struct{}        // closed when untried has become empty
	syncedAll chan struct{}        // closed when silent has become empty
	attempted chan struct{}
}

// New returns a controller that calls reconcile for each key. An error returned
// by reconcile is logged, and the key is tried again after a back-off of 50 ms
// that doubles up to 30 s. A panic in reconcile is an error of its key.
func New(name string, reconcile func(ctx context.Context, key string) error) *Controller {
	return NewBatch(name, 1, func(ctx context.Context, keys []string) map[string]error {
		return map[string]error{keys[0]: reconcile(ctx, keys[0])}
	})
}

// NewBatch returns a controller that calls reconcile for the keys that are ready, up
// to limit of them: for features whose writes are cheaper together. It does not wait
// for more to become ready; but what one Enqueue adds comes as one batch where it
// fits. Reconcile returns the errors by key; a key with an error is tried again as by
// New, the others are done. There should be more than one worker, so that a
// key which comes alone need not wait for a large batch.
//
// When reconcile panics, it is called again for each key of the batch alone, so that
// only the one that makes it panic fails. Whatever it had written by then it finds
// as wanted.
func NewBatch(name string, limit int, reconcile func(ctx context.Context, keys []string) map[string]error) *Controller {
	return &Controller{
		name:      name,
		limit:     limit,
		reconcile: reconcile,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: name}),
		taking:    make(chan struct{}, 1),
		stall:     stall,
		failing:   map[string]Failure{},
		working:   map[string]time.Time{},
		tried:     make(chan struct{}),
		syncedAll: make(chan struct{}),
		attempted: make(chan struct{}),
	}
}

// Watch enqueues keys(old, new) for every event of inf. For an added object old
// is nil, for a deleted one new is nil: a function that looks at both cannot
// miss what an object was before. A deletion seen only by a relist arrives with
// the last known state. Watch is called before Run.
//
// Where keys panics, the key "namespace/name" of the object is enqueued: that is
// what most keys are, and one that names nothing reconciles to nothing.
func (c *Controller) Watch(inf cache.SharedIndexInformer, keys func(old, new any) []string) error {
	synced, err := c.Follow(inf, keys)
	if err != nil {
		return err
	}
	c.informersSynced = append(c.informersSynced, synced)
	return nil
}

// Follow is Watch of an informer that the start does not wait for: it may be called
// while the controller runs. What it returns tells whether the keys of all objects that
// were there at first have been enqueued.
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

// Seed adds a function whose keys are reconciled once at start-up, after the
// watched informers have synced: the objects in the listers and the owners
// present in the target. Only keys that a seed names hold Attempted and Synced back.
func (c *Controller) Seed(keys func() []string) { c.seeds = append(c.seeds, keys) }

// OnAttempted adds a function that runs once when every start-up key has been tried.
// It is retried until it succeeds.
func (c *Controller) OnAttempted(f func(ctx context.Context) error) { c.hooks = append(c.hooks, f) }

// Attempted is closed when every start-up key has been tried once, whether or not it
// succeeded, and the OnAttempted functions have run: what waits for the start to be over
// must not wait for one object that keeps failing. A key that hangs holds it up for
// as long as others come to an end, and a minute longer.
//
// A key that has failed has not had its say. What is there of it from an earlier
// run must not be taken for a leftover: whoever deletes what nobody wants waits for
// Synced.
func (c *Controller) Attempted() <-chan struct{} { return c.attempted }

// Synced is closed when every start-up key has been reconciled successfully, or has
// called MarkSynced: what nobody wants then is a leftover.
func (c *Controller) Synced() <-chan struct{} { return c.syncedAll }

// MarkSynced says that reconcile has handed over what key wants of targets that are
// swept. What fails afterwards does not matter to Synced.
func (c *Controller) MarkSynced(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	strike(c.unsynced, key, c.syncedAll)
}

// strike takes a key off a set and closes done when that makes it empty.
func strike(set map[string]struct{}, key string, done chan struct{}) {
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

// EnqueueAfter adds keys after a delay: what a burst of events asks for is done
// once.
func (c *Controller) EnqueueAfter(delay time.Duration, keys ...string) {
	for _, k := range keys {
		c.queue.AddAfter(k, delay)
	}
}

// Run waits for the watched informers, seeds the queue and works until ctx is
// done. It returns nil then, and an error only where the informers never synced.
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
	wg.Add(workers + 1)
	for range workers {
		go func() {
			defer wg.Done()
			for c.next(ctx) {
			}
		}()
	}
	go func() {
		defer wg.Done()
		c.finish(ctx)
	}()
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
	return nil
}

// seed enqueues the start-up keys and remembers which are still to be done.
func (c *Controller) seed() {
	untried := map[string]struct{}{}
	for _, f := range c.seeds {
		// The other seeds name what they can: events bring what this one would have.
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

// take waits for a key and returns it with the others that are ready; none after
// the end of the queue.
func (c *Controller) take() []string {
	c.taking <- struct{}{}
	defer func() { <-c.taking }()
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
	for len(keys) < c.limit && c.queue.Len() > 0 { // nobody else takes any
		key, shutdown := c.queue.Get()
		if shutdown {
			break
		}
		keys = append(keys, key)
	}
	return keys
}

// next reconciles the keys that are ready; false when there will be no more.
func (c *Controller) next(ctx context.Context) bool {
	keys := c.take()
	if len(keys) == 0 {
		return false
	}
	start := time.Now()
	c.begin(start, keys)
	errs := c.try(ctx, keys)
	c.bulk.RLock() // what was enqueued meanwhile comes back together, too
	defer c.bulk.RUnlock()
	for _, key := range keys {
		err := errs[key]
		if err != nil {
			failures := c.queue.NumRequeues(key) + 1
			if ctx.Err() == nil {
				klog.ErrorS(err, "Reconcile failed, will retry", "controller", c.name, "key", key, "failures", failures)
			}
			c.queue.AddRateLimited(key)
		} else {
			klog.V(5).InfoS("Reconciled", "controller", c.name, "key", key, "keys", len(keys), "took", time.Since(start))
			c.queue.Forget(key)
		}
		c.end(key, err)
		c.queue.Done(key)
	}
	return true
}

// try reconciles keys, and where that panics each of them alone.
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
				klog.ErrorS(err, "End of the start-up failed, will retry", "controller", c.name)
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

// awaitTried waits until every start-up key was tried, or none that is left comes to
// an end; false where ctx ended.
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
