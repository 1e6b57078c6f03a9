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

// Reasons of the Events about waits. docs/conditions.md has what to do about each.
const (
	// ReasonAPIServer: the API server does not answer, or refuses, what an informer asks for.
	ReasonAPIServer = "WaitingForAPIServer"
	// ReasonDatabase: there is no connection to a database.
	ReasonDatabase = "WaitingForDatabase"
	// ReasonDaemon: a daemon of the node does not answer.
	ReasonDaemon = "WaitingForDaemon"
	// ReasonNetwork: the network of a node is not complete.
	ReasonNetwork = "WaitingForNetwork"
	// ReasonStart: objects that were there at the start have not been tried yet.
	ReasonStart = "WaitingForStart"
)

// ReportAfter is how long a wait, or a failure, lasts before administrators are told of it.
const ReportAfter = 30 * time.Second

// Wait is something that a part of the program does not go on without.
type Wait struct {
	// Part is the part of the program, as in metrics.
	Part string
	// Object is the one that it does not go on with, "" where it is all of them.
	Object string
	// For is what is missing.
	For string
	// Reason is that of the Event; "" where there is none, because it is in order to
	// wait, or somebody else tells.
	Reason string
	// Limit is after how long it goes on, or gives up, anyway; 0: who waits does so
	// until there is what it waits for, and holds up nobody else meanwhile.
	Limit time.Duration
	Since time.Time
}

// String is one line about the wait.
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

// sources tell what is waited for.
var sources = struct {
	sync.Mutex
	all   map[*source]struct{}
	parts map[string]struct{} // that have waited
}{all: map[*source]struct{}{}, parts: map[string]struct{}{}}

type source struct{ waits func() []Wait }

// Report has All include what f returns, until stop is called. f is quick and does no
// I/O.
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

// All returns what this process waits for, ordered by part and object.
func All() []Wait {
	sources.Lock()
	asked := make([]*source, 0, len(sources.all))
	for s := range sources.all {
		asked = append(asked, s)
	}
	sources.Unlock()
	var all []Wait
	for _, s := range asked {
		all = append(all, s.waits()...)
	}
	slices.SortFunc(all, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Object, b.Object), cmp.Compare(a.For, b.For))
	})
	return all
}

// Counts returns how many waits each part has; 0 of one that has waited before.
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

// Begun is a wait that goes on.
type Begun struct {
	stop func()

	mu   sync.Mutex
	wait Wait
}

// Begin begins a wait now. Whoever waits calls End.
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

// For says what is missing now.
func (b *Begun) For(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wait.For = what
}

// End ends the wait; of no wait it is nothing.
func (b *Begun) End() {
	if b != nil {
		b.stop()
	}
}

// Until waits for done to be closed; false where ctx ended first.
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

// Lost is a wait for something that comes and goes, e.g. a connection. It is safe for
// concurrent use.
type Lost struct {
	mu    sync.Mutex
	begun *Begun
}

// Set begins w, or says what it is for now, where err is not nil, and ends it otherwise.
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
