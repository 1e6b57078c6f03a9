package master

import (
	"sync"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// written is the state of the status workers.
type written struct {
	mu           sync.Mutex
	patched      map[string]patched   // patches that the lister may not show yet
	unprogrammed map[string]time.Time // by programmed EgressIP, since when some of its pods wait
}

// patched is the result of a status patch, kept as long as the lister still shows the object
// that it was made from.
type patched struct {
	from   *v1.EgressIP
	status v1.EgressIPStatus
}

func newWritten() *written {
	return &written{patched: map[string]patched{}, unprogrammed: map[string]time.Time{}}
}

// known returns the last known status: that of e, or the result of our patch to it.
func (w *written) known(e *v1.EgressIP) v1.EgressIPStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.patched[e.Name]; ok {
		if last.from == e {
			return last.status
		}
		delete(w.patched, e.Name)
	}
	return e.Status
}

// patch records the result of a status patch to e.
func (w *written) patch(e *v1.EgressIP, status v1.EgressIPStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patched[e.Name] = patched{from: e, status: status}
}

// waitingSince returns since when some pods of a programmed EgressIP wait.
func (w *written) waitingSince(key string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, ok := w.unprogrammed[key]
	if !ok {
		since = time.Now()
		w.unprogrammed[key] = since
	}
	return since
}

// waitsNoMore records that no pods wait any more.
func (w *written) waitsNoMore(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unprogrammed, key)
}

// forget removes the state of a deleted EgressIP.
func (w *written) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.patched, key)
	delete(w.unprogrammed, key)
}
