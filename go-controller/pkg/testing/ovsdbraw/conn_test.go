package ovsdbraw_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

const northbound = "OVN_Northbound"

func dial(t *testing.T, s *ovsdbtest.Server, update func(json.RawMessage)) *ovsdbraw.Conn {
	t.Helper()
	c, err := ovsdbraw.Dial(t.Context(), s.Socket(), update)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestCopy: a copied database has the same content, including references.
func TestCopy(t *testing.T) {
	from, to := ovsdbtest.StartNB(t), ovsdbtest.StartNB(t)
	from.Nbctl("ls-add", "worker", "--", "lsp-add", "worker", "prod_web", "--", "lsp-set-addresses", "prod_web", "0a:58:0a:f4:00:03 10.244.0.3",
		"--", "set", "Logical_Switch_Port", "prod_web", "tag=7", "enabled=false", "external_ids:pod=true")
	rows, err := dial(t, from, nil).Rows(t.Context(), northbound, "NB_Global")
	if err != nil {
		t.Fatal(err)
	}
	if len(rows["Logical_Switch_Port"]) != 1 || len(rows["NB_Global"]) != 0 {
		t.Errorf("read %v", rows)
	}
	if _, err := dial(t, to, nil).Transact(t.Context(), northbound, ovsdbraw.Inserts(rows)...); err != nil {
		t.Fatal(err)
	}
	if have, want := to.Dump(), from.Dump(); have != want {
		t.Errorf("copied\n%s\nwant\n%s", have, want)
	}
}

func TestUpdates(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	updates := make(chan json.RawMessage, 1)
	c := dial(t, s, func(params json.RawMessage) { updates <- params })
	if _, err := c.Call(t.Context(), "monitor_cond", northbound, "all", map[string]any{"Logical_Switch": []any{map[string]any{}}}); err != nil {
		t.Fatal(err)
	}
	s.Nbctl("ls-add", "worker")
	if got := string(eventually.Receive(t, "an update", updates)); !strings.Contains(got, `"worker"`) {
		t.Errorf("heard %s", got)
	}
}

func TestRefusals(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	c := dial(t, s, nil)
	if _, err := c.Transact(t.Context(), northbound, ovsdbraw.Op{"op": "insert", "table": "Nothing", "row": ovsdbraw.Row{}}); err == nil {
		t.Error("a row of an unknown table was inserted")
	}
	if _, err := c.Rows(t.Context(), "Nothing"); err == nil {
		t.Error("an unknown database was read")
	}
	s.Kill()
	if _, err := c.Rows(t.Context(), northbound); err == nil {
		t.Error("a server that is gone answers")
	}
}
