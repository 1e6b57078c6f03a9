package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// SetGlobal sets the name (unless empty) and the given options of NB_Global, a row that is
// not ours: other options stay. An option with the value "" is removed. Those of defaults are only set if they are
// absent. Nothing is written if nothing differs.
func (w *Writer) SetGlobal(ctx context.Context, name string, options, defaults map[string]string) error {
	for {
		s, err := w.client.current(ctx)
		if err != nil {
			return fmt.Errorf("set NB_Global: %w", err)
		}
		ops := globalOperations(s.view, name, options, defaults)
		if len(ops) == 0 {
			return nil
		}
		if _, err = s.transact(w.client.cfg.TransactTimeout, ops); err == nil {
			return nil
		}
		if !errors.Is(err, errSession) {
			return fmt.Errorf("set NB_Global: %w", err)
		}
	}
}

// noUUID is a UUID that no row has.
const noUUID = "00000000-0000-0000-0000-000000000000"

// Bump increments nb_cfg and returns its new value. northd and every ovn-controller report
// that value once they have processed everything that was written before. It writes nothing if the last
// transaction has incremented nb_cfg along with its rows. The value is
// greater than beyond, which some ovn-controller has reported: a newly created database starts counting from zero, while
// values reported for the previous database still exist. Only one that is known to be of the present one may be equal.
func (w *Writer) Bump(ctx context.Context, beyond int) (int, error) {
	for {
		s, err := w.client.current(ctx)
		if err != nil {
			return 0, fmt.Errorf("raise nb_cfg: %w", err)
		}
		if value, ok := w.raised.take(s, beyond, true); ok {
			return value, nil
		}
		end := w.raised.begin(s, true)
		results, err := s.transact(w.client.cfg.TransactTimeout, append([]ovsdb.Operation{{
			Op: ovsdb.OperationUpdate, Table: nbdb.NBGlobalTable, Row: ovsdb.Row{"nb_cfg": beyond},
			Where: []ovsdb.Condition{ovsdb.NewCondition("nb_cfg", ovsdb.ConditionLessThan, beyond)},
		}}, incrementOperations()...))
		value := readCounter(results, err)
		end(value)
		w.raised.take(s, beyond, true)
		switch {
		case errors.Is(err, errSession):
			continue
		case err != nil:
			return 0, fmt.Errorf("raise nb_cfg: %w", err)
		case value == 0:
			return 0, fmt.Errorf("raise nb_cfg: there is no NB_Global row")
		}
		w.raised.exceeds(s)
		return value, nil
	}
}

// Incremented returns a value of nb_cfg as Bump does, but writes nothing, and only covers rows of the kinds whose transactions increment
// it (table.Awaited). ok is false if none is known; then Bump returns one.
func (w *Writer) Incremented(beyond int) (value int, ok bool) {
	s := w.client.now()
	if s == nil {
		return 0, false
	}
	return w.raised.take(s, beyond, false)
}

// Count returns the present value of nb_cfg. It is lower than one that Bump returned if the content of the database was
// replaced since.
func (w *Writer) Count(ctx context.Context) (int, error) {
	s, err := w.client.current(ctx)
	if err == nil {
		var results []ovsdb.OperationResult
		if results, err = s.transact(w.client.cfg.TransactTimeout, []ovsdb.Operation{readOperation()}); err == nil {
			value := readCounter(results, nil)
			w.raised.found(s, value)
			return value, nil
		}
	}
	return 0, fmt.Errorf("read nb_cfg: %w", err)
}

// incrementOperations returns the operations that increment nb_cfg and read the new value.
func incrementOperations() []ovsdb.Operation {
	return []ovsdb.Operation{{
		Op: ovsdb.OperationMutate, Table: nbdb.NBGlobalTable, Where: whereGlobal(),
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("nb_cfg", ovsdb.MutateOperationAdd, 1)},
	}, readOperation()}
}

// readOperation reads nb_cfg.
func readOperation() ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: nbdb.NBGlobalTable, Where: whereGlobal(), Columns: []string{"nb_cfg"}}
}

// whereGlobal chooses the row of NB_Global: there is at most one, but a condition is required.
func whereGlobal() []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionNotEqual, wireUUID(noUUID))}
}

// readCounter returns the value that the last of the results of a transaction has read; 0 if the transaction failed, or there is no row.
func readCounter(results []ovsdb.OperationResult, err error) int {
	if err != nil || len(results) == 0 {
		return 0
	}
	if rows := results[len(results)-1].Rows; len(rows) == 1 {
		if n, ok := rows[0]["nb_cfg"].(float64); ok {
			return int(n)
		}
	}
	return 0
}

func globalOperations(v view, name string, options, defaults map[string]string) []ovsdb.Operation {
	set := maps.Clone(defaults)
	if set == nil {
		set = map[string]string{}
	}
	for k, value := range options {
		if value != "" {
			set[k] = value
		}
	}
	rows := v.cache.Table(nbdb.NBGlobalTable).RowsShallow()
	if len(rows) == 0 { // not created yet; at most one is allowed
		return []ovsdb.Operation{{
			Op: ovsdb.OperationInsert, Table: nbdb.NBGlobalTable,
			Row: ovsdb.Row{"name": name, "options": wireMap(set)},
		}}
	}
	var ops []ovsdb.Operation
	for uuid, row := range rows {
		global := row.(*nbdb.NBGlobal)
		if name != "" && global.Name != name {
			ops = append(ops, ovsdb.Operation{
				Op: ovsdb.OperationUpdate, Table: nbdb.NBGlobalTable, Where: whereUUID(uuid), Row: ovsdb.Row{"name": name},
			})
		}
		var remove []any
		insert := map[string]string{}
		for k, value := range defaults {
			if _, ok := global.Options[k]; !ok {
				insert[k] = value
			}
		}
		for k, value := range options {
			have, ok := global.Options[k]
			if ok && have != value {
				remove = append(remove, k)
			}
			if value != "" && have != value {
				insert[k] = value
			}
		}
		var mutations []ovsdb.Mutation
		if len(remove) > 0 {
			mutations = append(mutations, *ovsdb.NewMutation("options", ovsdb.MutateOperationDelete, wireSet(remove)))
		}
		if len(insert) > 0 {
			mutations = append(mutations, *ovsdb.NewMutation("options", ovsdb.MutateOperationInsert, wireMap(insert)))
		}
		if len(mutations) > 0 {
			ops = append(ops, ovsdb.Operation{
				Op: ovsdb.OperationMutate, Table: nbdb.NBGlobalTable, Where: whereUUID(uuid), Mutations: mutations,
			})
		}
	}
	return ops
}
