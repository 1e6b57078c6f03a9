package eventually

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a test whose failure is examined.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run returns what a waiting test reported, and how long it waited, in its own bubble.
func run(t *testing.T, wait func(t testing.TB)) (said string, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		f, start, done := &failing{}, time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			wait(f)
		}()
		<-done
		said, took = f.said, time.Since(start)
	})
	return said, took
}

func TestWaiting(t *testing.T) {
	after := func(d time.Duration) func() bool {
		start := time.Time{}
		return func() bool {
			if start.IsZero() {
				start = time.Now()
			}
			return time.Since(start) >= d
		}
	}
	dump := Dump(func() string { return "one, two" })
	for _, tt := range []struct {
		name, want string
		wait       func(t testing.TB)
		least, max time.Duration
	}{
		{"at once", "", func(t testing.TB) { True(t, "it", func() bool { return true }) }, 0, 0},
		{"soon", "", func(t testing.TB) { True(t, "it", after(time.Second), dump) }, time.Second, time.Second + longest},
		{"late", "", func(t testing.TB) { True(t, "it", after(59*time.Second)) }, 59 * time.Second, Bound},
		{
			"never", "waited in vain for it", func(t testing.TB) { True(t, "it", func() bool { return false }) },
			Bound, Bound,
		},
		{
			"never, with the state", "waited in vain for it: missing\none, two",
			func(t testing.TB) { Succeeds(t, "it", func() error { return errors.New("missing") }, dump) }, Bound, Bound,
		},
		{"stays", "", func(t testing.TB) { True(t, "it", after(0), Stays(time.Second)) }, time.Second, time.Second},
		{"soon, and stays", "", func(t testing.TB) { True(t, "it", after(time.Second), Stays(time.Second)) }, 2 * time.Second, 2*time.Second + longest},
		{
			"does not stay", "it came, but did not last for 1s\none, two", func(t testing.TB) {
				gone := after(time.Second / 2)
				True(t, "it", func() bool { return !gone() }, Stays(time.Second), dump)
			}, time.Second / 2, time.Second/2 + longest,
		},
		{
			"received", "", func(t testing.TB) {
				ch := make(chan int)
				go func() { <-time.After(time.Second); ch <- 5 }()
				if n := Receive(t, "a number", ch); n != 5 {
					t.Fatalf("%d", n)
				}
			}, time.Second, time.Second,
		},
		{
			"closed", "", func(t testing.TB) {
				ch := make(chan struct{})
				close(ch)
				Receive(t, "the end", ch)
			}, 0, 0,
		},
		{"nothing received", "waited in vain for a number\none, two", func(t testing.TB) { Receive(t, "a number", make(chan int), dump) }, Bound, Bound},
	} {
		said, took := run(t, tt.wait)
		if said != tt.want || took < tt.least || took > tt.max {
			t.Errorf("%s: said %q after %v, want %q after %v to %v", tt.name, said, took, tt.want, tt.least, tt.max)
		}
	}
}
