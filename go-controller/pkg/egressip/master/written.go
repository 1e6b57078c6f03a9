package master

import (
	"sync"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// written is the state of those that write statuses.
type written struct {
	mu           sync.Mutex
	patched      map[string]patched   // what the lister may not show yet
	unprogrammed map[string]time.Time // since when pods of a programmed one wait
}

// patched is a status patch, as long as the lister still shows the object it was
// made from.
type patched struct {
	from   *v1.EgressIP
	status v1.EgressIPStatus
}

func newWritten() *written {
	return &written{patched: map[string]patched{}, unprogrammed: map[string]time.Time{}}
}

// known returns the status as far as we know: that of e, or what we made of it.
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

// patch notes what was made of the status of e.
func (w *written) patch(e *v1.EgressIP, status v1.EgressIPStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patched[e.Name] = patched{from: e, status: status}
}

// waitingSince returns since when pods of an EgressIP wait that was programmed.
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

// waitsNoMore notes that what waitingSince tells has ended.
func (w *written) waitsNoMore(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unprogrammed, key)
}

// forget drops what is known of an EgressIP that is gone.
func (w *written) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.patched, key)
	delete(w.unprogrammed, key)
}
