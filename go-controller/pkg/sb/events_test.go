package sb

import (
	"maps"
	"sync"
	"testing"

	"github.com/ovn-org/libovsdb/model"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
)

// rowsInHand is a copy of a table that a test changes.
type rowsInHand struct {
	rows map[string]model.Model
	// during is called once, by the first reader of all rows, which gets those from before.
	during func()
}

func (r *rowsInHand) Row(uuid string) model.Model { return r.rows[uuid] }

func (r *rowsInHand) RowsShallow() map[string]model.Model {
	all := maps.Clone(r.rows)
	if f := r.during; f != nil {
		r.during = nil
		f()
	}
	return all
}

// atOnce applies an event as soon as mu allows, and returns a function that waits for that.
func atOnce(mu *sync.Mutex, event func()) func() {
	if mu.TryLock() {
		mu.Unlock()
		event()
		return func() {}
	}
	var applied sync.WaitGroup
	applied.Go(event)
	return applied.Wait
}

// TestEventWhileRowsAreRead: a row changes after all rows were read, and before they are applied.
func TestEventWhileRowsAreRead(t *testing.T) {
	t.Run("ports", func(t *testing.T) {
		p := NewPorts(nbovsdb.Config{}, "")
		later := &portBinding{UUID: "1", Name: "later", MAC: []string{"0a:58:0a:f4:01:03 10.244.1.3"}, Options: map[string]string{optionUID: "u"}}
		of := &rowsInHand{rows: map[string]model.Model{}}
		wait := func() {}
		of.during = func() {
			of.rows["1"] = later
			wait = atOnce(&p.mu, func() { p.note(of, later) })
		}
		p.replace(of)
		wait()
		if _, ok := p.Port("later"); !ok {
			t.Error("it is unknown")
		}
	})
	t.Run("barrier", func(t *testing.T) {
		b := NewBarrier(nbovsdb.Config{}, nil)
		of := &rowsInHand{rows: map[string]model.Model{"1": &private{UUID: "1", Name: "c1", Done: 1}}}
		wait := func() {}
		of.during = func() {
			of.rows["1"] = &private{UUID: "1", Name: "c1", Done: 2}
			wait = atOnce(&b.mu, func() { b.note(of, &private{UUID: "1", Name: "c1"}) })
		}
		b.fill(of)
		wait()
		if done, _ := b.of("c1"); done != 2 {
			t.Errorf("it is at %d", done)
		}
	})
}

// TestEventOfAnEarlierConnection: an event of a connection that was lost arrives after the next one has its rows.
func TestEventOfAnEarlierConnection(t *testing.T) {
	none := &rowsInHand{}
	t.Run("ports", func(t *testing.T) {
		p := NewPorts(nbovsdb.Config{}, "")
		row := &portBinding{UUID: "1", Name: "port", MAC: []string{"0a:58:0a:f4:01:03 10.244.1.3"}, Options: map[string]string{optionUID: "u"}}
		p.replace(&rowsInHand{rows: map[string]model.Model{"1": row}})
		p.note(none, row)
		if _, ok := p.Port("port"); !ok {
			t.Error("it is forgotten")
		}
	})
	t.Run("barrier", func(t *testing.T) {
		b := NewBarrier(nbovsdb.Config{}, nil)
		row := &private{UUID: "1", Name: "c1", Done: 1}
		b.fill(&rowsInHand{rows: map[string]model.Model{"1": row}})
		b.note(none, row)
		if done, _ := b.of("c1"); done != 1 {
			t.Errorf("it is at %d", done)
		}
	})
}
