package fakeapi

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// queued is a watch of a fake clientset with an unbounded queue. The tracker's own watch has a small buffer, and
// panics when it overflows.
type queued struct {
	source  *watch.RaceFreeFakeWatcher
	result  chan watch.Event
	full    chan struct{} // makes the goroutine take everything from the source
	stopped chan struct{}
	ended   chan struct{}
	stop    sync.Once

	mu      sync.Mutex
	begun   bool
	pending []watch.Event // owned by the goroutine once it has started
}

func newQueued(source *watch.RaceFreeFakeWatcher) *queued {
	return &queued{source: source, result: make(chan watch.Event), full: make(chan struct{}), stopped: make(chan struct{}), ended: make(chan struct{})}
}

// ResultChan implements watch.Interface.
func (q *queued) ResultChan() <-chan watch.Event { return q.result }

// Stop implements watch.Interface.
func (q *queued) Stop() {
	q.source.Stop()
	q.stop.Do(func() { close(q.stopped) })
}

// begin starts to deliver events.
func (q *queued) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begun = true
	go q.deliver()
}

// deliver forwards events until the watch is stopped or the source has ended.
func (q *queued) deliver() {
	defer close(q.ended)
	defer close(q.result)
	source := q.source.ResultChan()
	for source != nil || len(q.pending) > 0 {
		var first watch.Event
		var result chan<- watch.Event
		if len(q.pending) > 0 {
			first, result = q.pending[0], q.result
		}
		select {
		case event, more := <-source:
			if !more {
				source = nil
				continue
			}
			q.pending = append(q.pending, event)
		case result <- first:
			q.pending = q.pending[1:]
		case <-q.full:
			q.take()
		case <-q.stopped:
			return
		}
	}
}

// take moves everything from the source to the queue.
func (q *queued) take() {
	for {
		select {
		case event, more := <-q.source.ResultChan():
			if !more {
				return
			}
			q.pending = append(q.pending, event)
		default:
			return
		}
	}
}

// makeRoom returns once the source has room for the events of the next request.
func (q *queued) makeRoom() {
	if events := q.source.ResultChan(); len(events) < cap(events)/2 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.begun {
		q.take()
		return
	}
	select {
	case q.full <- struct{}{}:
	case <-q.ended:
	}
}

// watches are the watches of one clientset.
type watches struct {
	mu  sync.Mutex
	all []*queued
}

// add gives a tracker's watch a queue, which does not deliver anything yet.
func (ws *watches) add(w watch.Interface) *queued {
	source, ok := w.(*watch.RaceFreeFakeWatcher)
	if !ok {
		panic(fmt.Sprintf("the tracker's watch is a %T", w))
	}
	q := newQueued(source)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all = append(ws.all, q)
	return q
}

// begin starts a watch.
func (ws *watches) begin(cs Clientset, r schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (*queued, error) {
	w, err := cs.Tracker().Watch(r, namespace, opts)
	if err != nil {
		return nil, err
	}
	q := ws.add(w)
	q.begin()
	return q, nil
}

// makeRoom is a reaction to every request that runs before the clientset carries it out.
func (ws *watches) makeRoom(clienttesting.Action) (bool, runtime.Object, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, q := range ws.all {
		q.makeRoom()
	}
	return false, nil, nil
}
