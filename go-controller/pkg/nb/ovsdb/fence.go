package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// writerKey is the key in external_ids of NB_Global that names who may write.
const writerKey = ourPrefix + "writer"

// errFenced means that somebody else has claimed the database.
var errFenced = errors.New("another writer has claimed the northbound database")

// claimAttempts bounds how often a claim starts over because NB_Global changed.
const claimAttempts = 10

// Fence makes one of several processes the writer of the database. Its name is in
// the database before it reads a row, and every transaction compares it: whatever
// another process sends after that is refused, however old its belief is that it
// leads.
type Fence struct {
	// Writer names this process. No other one that is alive has the same name.
	Writer string
	// Confirm returns nil where this process leads at the time of the call; it asks
	// whoever decides that. Only a claim asks: a session that finds the own name in
	// the database needs nobody.
	Confirm func(ctx context.Context) error
}

// claim makes the session's transactions depend on the name in the database, which
// it makes the own one where Confirm agrees. What was read before Confirm was asked
// is compared by the claim itself: if a later leader comes in between, its claim
// stays.
func (s *session) claim(ctx context.Context, cfg Config) error {
	if cfg.Fence == nil {
		return nil
	}
	for range claimAttempts {
		uuid, ids, err := s.global(ctx, cfg)
		if err != nil {
			return err
		}
		if uuid != "" && ids[writerKey] == cfg.Fence.Writer {
			s.fence = fenceOperation(uuid, cfg.Fence.Writer)
			return nil
		}
		if err := cfg.Fence.Confirm(ctx); err != nil {
			return fmt.Errorf("%w: %w", errFenced, err)
		}
		_, err = s.transact(cfg.TransactTimeout, claimOperations(uuid, ids, cfg.Fence.Writer))
		if errors.Is(err, errSession) {
			return err
		}
		// One that was refused met another row than was read; the next look tells.
	}
	return fmt.Errorf("claim the northbound database: %s changes all the time", nbdb.NBGlobalTable)
}

// global reads the one row of NB_Global; no UUID where there is none.
func (s *session) global(ctx context.Context, cfg Config) (uuid string, ids map[string]string, err error) {
	if ctx.Err() != nil {
		return "", nil, fmt.Errorf("read %s: %w", nbdb.NBGlobalTable, ctx.Err())
	}
	results, err := s.transact(cfg.TransactTimeout, []ovsdb.Operation{{
		Op: ovsdb.OperationSelect, Table: nbdb.NBGlobalTable, Columns: []string{"_uuid", "external_ids"},
	}})
	if err != nil || len(results[0].Rows) == 0 {
		return "", nil, err
	}
	ids = map[string]string{}
	row := results[0].Rows[0]
	if id, ok := row["_uuid"].(ovsdb.UUID); ok {
		uuid = id.GoUUID
	}
	if m, ok := row["external_ids"].(ovsdb.OvsMap); ok {
		for k, v := range m.GoMap {
			ids[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	}
	return uuid, ids, nil
}

// fenceOperation fails the transaction that it begins where the database bears
// another name.
func fenceOperation(uuid, writer string) *ovsdb.Operation {
	return &ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: nbdb.NBGlobalTable, Timeout: new(int),
		Where: []ovsdb.Condition{
			ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, wireMap(map[string]string{writerKey: writer})),
		},
		Columns: []string{"_uuid"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"_uuid": wireUUID(uuid)}},
	}
}

// claimOperations write the name, if external_ids still are as they were read.
func claimOperations(uuid string, ids map[string]string, writer string) []ovsdb.Operation {
	if uuid == "" { // there may be one row at most
		return []ovsdb.Operation{{
			Op: ovsdb.OperationInsert, Table: nbdb.NBGlobalTable,
			Row: ovsdb.Row{"external_ids": wireMap(map[string]string{writerKey: writer})},
		}}
	}
	next := maps.Clone(ids)
	next[writerKey] = writer
	return []ovsdb.Operation{{
		Op: ovsdb.OperationWait, Table: nbdb.NBGlobalTable, Timeout: new(int), Where: whereUUID(uuid),
		Columns: []string{"external_ids"}, Until: string(ovsdb.WaitConditionEqual),
		Rows: []ovsdb.Row{{"external_ids": wireMap(ids)}},
	}, {
		Op: ovsdb.OperationUpdate, Table: nbdb.NBGlobalTable, Where: whereUUID(uuid),
		Row: ovsdb.Row{"external_ids": wireMap(next)},
	}}
}
