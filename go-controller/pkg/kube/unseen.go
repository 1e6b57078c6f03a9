package kube

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Unseen has the objects whose metadata this process has written and no event of which
// has come since. Filters of events that compare an object with the one before let the
// next one pass: where a watch was lost meanwhile, it may be about a state in which
// somebody has undone what was written, and which looks as the one before. Its zero value
// is ready for use, and it is safe for concurrent use.
type Unseen struct {
	mu      sync.Mutex
	written map[types.UID]bool
}

// wrote notes that an object is about to be written.
func (u *Unseen) wrote(uid types.UID) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.written == nil {
		u.written = map[types.UID]bool{}
	}
	u.written[uid] = true
}

// Follows reports whether an event is the first one of an object that was written. A list
// that shows the version before tells nothing of what was written.
func (u *Unseen) Follows(old, new any) bool {
	before, _ := old.(metav1.Object)
	after, _ := new.(metav1.Object)
	if before == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	uid := before.GetUID()
	if v := before.GetResourceVersion(); v != "" && after != nil && after.GetUID() == uid && after.GetResourceVersion() == v {
		return false
	}
	written := u.written[uid]
	delete(u.written, uid)
	return written && after != nil
}
