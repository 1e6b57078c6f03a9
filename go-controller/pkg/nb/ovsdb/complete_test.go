package ovsdb

import (
	"fmt"
	"testing"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// copyOf keeps a copy of a table, whose rows are like row.
func copyOf(t *testing.T, s *ovsdbtest.Server, table string, row model.Model) *Connection {
	t.Helper()
	m, err := model.NewClientDBModel(databaseName, map[string]model.Model{table: row})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), m, Config{Address: s.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		c.connection.attempts.Wait()
	})
	if _, err := c.Monitor(t.Context(), c.NewMonitor(client.WithTable(row))); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCopyHasAllRows: a transaction adds rows and changes a column of another row of which there is no
// copy, as when a router gets a port.
func TestCopyHasAllRows(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	s.Nbctl("lr-add", "first")
	c := copyOf(t, s, "Logical_Router", &dialed{})
	want := 1
	for i := range 5 {
		args := []string{"set", "Logical_Router", "first", fmt.Sprintf("options:a=%d", i)}
		for range 10 {
			args = append(args, "--", "lr-add", fmt.Sprint("r", want))
			want++
		}
		s.Nbctl(args...)
	}
	eventually.Succeeds(t, "a copy of all routers", func() error {
		var rows []dialed
		if err := c.List(t.Context(), &rows); err != nil {
			return err
		}
		if len(rows) != want {
			return fmt.Errorf("it has %d of %d", len(rows), want)
		}
		return nil
	})
}

// TestIncompleteCopyEndsTheConnection: the library cannot add a row to the copy.
func TestIncompleteCopyEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	s.Nbctl("ls-add", "switch")
	type port struct {
		UUID string `ovsdb:"_uuid"`
		Type string `ovsdb:"type"` // the name, which has an index, is not copied
	}
	c := copyOf(t, s, "Logical_Switch_Port", &port{})
	s.Nbctl("lsp-add", "switch", "port")
	eventually.Receive(t, "the end of a connection whose copy lacks a row", c.Lost())
}

// TestLostEventsEndTheConnection: changes are handled so slowly that the library leaves out some.
func TestLostEventsEndTheConnection(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	c := copyOf(t, s, "Logical_Switch", &dialed{})
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{AddFunc: func(string, model.Model) { <-blocked }})
	many := make([]ovsdbraw.Op, 1<<16+2) // one more than the library keeps, and the one that is being handled
	for i := range many {
		many[i] = ovsdbraw.Op{"op": "insert", "table": "Logical_Switch", "row": ovsdbraw.Row{}}
	}
	to, err := ovsdbraw.Dial(t.Context(), s.Socket(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := to.Transact(t.Context(), databaseName, many...); err != nil {
		t.Fatal(err)
	}
	eventually.Receive(t, "the end of a connection that left out changes", c.Lost())
}
