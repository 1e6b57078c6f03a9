package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// tx collects the operations of one transaction; the first error sticks.
type tx struct {
	ctx context.Context
	s   *session
	ops []ovsdb.Operation
	err error
}

func (t *tx) add(ops []ovsdb.Operation, err error) {
	if t.err == nil {
		t.ops, t.err = append(t.ops, ops...), err
	}
}

// finish returns the operations, and increments next_cfg so that ovs-vswitchd reports in cur_cfg
// when they are done.
func (t *tx) finish(sys *vswitchd.OpenvSwitch) ([]ovsdb.Operation, error) {
	if t.err != nil || len(t.ops) == 0 {
		return nil, t.err
	}
	t.add(t.s.client.Where(sys).Mutate(sys, model.Mutation{
		Field: &sys.NextCfg, Mutator: ovsdb.MutateOperationAdd, Value: 1,
	}))
	return t.ops, t.err
}

// system returns the only row of Open_vSwitch.
func (s *session) system(ctx context.Context) (*vswitchd.OpenvSwitch, error) {
	var rows []*vswitchd.OpenvSwitch
	if err := s.client.List(ctx, &rows); err != nil {
		return nil, fmt.Errorf("read Open_vSwitch: %w", err)
	}
	if len(rows) != 1 {
		return nil, fmt.Errorf("Open_vSwitch row: %w", ErrNotFound)
	}
	return rows[0], nil
}

// get reads the row with the model's name or UUID; it returns false if there is none.
func (s *session) get(ctx context.Context, row model.Model) (bool, error) {
	err := s.client.Get(ctx, row)
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the Open vSwitch database: %w", err)
	}
	return true, nil
}

// bridgeOf returns the bridge that holds a port row.
func (s *session) bridgeOf(ctx context.Context, port string) (*vswitchd.Bridge, error) {
	var rows []*vswitchd.Bridge
	if err := s.client.List(ctx, &rows); err != nil {
		return nil, fmt.Errorf("list bridges: %w", err)
	}
	for _, b := range rows {
		if slices.Contains(b.Ports, port) {
			return b, nil
		}
	}
	return nil, nil
}

// merged returns have with the keys of want set or, if their value is empty, deleted, and whether
// that changed anything.
func merged(have, want map[string]string) (map[string]string, bool) {
	out, changed := maps.Clone(have), false
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range want {
		old, exists := out[k]
		switch {
		case v == "" && exists:
			delete(out, k)
			changed = true
		case v != "" && old != v:
			out[k] = v
			changed = true
		}
	}
	return out, changed
}

// edit appends the mutations that turn one map column from have into want; keys that are not named
// are not touched, even if somebody else writes them between our read and our write.
func edit(m []model.Mutation, column *map[string]string, want map[string]string) []model.Mutation {
	next, changed := merged(*column, want)
	if !changed {
		return m
	}
	drop, set := []string{}, map[string]string{}
	for k := range want {
		old, had := (*column)[k]
		v, has := next[k]
		if had && (!has || v != old) {
			drop = append(drop, k)
		}
		if has && v != old {
			set[k] = v
		}
	}
	if len(drop) > 0 {
		m = append(m, model.Mutation{Field: column, Mutator: ovsdb.MutateOperationDelete, Value: drop})
	}
	if len(set) > 0 {
		m = append(m, model.Mutation{Field: column, Mutator: ovsdb.MutateOperationInsert, Value: set})
	}
	return m
}

func (t *tx) mutate(row model.Model, m []model.Mutation) {
	if len(m) > 0 {
		t.add(t.s.client.Where(row).Mutate(row, m...))
	}
}

// put sets a column that holds at most one value, if want is not zero and differs.
func put[T comparable](have **T, want T, fields []any) []any {
	var zero T
	if want == zero || (*have != nil && **have == want) {
		return fields
	}
	*have = &want
	return append(fields, have)
}
