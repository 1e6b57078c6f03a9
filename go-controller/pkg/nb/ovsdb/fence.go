package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// writerKey is the key in external_ids of NB_Global that names the process that may write.
const writerKey = ourPrefix + "writer"

// errFenced means that another writer has claimed the database.
var errFenced = errors.New("another writer has claimed the northbound database")

// claimAttempts bounds how often a claim starts over because NB_Global changed.
const claimAttempts = 10

// Fence makes one of several processes the writer of the database. The process writes its
// name to the database before it reads any rows, and every transaction checks the name.
// From then on transactions of other processes are rejected, even if they still believe
// that they are the leader.
type Fence struct {
	// Writer is the name of this process. No other running process has the same name.
	Writer string
	// Confirm returns nil if this process is the leader at the time of the call, according
	// to the authority on leadership. Only a claim needs it: a session that finds its own
	// name in the database does not call it.
	Confirm func(ctx context.Context) error
}

// claim makes the session's transactions depend on the name in the database, and sets that
// to the session's own name if Confirm agrees. The claim itself checks that the row is
// still as it was read before the call of Confirm: if a later leader claims the database in
// between, its claim stays.
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
		// A claim is rejected if the row has changed since it was read; read it again.
	}
	return fmt.Errorf("claim the northbound database: %s changes all the time", nbdb.NBGlobalTable)
}

// global reads the only row of NB_Global; uuid is empty if there is none.
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

// fenceOperation returns the first operation of a transaction, which fails if the database
// names another writer.
func fenceOperation(uuid, writer string) *ovsdb.Operation {
	return &ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: nbdb.NBGlobalTable, Timeout: new(int),
		Where: []ovsdb.Condition{
			ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, wireMap(map[string]string{writerKey: writer})),
		},
		Columns: []string{"_uuid"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"_uuid": wireUUID(uuid)}},
	}
}

// claimOperations returns operations that write the name if external_ids are still as they
// were read.
func claimOperations(uuid string, ids map[string]string, writer string) []ovsdb.Operation {
	if uuid == "" { // at most one row is allowed
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
