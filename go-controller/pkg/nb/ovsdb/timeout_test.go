package ovsdb_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestTransactionWithoutAnswer: the outcome of a transaction that was not answered in time
// is unknown, so the cache, which may lack it, is no longer used.
func TestTransactionWithoutAnswer(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	client := dial(t, ovsdb.Config{Address: s.Socket(), ProbeInterval: time.Hour, TransactTimeout: 300 * time.Millisecond})
	w := ovsdb.NewWriter(client)
	apply(t, w, network, router("a"))
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := w.Apply(ctx, network, []nb.Row{router("b")}); err == nil {
		t.Error("a server that does not answer has done it")
	}
	eventually.Succeeds(t, "the session to end", func() error {
		if client.Connected() {
			return errors.New("still connected")
		}
		return nil
	})
	s.Thaw()
	apply(t, w, network, router("c"))
	if list := s.Nbctl("lr-list"); strings.Contains(list, "(a)") || strings.Contains(list, "(b)") || !strings.Contains(list, "(c)") {
		t.Errorf("want router c alone:\n%s", list)
	}
}
