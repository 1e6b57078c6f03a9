package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// pin is the key of the UUID of the row of Open_vSwitch in a context. Each database has a row of its own.
type pin struct{}

// Pin implements Client.
func (db *DB) Pin(ctx context.Context) (context.Context, error) {
	s, err := db.connected(ctx)
	if err != nil {
		return nil, err
	}
	sys, err := s.system(ctx)
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, pin{}, sys.UUID), nil
}

// pinned returns ErrReplaced if a context belongs to another database.
func (s *session) pinned(ctx context.Context) error {
	of, ok := ctx.Value(pin{}).(string)
	if !ok {
		return nil
	}
	switch sys, err := s.system(ctx); {
	case errors.Is(err, ErrNotFound): // a new one that nothing is in yet
		return ErrReplaced
	case err != nil:
		return err
	case sys.UUID != of:
		return ErrReplaced
	}
	return nil
}

// System implements Client.
func (db *DB) System(ctx context.Context) (map[string]string, error) {
	s, err := db.connected(ctx)
	if err != nil {
		return nil, err
	}
	sys, err := s.system(ctx)
	if err != nil {
		return nil, err
	}
	return maps.Clone(sys.ExternalIDs), nil
}

// Lacks implements Client.
func (db *DB) Lacks(ctx context.Context, capability string) (bool, error) {
	s, err := db.connected(ctx)
	if err != nil {
		return false, err
	}
	for _, row := range s.cache.Table(vswitchd.DatapathTable).RowsShallow() {
		if row.(*vswitchd.Datapath).Capabilities[capability] == "false" {
			return true, nil
		}
	}
	return false, nil
}

// SetSystem implements Client.
func (db *DB) SetSystem(ctx context.Context, ids map[string]string) error {
	db.record(func(w *written) { w.setSystem(ids) })
	return db.update(ctx, "set external_ids of Open_vSwitch", func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		t.mutate(sys, edit(nil, &sys.ExternalIDs, ids))
		return t.finish(sys)
	})
}

// Sync implements Client.
func (db *DB) Sync(ctx context.Context) error {
	target := 0
	err := db.update(ctx, "step next_cfg", func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		target = sys.NextCfg + 1
		return s.client.Where(sys).Mutate(sys, model.Mutation{
			Field: &sys.NextCfg, Mutator: ovsdb.MutateOperationAdd, Value: 1,
		})
	})
	if err != nil {
		return err
	}
	return db.until(ctx, "ovs-vswitchd", func(s *session) (bool, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return false, err
		}
		return sys.CurCfg >= target, fmt.Errorf("it has done step %d of %d", sys.CurCfg, target)
	})
}
