package authn

import (
	"sync"
	"time"
)

// answers remembers for a short time what the API server has said.
type answers[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

func newAnswers[K comparable, V any]() *answers[K, V] { return &answers[K, V]{all: map[K]answer[V]{}} }

// get returns the answer to key; where there is none that is new enough it asks.
// Errors are not remembered.
func (a *answers[K, V]) get(key K, ask func() (V, error)) (V, error) {
	a.mu.Lock()
	known, ok := a.all[key]
	a.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.value, nil
	}
	// From when it is asked on: what changes meanwhile may not be in the answer.
	until := time.Now().Add(lifetime)
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
