package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// retryDelay is how long to wait before retrying a sink that failed.
	retryDelay = time.Second
	// maxWaiting is how many records may wait for a sink that fails. Beyond that they are lost, and the current
	// state is stated again when the sink works.
	maxWaiting = 100_000
)

// Sink stores the lines of the log.
type Sink interface {
	// Write appends whole lines. After an error it may be called again with the same ones.
	Write(lines []byte) (int, error)
	// Sync returns once everything written is on disk.
	Sync() error
	// Full reports whether it is time to rotate.
	Full() bool
	// Rotate starts another file.
	Rotate() error
}

// Why returns why a fact starts to hold, or why it no longer holds if gone is true. For an assignment that starts,
// from is the previous node.
type Why func(f Fact, from string, gone bool) (reason, message string)

// Recorder records what the leader finds and writes during one term. It is safe for concurrent use. Its callers
// never wait for the sink.
type Recorder struct {
	leader string
	term   time.Time
	now    func() time.Time
	sink   Sink
	wake   chan struct{}

	mu    sync.Mutex
	last  int64 // sequence
	facts map[string]map[factKey]Fact
	// met are the scopes reported so far; nil once the statement is complete.
	met     map[string]bool
	waiting []Record
	failing bool // the sink fails
	lost    bool // records were lost

	// Used by Run: lines that the sink has not taken yet, the size in bytes of the file's head (its opening
	// statement), and how many bytes were written after it.
	unwritten       []byte
	head, sinceHead int
}

// NewRecorder returns the recorder of a leader for the term that starts now.
func NewRecorder(leader string, now func() time.Time, sink Sink) *Recorder {
	r := &Recorder{leader: leader, term: now().UTC(), now: now, sink: sink, wake: make(chan struct{}, 1),
		facts: map[string]map[factKey]Fact{}, met: map[string]bool{}}
	r.add(Record{Type: TypeStarted})
	return r
}

// Expects reports whether Found is still to be called for a scope.
func (r *Recorder) Expects(scope string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.met != nil && !r.met[scope]
}

// Found reports what existed of a scope, an object or a pod, before this leader wrote anything about it. Only the
// first call for a scope in a term counts, and only before Complete.
func (r *Recorder) Found(scope string, facts []Fact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met == nil || r.met[scope] {
		return
	}
	r.met[scope] = true
	found := byKey(facts)
	for _, k := range sortedKeys(found) {
		r.add(found[k].record(TypeFound))
	}
	r.keep(scope, found)
}

// Set reports the current facts of a scope, as written.
func (r *Recorder) Set(scope string, facts []Fact, why Why) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met != nil {
		r.met[scope] = true
	}
	was, is := r.facts[scope], byKey(facts)
	for _, k := range sortedKeys(was) {
		f, still := is[k]
		if still && !f.replaces(was[k]) {
			is[k] = f.completed(was[k])
			continue
		}
		old := was[k]
		rec := old.record(TypePodRemoved)
		if old.Pod == nil {
			rec = old.record(TypeReleased)
			rec.From, rec.To = old.Node, ""
		}
		rec.Reason, rec.Message = why(old, "", true)
		r.add(rec)
	}
	for _, k := range sortedKeys(is) {
		f, from := is[k], ""
		if old, ok := was[k]; ok && !f.replaces(old) {
			if f.Node == old.Node {
				continue
			}
			from = old.Node
		}
		rec := f.record(TypePodAdded)
		if f.Pod == nil {
			rec = f.record(TypeAssigned)
			rec.From = from
		}
		rec.Reason, rec.Message = why(f, from, false)
		r.add(rec)
	}
	r.keep(scope, is)
}

// Current returns the facts of a scope, sorted.
func (r *Recorder) Current(scope string) []Fact {
	r.mu.Lock()
	defer r.mu.Unlock()
	var facts []Fact
	for _, k := range sortedKeys(r.facts[scope]) {
		facts = append(facts, r.facts[scope][k])
	}
	return facts
}

// Complete reports that Found has been called for everything that exists.
func (r *Recorder) Complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met == nil {
		return
	}
	r.met = nil
	r.add(Record{Type: TypeComplete})
}

// CompleteAfter calls Complete once all of done are closed: everything that exists has been reported by then.
func (r *Recorder) CompleteAfter(ctx context.Context, done ...<-chan struct{}) {
	for _, d := range done {
		select {
		case <-d:
		case <-ctx.Done():
			return
		}
	}
	r.Complete()
}

// keep stores the facts of a scope; mu is held.
func (r *Recorder) keep(scope string, facts map[factKey]Fact) {
	if len(facts) == 0 {
		delete(r.facts, scope)
		return
	}
	r.facts[scope] = facts
}

// add queues a record for writing; mu is held.
func (r *Recorder) add(rec Record) {
	r.waiting = append(r.waiting, r.number(rec))
	if r.failing && len(r.waiting) > maxWaiting {
		r.waiting, r.lost = nil, true
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// number fills in the common fields of a record; mu is held.
func (r *Recorder) number(rec Record) Record {
	r.last++
	rec.APIVersion, rec.Leader, rec.Term, rec.Sequence, rec.Time = APIVersion, r.leader, r.term, r.last, r.now().UTC()
	return rec
}

// statement returns records of the current state; mu is held.
func (r *Recorder) statement() []Record {
	var all []Record
	for _, scope := range slices.Sorted(maps.Keys(r.facts)) {
		for _, k := range sortedKeys(r.facts[scope]) {
			all = append(all, r.number(r.facts[scope][k].record(TypeFound)))
		}
	}
	if r.met == nil {
		all = append(all, r.number(Record{Type: TypeComplete}))
	}
	return all
}

// Run writes the records until ctx is done, and then the remaining ones. Errors of the sink are logged and writing
// is retried.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			if err := r.flush(); err != nil {
				return fmt.Errorf("write the last records of the egress audit log: %w", err)
			}
			return nil
		}
		for err := r.flush(); err != nil; err = r.flush() {
			klog.ErrorS(err, "Cannot write the egress audit log; trying again", "after", retryDelay)
			select {
			case <-time.After(retryDelay):
			case <-ctx.Done():
				return fmt.Errorf("write the egress audit log: %w", err)
			}
		}
	}
}

// flush writes the waiting records, and rotates the file if due.
func (r *Recorder) flush() error {
	if err := r.write(r.take); err != nil {
		return err
	}
	if !r.sink.Full() || r.sinceHead < r.head { // otherwise files might contain nothing but heads
		return nil
	}
	return r.rotate()
}

// rotate starts another file with a statement. If it cannot, the statement goes into the current file, where it
// adds nothing new.
func (r *Recorder) rotate() error {
	r.mu.Lock()
	taken := r.waiting
	statement := r.statement()
	r.waiting = nil
	r.mu.Unlock()
	if err := r.write(func() []Record { return taken }); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting = append(statement, r.waiting...)
		return err
	}
	failed := r.sink.Rotate()
	r.head, r.sinceHead = 0, 0
	err := r.write(func() []Record { return statement })
	r.head, r.sinceHead = r.sinceHead, 0
	if failed != nil {
		klog.ErrorS(failed, "Cannot rotate the egress audit log; continuing in the same file")
	}
	return err
}

// take returns the waiting records.
func (r *Recorder) take() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.waiting
	r.waiting = nil
	if r.lost {
		r.lost = false
		taken = append(taken, r.number(Record{Type: TypeLost}))
		taken = append(taken, r.statement()...)
	}
	return taken
}

// write writes what an earlier call could not, and then records.
func (r *Recorder) write(records func() []Record) error {
	err := r.writeLines()
	if err == nil {
		var lines bytes.Buffer
		encoder := json.NewEncoder(&lines)
		for _, rec := range records() {
			if err := encoder.Encode(rec); err != nil {
				return fmt.Errorf("encode a record: %w", err)
			}
		}
		r.unwritten = lines.Bytes()
		err = r.writeLines()
	}
	r.mu.Lock()
	r.failing = err != nil
	r.mu.Unlock()
	return err
}

func (r *Recorder) writeLines() error {
	if len(r.unwritten) == 0 {
		return nil
	}
	if _, err := r.sink.Write(r.unwritten); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	r.sinceHead += len(r.unwritten)
	r.unwritten = nil
	if err := r.sink.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

func byKey(facts []Fact) map[factKey]Fact {
	m := make(map[factKey]Fact, len(facts))
	for _, f := range facts {
		m[f.key()] = f
	}
	return m
}

func sortedKeys(m map[factKey]Fact) []factKey {
	return slices.SortedFunc(maps.Keys(m), compareKeys)
}
