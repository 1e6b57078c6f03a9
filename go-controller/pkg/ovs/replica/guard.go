// Package replica tells when the OVSDB client library's replica of a database no longer has everything. If an
// update cannot be applied, the library leaves out that row and others of the same update for good; if events
// arrive faster than they are handled, it leaves out events. Either is only logged. The mend is a new connection,
// with a new replica.
//
// Callers: the drivers that keep replicas.
package replica

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-logr/logr"
)

// cacheName is the name under which the library's replica logs. What it logs there as an error is an update that it
// could not apply, and at level 0 an event that it left out.
const cacheName = "cache"

// errEvents means that events were left out.
var errEvents = errors.New("a replica changed faster than the changes were handled")

// Guard watches one replica.
type Guard struct {
	broken func(error)
	filled atomic.Bool
}

// NewGuard returns a guard that calls broken each time the replica loses something. broken must not block.
func NewGuard(broken func(error)) *Guard { return &Guard{broken: broken} }

// Filled says that the replica has its initial rows. Call it before they are read: events that were left out until
// then do not matter.
func (g *Guard) Filled() { g.filled.Store(true) }

// Logger returns the logger for the library's client. It passes everything on to another one.
func (g *Guard) Logger(to logr.Logger) logr.Logger {
	return logr.New(sink{guard: g, to: to.WithCallDepth(2)})
}

// sink is the logger of the client, or of its replica.
type sink struct {
	guard   *Guard
	to      logr.Logger
	replica bool
}

func (s sink) Init(logr.RuntimeInfo) {}

func (s sink) Enabled(level int) bool { return s.replica && level == 0 || s.to.V(level).Enabled() }

func (s sink) Info(level int, msg string, keysAndValues ...any) {
	if s.replica && level == 0 && s.guard.filled.Load() {
		s.guard.broken(fmt.Errorf("%w: %s", errEvents, msg))
	}
	s.to.V(level).Info(msg, keysAndValues...)
}

func (s sink) Error(err error, msg string, keysAndValues ...any) {
	if s.replica {
		s.guard.broken(fmt.Errorf("update a replica: %w", err))
	}
	s.to.Error(err, msg, keysAndValues...)
}

func (s sink) WithName(name string) logr.LogSink {
	return sink{guard: s.guard, to: s.to.WithName(name), replica: name == cacheName}
}

func (s sink) WithValues(keysAndValues ...any) logr.LogSink {
	s.to = s.to.WithValues(keysAndValues...)
	return s
}
