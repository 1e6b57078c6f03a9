package ovs

import (
	"context"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
)

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

// SetSystem implements Client.
func (db *DB) SetSystem(ctx context.Context, ids map[string]string) error {
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
