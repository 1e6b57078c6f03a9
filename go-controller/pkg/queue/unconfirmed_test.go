package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUnconfirmed: reports matter from a change until some time after the first of them, however long that takes
// to come.
func TestUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u Unconfirmed
		reported := func(what string, want bool) {
			t.Helper()
			if _, got := u.Reported(); got != want {
				t.Errorf("%s: a report matters: %t, want %t", what, got, want)
			}
		}
		wait := func(d time.Duration) { <-time.After(d) }
		reported("before any change", false)
		for range 2 {
			u.Changed()
			wait(24 * time.Hour) // the component hangs
			reported("the first", true)
			wait(confirmTime - 1)
			reported("a later one", true)
			wait(1)
			reported("the last", true)
			reported("later still", false)
		}
		u.Changed()
		reported("the first", true)
		wait(confirmTime)
		u.Changed()
		reported("the first of another change", true)
		wait(confirmTime - 1)
		reported("a later one of another change", true)
		wait(24 * time.Hour) // the component hangs, after it has reported something earlier
		reported("the first after a pause", true)
		reported("the second after a pause", true)
		wait(confirmTime - 1)
		reported("a later one after a pause", true)
		wait(1)
		reported("the last after a pause", true)
		reported("later still after a pause", false)
	})
}
