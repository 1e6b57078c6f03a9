package kube

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Unseen records the objects whose metadata this process has written and for which no event
// has arrived since. Event filters that compare an object with its previous state must let the
// next event pass: if a watch was lost meanwhile, the event may show a state in which
// somebody has reverted the write, which looks like the previous one. The zero value
// is ready for use, and it is safe for concurrent use.
type Unseen struct {
	mu      sync.Mutex
	written map[types.UID]bool
}

// wrote records that an object is about to be written.
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

// Follows reports whether an event is the first one of an object since it was written. A list
// that shows the previous version says nothing about the write.
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
