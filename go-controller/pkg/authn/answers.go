package authn

import (
	"sync"
	"time"
)

// answers caches answers of the API server for a short time.
type answers[K comparable, V any] struct {
	lifetime time.Duration

	mu  sync.Mutex
	all map[K]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

func newAnswers[K comparable, V any]() *answers[K, V] {
	return &answers[K, V]{lifetime: lifetime, all: map[K]answer[V]{}}
}

// get returns the answer for key, and asks if there is no recent one. Errors are not cached.
func (a *answers[K, V]) get(key K, ask func() (V, error)) (V, error) {
	a.mu.Lock()
	known, ok := a.all[key]
	a.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.value, nil
	}
	// The lifetime starts before asking: the answer may not reflect changes made meanwhile.
	until := time.Now().Add(a.lifetime)
	value, err := ask()
	if err != nil {
		return value, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= remembered {
		clear(a.all)
	}
	a.all[key] = answer[V]{value, until}
	return value, nil
}
