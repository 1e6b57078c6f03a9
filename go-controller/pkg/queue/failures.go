package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Failure is a key whose last attempt failed, or whose current attempt takes very long.
type Failure struct {
	Controller, Key string
	// Err is the last error.
	Err error
	// Since is the time of the first failure since the last success.
	Since time.Time
	Tries int
}

// errHangs is the error of a key whose attempt takes longer than the start-up
// waits.
var errHangs = errors.New("reconcile does not come to an end")

// running are the running controllers of this process, for reports.
var running = struct {
	sync.Mutex
	all map[*Controller]bool
}{all: map[*Controller]bool{}}

// register includes c in Failures until the returned function is called.
func register(c *Controller) func() {
	running.Lock()
	defer running.Unlock()
	running.all[c] = true
	return func() {
		running.Lock()
		defer running.Unlock()
		delete(running.all, c)
	}
}

func registered() []*Controller {
	running.Lock()
	defer running.Unlock()
	all := make([]*Controller, 0, len(running.all))
	for c := range running.all {
		all = append(all, c)
	}
	return all
}

// Failures returns the failing keys of all controllers that run in this process, ordered
// by controller and key.
func Failures() []Failure {
	var all []Failure
	for _, c := range registered() {
		all = append(all, c.failures()...)
	}
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// Failing returns the number of failing keys of each controller that runs in this process.
func Failing() map[string]int {
	counts := map[string]int{}
	for _, c := range registered() {
		counts[c.name] += len(c.failures())
	}
	return counts
}

func (c *Controller) failures() []Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Failure
	for _, f := range c.failing {
		all = append(all, f)
	}
	for key, since := range c.working {
		if _, fails := c.failing[key]; !fails && time.Since(since) > c.stall {
			all = append(all, Failure{Controller: c.name, Key: key, Err: errHangs, Since: since})
		}
	}
	return all
}

// String describes the failure in one line.
func (f Failure) String() string {
	return fmt.Sprintf("%s %q: %v (%d tries since %s)", f.Controller, f.Key, f.Err, f.Tries, f.Since.UTC().Format(time.RFC3339))
}

// begin records that an attempt of keys has started.
func (c *Controller) begin(now time.Time, keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.working[key] = now
	}
}

// end records the result of an attempt of a key.
func (c *Controller) end(key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.working, key)
	removeKey(c.untried, key, c.tried)
	if err == nil {
		delete(c.failing, key)
		removeKey(c.unsynced, key, c.syncedAll)
		return
	}
	f, ok := c.failing[key]
	if !ok {
		f = Failure{Controller: c.name, Key: key, Since: time.Now()}
	}
	f.Err = err
	f.Tries++
	c.failing[key] = f
}
