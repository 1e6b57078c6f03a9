package queue

import (
	"sync"
	"time"
)

// confirmTime is how long after its first report a component may still report earlier changes.
const confirmTime = 10 * time.Minute

// Unconfirmed remembers that something has changed that another component has yet to apply. The component
// reports its progress, but not which changes that includes, and the first reports after a change may be about earlier ones. So
// the change counts as unconfirmed until a report comes a while after the first one. A component that
// hangs sends no reports: nothing is forgotten meanwhile.
type Unconfirmed struct {
	mu      sync.Mutex
	changed bool
	first   time.Time // when the first report after the change came; zero: none came
}

// Changed notes a change.
func (u *Unconfirmed) Changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed, u.first = true, time.Time{}
}

// Reported notes a report, and returns whether it may be the one that includes a change.
func (u *Unconfirmed) Reported() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.changed {
		return false
	}
	switch now := time.Now(); {
	case u.first.IsZero():
		u.first = now
	case now.Sub(u.first) >= confirmTime:
		u.changed = false
	}
	return true
}
