package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// namespaces are the namespaces all of whose pods are watched, while EgressServices need them: a
// node needs the pods of other nodes only for the EgressServices that it translates for,
// usually few.
type namespaces struct {
	open func(namespace string) (cache.SharedIndexInformer, error)
	// follow makes a controller handle the events of an informer, once the pods are known.
	follow func(inf cache.SharedIndexInformer, known *atomic.Bool) (cache.InformerSynced, error)
	// enqueue enqueues EgressServices to be reconciled again.
	enqueue func(keys ...string)

	running sync.WaitGroup
	mu      sync.Mutex
	watched map[string]*namespace
	closed  bool
}

// listTimeout is how long an EgressService may wait for the list of the pods of its
// namespace, which delays others.
const listTimeout = 10 * time.Second

// namespace is one of these namespaces.
type namespace struct {
	users  map[string]bool // the keys of the EgressServices that need it
	pods   cache.Indexer
	synced []cache.InformerSynced
	ended  context.Context
	stop   context.CancelFunc

	priming sync.Mutex
	known   atomic.Bool
	late    atomic.Bool // the list did not arrive in time: no reconciler waits for it any more
}

func newNamespaces(open func(string) (cache.SharedIndexInformer, error)) *namespaces {
	return &namespaces{open: open, watched: map[string]*namespace{}}
}

// pods returns all pods of a namespace, or nil if they are not known.
func (n *namespaces) pods(name string) cache.Indexer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watched[name]; w != nil && w.known.Load() {
		return w.pods
	}
	return nil
}

// use watches the pods of a namespace for an EgressService.
func (n *namespaces) use(name, key string) (*namespace, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watched[name]; w != nil {
		w.users[key] = true
		return w, nil
	}
	if n.closed {
		return nil, fmt.Errorf("watch the pods of namespace %s: %w", name, context.Canceled)
	}
	inf, err := n.open(name)
	if err != nil {
		return nil, fmt.Errorf("watch the pods of namespace %s: %w", name, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &namespace{users: map[string]bool{key: true}, pods: inf.GetIndexer(), ended: ctx, stop: stop}
	handlersSynced, err := n.follow(inf, &w.known)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch the pods of namespace %s: %w", name, err)
	}
	w.synced = []cache.InformerSynced{inf.HasSynced, handlersSynced}
	n.watched[name] = w
	n.running.Go(func() { inf.RunWithContext(ctx) })
	klog.V(2).InfoS("Watching the pods of a namespace", "namespace", name, "egressService", key)
	return w, nil
}

// listed waits for the list of the pods of a namespace for a limited time, and returns false if it did
// not arrive. In that case the EgressServices that need it are enqueued when it does.
func (n *namespaces) listed(ctx context.Context, w *namespace) bool {
	if w.late.Load() {
		return !slices.ContainsFunc(w.synced, func(synced cache.InformerSynced) bool { return !synced() })
	}
	waiting, end := context.WithTimeout(ctx, listTimeout)
	defer end()
	if queue.Informed(waiting, "egressservice-node", w.synced...) {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || ctx.Err() != nil || w.late.Swap(true) {
		return false
	}
	n.running.Go(func() {
		if cache.WaitForCacheSync(w.ended.Done(), w.synced...) {
			n.mu.Lock()
			users := slices.Collect(maps.Keys(w.users))
			n.mu.Unlock()
			n.enqueue(users...)
		}
	})
	return false
}

// release records that an EgressService no longer needs the pods of other nodes.
func (n *namespaces) release(name, key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watched[name]
	if w == nil || !w.users[key] {
		return
	}
	if delete(w.users, key); len(w.users) == 0 {
		w.stop()
		delete(n.watched, name)
		klog.V(2).InfoS("Stopped watching the pods of a namespace", "namespace", name)
	}
}

// Close stops the watches started by Know, and waits for them to end.
func (r *Reader) Close() {
	n := r.known
	n.mu.Lock()
	n.closed = true
	for name, w := range n.watched {
		w.stop()
		delete(n.watched, name)
	}
	n.mu.Unlock()
	n.running.Wait()
}

// Knows reports whether all pods of the namespace of an EgressService are known, and remain
// known until it is released.
func (r *Reader) Knows(eg *v1.EgressService) bool {
	n := r.known
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watched[eg.Namespace]
	return n.open == nil || w != nil && w.users[eg.Namespace+"/"+eg.Name] && w.known.Load()
}

// Know makes sure that all pods of the namespace of an EgressService are known, and not
// only those of this node, until Forget or Release. It waits for that up to ten seconds, after which it
// returns an error. Services decoded earlier may lack pods of other nodes. Know also returns the EgressServices
// affected by the change, as Decode does.
func (r *Reader) Know(ctx context.Context, eg *v1.EgressService) (others []string, err error) {
	if r.informers.Namespace == nil {
		return nil, nil
	}
	w, err := r.known.use(eg.Namespace, eg.Namespace+"/"+eg.Name)
	if err != nil {
		return nil, err
	}
	if !r.known.listed(ctx, w) {
		return nil, fmt.Errorf("the API server has not listed the pods of namespace %s", eg.Namespace)
	}
	w.priming.Lock()
	defer w.priming.Unlock()
	if w.known.Load() {
		return nil, nil
	}
	// From here on, pods of other nodes are endpoints, which older EgressServices may have.
	w.known.Store(true)
	all, err := r.egress.EgressServices(eg.Namespace).List(labels.Everything())
	if err == nil {
		others, err = r.decodeAll(all)
	}
	if err != nil {
		w.known.Store(false)
		return nil, fmt.Errorf("read the EgressServices of namespace %s: %w", eg.Namespace, err)
	}
	return others, nil
}

// Release records that an EgressService does not need the pods of other nodes.
func (r *Reader) Release(eg *v1.EgressService) {
	r.known.release(eg.Namespace, eg.Namespace+"/"+eg.Name)
}
