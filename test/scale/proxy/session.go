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

// message is a request, a reply or a notification.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// operation has the fields of an operation that are counted.
type operation struct {
	Op, Table string
	Row       struct {
		IDs json.RawMessage `json:"external_ids"`
	}
}

// session is one connection with its outstanding requests.
type session struct {
	proxy *Proxy

	mu    sync.Mutex
	asked *sync.Cond // signaled on a new request, and when there will be no more
	open  map[string]request
	ended bool
}

// request is an outstanding request; it has no transaction if it was another method.
type request struct {
	transaction *Transaction
	ops         []operation
}

func newSession(p *Proxy) *session {
	s := &session{proxy: p, open: map[string]request{}}
	s.asked = sync.NewCond(&s.mu)
	return s
}

// end records that there will be no more requests.
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
	if m.Method != "transact" || json.Unmarshal(m.Params, &params) != nil || len(params) < 2 { // an empty one is a probe
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

// to removes and returns the request that a reply is for. It waits for the request, because the reply may be decoded first.
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

// insert records the owner of a new row.
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
