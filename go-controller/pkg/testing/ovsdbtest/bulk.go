package ovsdbtest

import (
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
)

const northbound = "OVN_Northbound"

// Bulk writes everything in a server's northbound database into a separate database, as a single prepared
// transaction, and returns how long the server took: the reference for benchmarks that write the same rows. If
// monitored is set, a client monitors everything and discards it, as every writer with a cache does.
func (s *Server) Bulk(monitored bool) time.Duration {
	s.t.Helper()
	tables := s.rows()
	transaction, err := ovsdbraw.Prepare(northbound, ovsdbraw.Inserts(tables)...)
	if err != nil {
		s.t.Fatal(err)
	}
	fresh := StartNB(s.t)
	defer fresh.Kill()
	if monitored {
		c := fresh.dial()
		defer c.Close()
		columns := map[string]any{}
		for table := range tables {
			columns[table] = []any{map[string]any{}}
		}
		if _, err := c.Call(s.t.Context(), "monitor_cond", northbound, "all", columns); err != nil {
			s.t.Fatal(err)
		}
	}
	c := fresh.dial()
	defer c.Close()
	start := time.Now()
	if _, err := c.Send(s.t.Context(), transaction); err != nil {
		s.t.Fatal(err)
	}
	took := time.Since(start)
	for table, list := range fresh.rows() {
		if len(list) != len(tables[table]) {
			s.t.Fatalf("%d rows of %s, want %d", len(list), table, len(tables[table]))
		}
	}
	return took
}

// rows returns all rows of all tables, except for those that every database has.
func (s *Server) rows() map[string][]ovsdbraw.Row {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	rows, err := c.Rows(s.t.Context(), northbound, "NB_Global")
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

func (s *Server) dial() *ovsdbraw.Conn {
	s.t.Helper()
	c, err := ovsdbraw.Dial(s.t.Context(), s.Socket(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
