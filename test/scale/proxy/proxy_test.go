package proxy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

const northbound = "OVN_Northbound"

// TestCounts: the proxy's counts match what the server commits.
func TestCounts(t *testing.T) {
	server := ovsdbtest.StartNB(t)
	socket := filepath.Join(t.TempDir(), "proxy")
	p := New()
	if err := p.Listen(socket, strings.TrimPrefix(server.Socket(), "unix:")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	c, err := ovsdbraw.Dial(t.Context(), "unix:"+socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })

	// A brace or a quote in a value does not end a message.
	row := ovsdbraw.Row{"name": `odd}"{`, "external_ids": []any{"map", []any{
		[]any{"k8s.ovn.org/owner-type", "egressip"}, []any{"k8s.ovn.org/name", "prod"}}}}
	where := []any{[]any{"name", "!=", "none"}}
	for _, ops := range [][]ovsdbraw.Op{
		{{"op": "insert", "table": "Logical_Switch", "row": row}, {"op": "insert", "table": "Logical_Switch", "row": ovsdbraw.Row{"name": "other"}}},
		{{"op": "update", "table": "Logical_Switch", "where": where, "row": ovsdbraw.Row{"other_config": []any{"map", []any{[]any{"a", "b"}}}}}},
		{{"op": "select", "table": "Logical_Switch", "where": where}},
		{{"op": "delete", "table": "Logical_Switch", "where": where}},
	} {
		if _, err := c.Transact(t.Context(), northbound, ops...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Transact(t.Context(), northbound, ovsdbraw.Op{"op": "abort"}); err == nil {
		t.Error("an aborted transaction was committed")
	}
	eventually.True(t, "the transactions to be counted", func() bool { return p.Count() == 4 })
	all := p.Since(0)
	for i, want := range []int{2, 2, 0, 2} {
		if got := all[i].Changes(); got != want || all[i].Rows["Logical_Switch"] != want {
			t.Errorf("transaction %d changed %d rows, %v; want %d", i, got, all[i].Rows, want)
		}
		if all[i].Answered.Before(all[i].Asked) {
			t.Errorf("transaction %d was answered at %s, asked at %s", i, all[i].Answered, all[i].Asked)
		}
	}
	if all[0].Inserted[Kind{"egressip", "Logical_Switch"}] != 1 || !all[0].Owners[Owner{"egressip", "prod"}] || len(all[0].Owners) != 1 {
		t.Errorf("inserted %v of %v", all[0].Inserted, all[0].Owners)
	}
	if all[1].Changes("Logical_Switch") != 0 {
		t.Errorf("%v of other tables", all[1].Rows)
	}
	if sent, received := p.Bytes(); sent == 0 || received == 0 {
		t.Errorf("%d bytes there, %d back", sent, received)
	}
}
