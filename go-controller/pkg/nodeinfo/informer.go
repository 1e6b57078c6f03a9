package nodeinfo

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// informer serves the nodes of a View. It inherits its other methods from the View's source informer.
type informer struct {
	cache.SharedIndexInformer
	indexer cache.Indexer

	mu       sync.Mutex
	synced   bool
	handlers []*registration
	shown    map[string]*corev1.Node // the nodes last passed to handlers
}

// registration is an added handler.
type registration struct {
	of      *informer
	handler cache.ResourceEventHandler
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return r.of.HasSynced() }

func newInformer(behind cache.SharedIndexInformer) *informer {
	return &informer{
		SharedIndexInformer: behind,
		indexer:             cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		shown:               map[string]*corev1.Node{},
	}
}

// replace replaces all nodes and notifies the handlers, which must not block.
func (i *informer) replace(nodes map[string]*corev1.Node) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, old := range i.shown {
		if nodes[name] != nil {
			continue
		}
		_ = i.indexer.Delete(old) // an object with a name has a key
		delete(i.shown, name)
		for _, r := range i.handlers {
			r.handler.OnDelete(old)
		}
	}
	for name, n := range nodes {
		old := i.shown[name]
		if old == n {
			continue
		}
		i.shown[name] = n
		if old == nil {
			_ = i.indexer.Add(n)
		} else {
			_ = i.indexer.Update(n)
		}
		for _, r := range i.handlers {
			if old == nil {
				r.handler.OnAdd(n, !i.synced)
			} else {
				r.handler.OnUpdate(old, n)
			}
		}
	}
}

// sync marks the informer as synced: all nodes that existed at startup have been passed to handlers.
func (i *informer) sync() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.synced = true
}

// HasSynced implements cache.SharedIndexInformer.
func (i *informer) HasSynced() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.synced
}

// AddEventHandler implements cache.SharedIndexInformer.
func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &registration{of: i, handler: h}
	i.handlers = append(i.handlers, r)
	for _, n := range i.shown {
		h.OnAdd(n, true)
	}
	return r, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedIndexInformer. There are no resyncs.
func (i *informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// AddEventHandlerWithOptions implements cache.SharedIndexInformer.
func (i *informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// RemoveEventHandler implements cache.SharedIndexInformer.
func (i *informer) RemoveEventHandler(h cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := slices.IndexFunc(i.handlers, func(r *registration) bool { return r == h })
	if n < 0 {
		return fmt.Errorf("the handler is not registered")
	}
	i.handlers = slices.Delete(i.handlers, n, n+1)
	return nil
}

// GetStore implements cache.SharedIndexInformer.
func (i *informer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements cache.SharedIndexInformer.
func (i *informer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers implements cache.SharedIndexInformer.
func (i *informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }
