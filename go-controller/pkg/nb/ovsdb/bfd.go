package ovsdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// RestartBFD makes the chassis of a logical port restart its BFD session with a destination, and report the state again, unless that is
// up. If routes refer to the session, as ours do, ovn-northd passes the request on to the southbound database, and then reverts both
// to "down".
func (w *Writer) RestartBFD(ctx context.Context, port, destination string) error {
	for {
		s, err := w.client.current(ctx)
		if err != nil {
			return fmt.Errorf("restart a BFD session: %w", err)
		}
		_, err = s.transact(w.client.cfg.TransactTimeout, []ovsdb.Operation{{
			Op: ovsdb.OperationUpdate, Table: nbdb.BFDTable, Row: ovsdb.Row{"status": nbdb.BFDStatusAdminDown},
			Where: []ovsdb.Condition{
				ovsdb.NewCondition("logical_port", ovsdb.ConditionEqual, port),
				ovsdb.NewCondition("dst_ip", ovsdb.ConditionEqual, destination),
				ovsdb.NewCondition("status", ovsdb.ConditionNotEqual, nbdb.BFDStatusUp),
			},
		}})
		if err == nil {
			return nil
		}
		if !errors.Is(err, errSession) {
			return fmt.Errorf("restart a BFD session: %w", err)
		}
	}
}
