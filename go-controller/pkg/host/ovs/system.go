package ovs

import (
	"context"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
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
