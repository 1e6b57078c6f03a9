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
)

// Backoff bounds of a failing key.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Controller turns events into keys and reconciles them, one by one or many
// together. It is safe for concurrent use; a key is never worked by two workers at
// once.
type Controller struct {
	name      string
	limit     int // of the keys that are reconciled together
	reconcile func(ctx context.Context, keys []string) map[string]error
	queue     workqueue.TypedRateLimitingInterface[string]
	synced    []cache.InformerSynced
	seeds     []func() []string
	onSeeded  []func(ctx context.Context) error

	// taking is of the worker that takes keys, or waits for one. Keys that are
	// enqueued together hold bulk for reading: who takes sees all or none of them.
	taking sync.Mutex
	bulk   sync.RWMutex

	mu      sync.Mutex
	pending map[string]struct{} // start-up keys not reconciled yet; nil before seeding
	settled chan struct{}       // closed when pending has become empty
	seeded  chan struct{}
}

// New returns a controller that calls reconcile for each key. An error returned
// by reconcile is logged, and the key is tried again after a back-off of 50 ms
// that doubles up to 30 s.
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
func NewBatch(name string, limit int, reconcile func(ctx context.Context, keys []string) map[string]error) *Controller {
	return &Controller{
		name:      name,
		limit:     limit,
		reconcile: reconcile,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: name}),
		settled: make(chan struct{}),
		seeded:  make(chan struct{}),
	}
}

// Watch enqueues keys(old, new) for every event of inf. For an added object old
// is nil, for a deleted one new is nil: a function that looks at both cannot
// miss what an object was before. A deletion seen only by a relist arrives with
// the last known state. Watch is called before Run.
func (c *Controller) Watch(inf cache.SharedIndexInformer, keys func(old, new any) []string) error {
	h, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.Enqueue(keys(nil, obj)...) },
		UpdateFunc: func(old, new any) { c.Enqueue(keys(old, new)...) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			c.Enqueue(keys(obj, nil)...)
		},
	})
	if err != nil {
		return fmt.Errorf("watch for %s: %w", c.name, err)
	}
	c.synced = append(c.synced, h.HasSynced)
	return nil
}

// Seed adds a function whose keys are reconciled once at start-up, after the
// watched informers have synced: the objects in the listers and the owners
// present in the target. Only keys that a seed names hold OnSeeded back.
func (c *Controller) Seed(keys func() []string) { c.seeds = append(c.seeds, keys) }

// OnSeeded adds a function that runs once when every start-up key has been
// reconciled successfully, e.g. a Sweep. It is retried until it succeeds.
func (c *Controller) OnSeeded(f func(ctx context.Context) error) { c.onSeeded = append(c.onSeeded, f) }

// Seeded is closed when every start-up key has been reconciled successfully
// and the OnSeeded functions have run.
func (c *Controller) Seeded() <-chan struct{} { return c.seeded }

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
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("run %s: stopped before the caches synced", c.name)
	}
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
		c.settle(ctx)
	}()
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
	return nil
}

// seed enqueues the start-up keys and remembers which are still to be done.
func (c *Controller) seed() {
	pending := map[string]struct{}{}
	for _, f := range c.seeds {
		for _, k := range f() {
			pending[k] = struct{}{}
		}
	}
	c.mu.Lock()
	c.pending = pending
	if len(pending) == 0 {
		close(c.settled)
	}
	c.mu.Unlock()
	c.Enqueue(slices.Collect(maps.Keys(pending))...)
}

// done takes a key off the start-up keys.
func (c *Controller) done(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.pending[key]; !ok {
		return
	}
	delete(c.pending, key)
	if len(c.pending) == 0 {
		close(c.settled)
	}
}

// take waits for a key and returns it with the others that are ready; none after
// the end of the queue.
func (c *Controller) take() []string {
	c.taking.Lock()
	defer c.taking.Unlock()
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
	errs := c.reconcile(ctx, keys)
	c.bulk.RLock() // what was enqueued meanwhile comes back together, too
	defer c.bulk.RUnlock()
	for _, key := range keys {
		if err := errs[key]; err != nil {
			if ctx.Err() == nil {
				klog.ErrorS(err, "Reconcile failed, will retry", "controller", c.name, "key", key,
					"failures", c.queue.NumRequeues(key)+1)
			}
			c.queue.AddRateLimited(key)
		} else {
			klog.V(5).InfoS("Reconciled", "controller", c.name, "key", key, "keys", len(keys), "took", time.Since(start))
			c.queue.Forget(key)
			c.done(key)
		}
		c.queue.Done(key)
	}
	return true
}

// settle waits until all start-up keys are done and runs the OnSeeded functions.
func (c *Controller) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-c.settled:
	}
	for _, f := range c.onSeeded {
		err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			if err := f(ctx); err != nil {
				klog.ErrorS(err, "Start-up sweep failed, will retry", "controller", c.name)
				return false, nil
			}
			return true, nil
		})
		if err != nil {
			return
		}
	}
	klog.V(2).InfoS("All start-up keys reconciled", "controller", c.name)
	close(c.seeded)
}
