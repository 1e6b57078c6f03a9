package snapshot

import "sync"

// keyLock locks keys, each on its own. Unlike with a mutex for each key, nothing remains of a key that is not locked.
type keyLock struct {
	mu       sync.Mutex
	unlocked *sync.Cond
	held     map[string]bool
}

func newKeyLock() *keyLock {
	l := &keyLock{held: map[string]bool{}}
	l.unlocked = sync.NewCond(&l.mu)
	return l
}

// lock waits until nobody else holds a key, and returns the function that unlocks it.
func (l *keyLock) lock(key string) (unlock func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held[key] {
		l.unlocked.Wait()
	}
	l.held[key] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, key)
		l.unlocked.Broadcast()
	}
}
