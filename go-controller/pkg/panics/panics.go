package panics

import (
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"
)

// Error is a panic as an error.
type Error struct {
	// Value is the value passed to panic.
	Value any
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var (
	mu     sync.Mutex
	counts = map[string]uint64{}
)

// Catch calls f and returns its error. A panic of f is logged, counted for part,
// and returned as an *Error.
func Catch(part string, f func() error) (err error) {
	count(part, 0)
	defer func() {
		if v := recover(); v != nil {
			note(part, v)
			err = &Error{Value: v}
		}
	}()
	return f()
}

// Count counts a panic that the caller has already recovered and logged.
func Count(part string) { count(part, 1) }

func count(part string, n uint64) {
	mu.Lock()
	defer mu.Unlock()
	counts[part] += n
}

func note(part string, value any) {
	Count(part)
	klog.ErrorS(nil, "Recovered from a panic", "part", part, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
}

// Counts returns how many panics have been recovered in each part since the process started; 0 for parts that have
// run without a panic.
func Counts() map[string]uint64 {
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(counts)
}

// Handler confines a panic of h to its request, which is answered with Internal Server Error.
func Handler(part string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := Catch(part, func() error {
			h.ServeHTTP(w, r)
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}
