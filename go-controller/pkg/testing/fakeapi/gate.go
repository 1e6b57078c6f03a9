package fakeapi

import (
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// Gate delays the events of a watch. The zero value is open.
type Gate struct{ permits atomic.Value }

// Filter returns a watch with the events of w, each of which waits at the gate.
func (g *Gate) Filter(w watch.Interface) watch.Interface {
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if permits, closed := g.permits.Load().(chan struct{}); closed {
			<-permits
		}
		return e, true
	})
}

// Hold closes the gate, until Open or the end of the test.
func (g *Gate) Hold(t testing.TB) {
	g.permits.Store(make(chan struct{}))
	t.Cleanup(g.Open)
}

// Pass lets one event pass the closed gate. It waits for it.
func (g *Gate) Pass() { g.permits.Load().(chan struct{}) <- struct{}{} }

// Open lets all further events pass.
func (g *Gate) Open() {
	permits := g.permits.Load().(chan struct{})
	select {
	case <-permits:
	default:
		close(permits)
	}
}
