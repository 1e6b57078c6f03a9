package ovsdb

import "sync"

// raised tells whether nb_cfg has been incremented since everything that was committed. Transactions with rows that somebody waits
// for increment it themselves, so that northd reports it with the pass that processes these rows: a later increment takes
// another pass.
type raised struct {
	mu       sync.Mutex
	session  *session // that value is from
	value    int
	complete bool // no other transaction may have been committed after value
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
			r.session, r.value = s, value
		}
		r.complete = alone && sent == r.sent
	}
}

// take returns the value of nb_cfg if it covers every transaction that has a result; ok is false if some may be later. A value is returned
// once: whoever asks again may wait in vain for it.
func (r *raised) take(s *session) (value int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok = r.complete && r.session == s
	r.complete = false
	return r.value, ok
}
