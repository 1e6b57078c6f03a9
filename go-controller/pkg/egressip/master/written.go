package master

import (
	"sync"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// written is the state of the status workers.
type written struct {
	patched kube.Patches[*v1.EgressIP]

	mu           sync.Mutex
	unprogrammed map[string]time.Time // by programmed EgressIP, since when some of its pods wait
}

func newWritten() *written {
	return &written{unprogrammed: map[string]time.Time{}}
}

// last returns the last known state of e: what it is, or the result of our patch to it.
func (w *written) last(e *v1.EgressIP) *v1.EgressIP { return w.patched.Known(e.Name, e) }

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
	w.patched.Forget(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unprogrammed, key)
}
