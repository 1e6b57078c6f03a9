package authn

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// answers caches answers of the API server for a short time.
type answers[K comparable, V any] struct {
	lifetime time.Duration
	// outage is how long a positive answer may be used if the API server cannot be asked again.
	outage   time.Duration
	positive func(V) bool

	mu  sync.Mutex
	all map[K]answer[V]
}

type answer[V any] struct {
	value V
	asked time.Time
	// It is used without asking before until, and during an outage before last.
	until, last time.Time
}

func newAnswers[K comparable, V any](positive func(V) bool) *answers[K, V] {
	return &answers[K, V]{lifetime: lifetime, positive: positive, all: map[K]answer[V]{}}
}

// get returns the answer for key, and asks if there is no recent one. Errors are not cached.
func (a *answers[K, V]) get(key K, ask func() (V, error)) (V, error) {
	a.mu.Lock()
	known, ok := a.all[key]
	a.mu.Unlock()
	// The lifetime starts before asking: the answer may not reflect changes made meanwhile.
	asked := time.Now()
	if ok && asked.Before(known.until) {
		return known.value, nil
	}
	value, err := ask()
	if err != nil {
		return a.again(key, err)
	}
	said := answer[V]{value: value, asked: asked, until: asked.Add(a.lifetime)}
	if a.positive(value) {
		said.last = asked.Add(a.outage)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok = a.all[key]
	if ok && said.asked.Before(known.asked) { // a later question has been answered first
		return value, nil
	}
	if !ok && len(a.all) >= remembered {
		a.evict()
	}
	a.all[key] = said
	return value, nil
}

// again returns an earlier positive answer if err says that the API server could not be asked. It is used for one more
// lifetime, so that not every request waits for an API server that is silent.
func (a *answers[K, V]) again(key K, err error) (V, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	known, ok := a.all[key]
	if !ok || !errors.As(err, new(unreachable)) || !now.Before(known.last) {
		var none V
		return none, err
	}
	klog.ErrorS(err, "Cannot ask the API server about a request, its last answer is used", "age", now.Sub(known.asked))
	known.until = now.Add(a.lifetime)
	if known.last.Before(known.until) {
		known.until = known.last
	}
	a.all[key] = known
	return known.value, nil
}

// evict makes room: negative answers and those that are not used any more go first, so that strangers cannot evict what is
// known of others, then the oldest one.
func (a *answers[K, V]) evict() {
	now := time.Now()
	var oldest K
	var at time.Time
	for key, known := range a.all {
		if !a.positive(known.value) || !now.Before(known.until) && !now.Before(known.last) {
			delete(a.all, key)
		} else if at.IsZero() || known.asked.Before(at) {
			oldest, at = key, known.asked
		}
	}
	if len(a.all) >= remembered {
		delete(a.all, oldest)
	}
}

// unreachable is the error of a question that the API server has not answered.
type unreachable struct{ error }

func (e unreachable) Unwrap() error { return e.error }

// unanswered marks the error of a question unless it is an answer: that the question is refused. An API server that starts
// has not answered; one that has too many requests has, since strangers may be the reason.
func unanswered(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return err
	}
	return unreachable{err}
}
