package waits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Reasons of the Events about waits. docs/conditions.md describes what to do about each.
const (
	// ReasonAPIServer: the API server does not answer an informer's request, or refuses it.
	ReasonAPIServer = "WaitingForAPIServer"
	// ReasonDatabase: there is no connection to a database.
	ReasonDatabase = "WaitingForDatabase"
	// ReasonDaemon: a daemon of the node does not respond.
	ReasonDaemon = "WaitingForDaemon"
	// ReasonNetwork: the network of a node is not complete.
	ReasonNetwork = "WaitingForNetwork"
	// ReasonStart: objects that existed at startup have not been tried yet.
	ReasonStart = "WaitingForStart"
)

// ReportAfter is how long a wait, or a failure, lasts before administrators are told of it.
const ReportAfter = 30 * time.Second

// Wait is something that a part of the program is waiting for.
type Wait struct {
	// Part is the part of the program, as in metrics.
	Part string
	// Object is the object that is waiting, "" if all are.
	Object string
	// For is what is missing.
	For string
	// Reason is the reason of the Event; "" if there is none, because the wait is normal or is reported elsewhere.
	Reason string
	// Limit is when the wait ends anyway, by continuing or giving up; 0 means that it lasts until the condition is
	// met, without blocking anything else meanwhile.
	Limit time.Duration
	Since time.Time
}

// String formats the wait as one line.
func (w Wait) String() string {
	who := w.Part
	if w.Object != "" {
		who = fmt.Sprintf("%s %q", w.Part, w.Object)
	}
	limit := ""
	if w.Limit > 0 {
		limit = fmt.Sprintf(", for %s at most", w.Limit)
	}
	return fmt.Sprintf("%s waits for %s (since %s%s)", who, strings.ReplaceAll(w.For, "\n", " "), w.Since.UTC().Format(time.RFC3339), limit)
}

// sources are the registered sources of waits.
var sources = struct {
	sync.Mutex
	all   map[*source]struct{}
	parts map[string]struct{} // that have ever waited
}{all: map[*source]struct{}{}, parts: map[string]struct{}{}}

type source struct{ waits func() []Wait }

// Report makes All include what f returns, until stop is called. f must be fast and do no I/O.
func Report(f func() []Wait) (stop func()) {
	s := &source{waits: f}
	sources.Lock()
	defer sources.Unlock()
	sources.all[s] = struct{}{}
	return func() {
		sources.Lock()
		defer sources.Unlock()
		delete(sources.all, s)
	}
}

// All returns what this process waits for, sorted by part and object.
func All() []Wait {
	sources.Lock()
	registered := make([]*source, 0, len(sources.all))
	for s := range sources.all {
		registered = append(registered, s)
	}
	sources.Unlock()
	var all []Wait
	for _, s := range registered {
		all = append(all, s.waits()...)
	}
	slices.SortFunc(all, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Object, b.Object), cmp.Compare(a.For, b.For))
	})
	return all
}

// Counts returns the number of waits of each part; 0 for parts that have waited before.
func Counts() map[string]int {
	counts := map[string]int{}
	all := All()
	sources.Lock()
	defer sources.Unlock()
	for _, w := range all {
		sources.parts[w.Part] = struct{}{}
		counts[w.Part]++
	}
	for part := range sources.parts {
		counts[part] += 0
	}
	return counts
}

// Begun is a wait in progress.
type Begun struct {
	stop func()

	mu   sync.Mutex
	wait Wait
}

// Begin starts a wait. The caller must call End.
func Begin(w Wait) *Begun {
	w.Since = time.Now()
	b := &Begun{wait: w}
	b.stop = Report(func() []Wait {
		b.mu.Lock()
		defer b.mu.Unlock()
		return []Wait{b.wait}
	})
	return b
}

// For updates what is missing.
func (b *Begun) For(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait.For = what
}

// End ends the wait; on a nil Begun it does nothing.
func (b *Begun) End() {
	if b != nil {
		b.stop()
	}
}

// Until waits for done to be closed; it returns false if ctx ends first.
func Until(ctx context.Context, done <-chan struct{}, w Wait) bool {
	select {
	case <-done:
		return true
	default:
	}
	defer Begin(w).End()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Lost is a wait for something that comes and goes, e.g. a connection. It is safe for concurrent use.
type Lost struct {
	mu    sync.Mutex
	begun *Begun
}

// Set starts w or updates what it is for if err is not nil, and ends it otherwise.
func (l *Lost) Set(w Wait, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.begun.End()
		l.begun = nil
	case l.begun == nil:
		w.For += ": " + err.Error()
		l.begun = Begin(w)
	default:
		l.begun.For(w.For + ": " + err.Error())
	}
}
