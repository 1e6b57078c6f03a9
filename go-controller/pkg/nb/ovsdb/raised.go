package ovsdb

import "sync"

// raised tells whether nb_cfg has been incremented since everything that was committed. Transactions with rows that somebody waits
// for increment it themselves, so that northd reports it with the pass that processes these rows: a later increment takes
// another pass.
type raised struct {
	mu       sync.Mutex
	session  *session // that value is from
	value    int
	complete bool     // no other transaction may have been committed after value
	compared *session // in which a value was greater than what chassis had reported
	// sent is how many transactions without an increment were sent so far, and inFlight those without a result.
	sent     uint64
	inFlight int
}

// begin records that a transaction is about to be sent. The returned function records its result: the value of nb_cfg, if the
// transaction increments it and succeeded, otherwise 0.
func (r *raised) begin(s *session, increments bool) (end func(value int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !increments {
		r.sent++
		r.inFlight++
		r.complete = false
		return func(int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.inFlight--
		}
	}
	// One that is in flight may be committed before or after this one.
	alone, sent, before := r.inFlight == 0, r.sent, r.value
	return func(value int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if value == 0 {
			r.complete = false
			return
		}
		if r.session != s || value <= before || value > r.value { // of two in flight, the one with the higher value counts
			if r.session == s && value <= before {
				r.compared = nil // the counter began anew
			}
			r.session, r.value = s, value
		}
		r.complete = alone && sent == r.sent
	}
}

// take returns the value of nb_cfg if it covers every transaction with rows that somebody waits for, or, with all, every
// one that has a result; ok is false if some may be later. With all, it returns a value once, since others may write as well. Chassis have
// reported values up to beyond: those of a database that was lost may be greater than ours.
func (r *raised) take(s *session, beyond int, all bool) (value int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok = r.session == s && (r.complete || !all) && (r.value > beyond || r.value == beyond && r.compared == s)
	if all {
		r.complete = false
	}
	return r.value, ok
}

// exceeds records that a value of a session was greater than what chassis had reported for any database.
func (r *raised) exceeds(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compared = s
}

// found records which value the database has: if somebody has replaced its content, it counts from there.
func (r *raised) found(s *session, value int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == s && value < r.value {
		r.session, r.compared = nil, nil
	}
}
