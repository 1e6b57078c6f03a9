package proxy

import (
	"encoding/json"
	"sync"
	"time"
)

// The external_ids of a row that name its owner.
const (
	featureKey = "k8s.ovn.org/owner-type"
	objectKey  = "k8s.ovn.org/name"
)

// message is a request, an answer or a notification.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// operation is one of a transaction, as far as it is counted.
type operation struct {
	Op, Table string
	Row       struct {
		IDs json.RawMessage `json:"external_ids"`
	}
}

// session is one connection: what was asked and has no answer yet.
type session struct {
	proxy *Proxy

	mu    sync.Mutex
	asked *sync.Cond // when something was, or nothing will be any more
	open  map[string]request
	ended bool
}

// request is what was asked; without a transaction where it was something else.
type request struct {
	transaction *Transaction
	ops         []operation
}

func newSession(p *Proxy) *session {
	s := &session{proxy: p, open: map[string]request{}}
	s.asked = sync.NewCond(&s.mu)
	return s
}

// end says that nothing more is asked.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.asked.Broadcast()
}

func (s *session) request(m message, at time.Time) {
	if m.Method == "" {
		return
	}
	r := decode(m, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[string(m.ID)] = r
	s.asked.Broadcast()
}

func decode(m message, at time.Time) request {
	var params []json.RawMessage
	if m.Method != "transact" || json.Unmarshal(m.Params, &params) != nil || len(params) == 0 {
		return request{}
	}
	t := &Transaction{Asked: at, Rows: map[string]int{}, Inserted: map[Kind]int{}, Owners: map[Owner]bool{}}
	ops := make([]operation, len(params)-1)
	for i := range ops {
		if json.Unmarshal(params[i+1], &ops[i]) == nil && ops[i].Op == "insert" {
			t.insert(ops[i])
		}
		ops[i].Row.IDs = nil
	}
	return request{t, ops}
}

// to takes the request that an answer is for. It waits for it: the answer may be looked at first.
func (s *session) to(id string) request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		r, ok := s.open[id]
		if ok || s.ended {
			delete(s.open, id)
			return r
		}
		s.asked.Wait()
	}
}

// insert notes whose a new row is.
func (t *Transaction) insert(o operation) {
	var ids []json.RawMessage
	var pairs [][2]string
	if json.Unmarshal(o.Row.IDs, &ids) != nil || len(ids) != 2 || json.Unmarshal(ids[1], &pairs) != nil {
		return
	}
	var owner Owner
	for _, pair := range pairs {
		switch pair[0] {
		case featureKey:
			owner.Feature = pair[1]
		case objectKey:
			owner.Object = pair[1]
		}
	}
	if owner.Feature != "" {
		t.Inserted[Kind{owner.Feature, o.Table}]++
		t.Owners[owner] = true
	}
}

func (s *session) answer(m message, at time.Time) {
	if m.Method != "" {
		return
	}
	r := s.to(string(m.ID))
	t, ops := r.transaction, r.ops
	var results []struct {
		Count int
		Error string
	}
	if t == nil || json.Unmarshal(m.Result, &results) != nil {
		return
	}
	for i, result := range results {
		if result.Error != "" {
			return
		}
		if i >= len(ops) {
			continue
		}
		switch ops[i].Op {
		case "insert":
			t.Rows[ops[i].Table]++
		case "update", "mutate", "delete":
			t.Rows[ops[i].Table] += result.Count
		}
	}
	t.Answered = at
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	s.proxy.transactions = append(s.proxy.transactions, *t)
}
