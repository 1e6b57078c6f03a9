// Package eventually waits in tests for something to happen, with a single timeout that is long enough on a loaded
// machine too, and reports the actual state on failure.
//
// Inside a testing/synctest bubble it uses the bubble's time.
//
// Imported by tests only.
package eventually

import (
	"errors"
	"testing"
	"time"
)

// Bound is how long a condition may take to become true. A passing run never waits that long.
const Bound = time.Minute

// longest is the longest pause between two checks.
const longest = 20 * time.Millisecond

// Option changes how to wait.
type Option func(*options)

type options struct {
	dump func() string
	stay time.Duration
}

// Dump adds the actual state to a failure message.
func Dump(state func() string) Option { return func(o *options) { o.dump = state } }

// Stays requires a condition that became true to stay true for a while.
func Stays(window time.Duration) Option { return func(o *options) { o.stay = window } }

var errFalse = errors.New("it is not so")

// True waits until ok returns true. what completes the sentence "waited in vain for ...".
func True(t testing.TB, what string, ok func() bool, opts ...Option) {
	t.Helper()
	Succeeds(t, what, func() error {
		if ok() {
			return nil
		}
		return errFalse
	}, opts...)
}

// Succeeds is like True, for a condition whose error says what is missing.
func Succeeds(t testing.TB, what string, condition func() error, opts ...Option) {
	t.Helper()
	o := collect(opts)
	bound := time.After(Bound)
	var stayed <-chan time.Time
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		err := condition()
		switch {
		case err != nil && stayed != nil:
			t.Fatalf("%s came, but did not last for %v%s%s", what, o.stay, reason(err), o.state())
		case err == nil && o.stay == 0:
			return
		case err == nil && stayed == nil:
			stayed = time.After(o.stay)
		}
		select {
		case <-time.After(pause):
		case <-stayed:
			return
		case <-bound:
			t.Fatalf("waited in vain for %s%s%s", what, reason(err), o.state())
		}
	}
}

// Receive returns the next value of a channel, immediately if it is closed.
func Receive[T any](t testing.TB, what string, ch <-chan T, opts ...Option) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Bound):
		t.Fatalf("waited in vain for %s%s", what, collect(opts).state())
		panic("unreachable")
	}
}

func collect(opts []Option) options {
	var o options
	for _, set := range opts {
		set(&o)
	}
	return o
}

func (o options) state() string {
	if o.dump == nil {
		return ""
	}
	return "\n" + o.dump()
}

func reason(err error) string {
	if err == nil || errors.Is(err, errFalse) {
		return ""
	}
	return ": " + err.Error()
}
