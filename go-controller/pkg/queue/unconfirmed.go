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
// hangs sends no reports: nothing is forgotten meanwhile, and what it reports after so long a pause may be about earlier changes
// again, so the while begins anew.
type Unconfirmed struct {
	mu      sync.Mutex
	changed bool
	first   time.Time // when the first report after the change, or after a long pause, came; zero: none came
	last    time.Time // when the last report came
}

// Changed notes a change.
func (u *Unconfirmed) Changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed, u.first = true, time.Time{}
}

// Reported notes a report, and returns whether it may be the one that includes a change, and how long
// after the first report it comes.
func (u *Unconfirmed) Reported() (late time.Duration, matters bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.changed {
		return 0, false
	}
	now := time.Now()
	if u.first.IsZero() || now.Sub(u.last) >= confirmTime {
		u.first = now
	}
	u.last = now
	late = now.Sub(u.first)
	u.changed = late < confirmTime
	return late, true
}

// Waiting reports whether there is a change that later reports may still include.
func (u *Unconfirmed) Waiting() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed
}
