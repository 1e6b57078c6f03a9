package ovsdb

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// errStale means that the database changed between the diff and the commit.
var errStale = errors.New("rows changed underneath")

// part is what one owner's plan contributes to a transaction.
type part struct {
	plan    *plan
	stats   nb.Stats
	changed []*wanted
	removes []ovsdb.Operation
	writes  []ovsdb.Operation
	// exact[i] tells that writes[i] must have matched exactly one row.
	exact []bool
}

// cell identifies one reference column of one row.
type cell struct {
	table, uuid, column string
}

// build turns a plan into operations. thorough makes it look for the reference
// that keeps a doomed row alive instead of trusting the note on the row.
func build(p *plan, thorough bool) *part {
	b := &part{plan: p}
	b.remove(thorough)
	insertions := map[cell][]any{}
	var cells []cell
	for _, w := range p.rows {
		b.write(w)
		if w.hang != nil {
			c := cell{w.hang.table.Name, w.hang.uuid, w.hang.column}
			if insertions[c] == nil {
				cells = append(cells, c)
			}
			insertions[c] = append(insertions[c], wireUUID(w.uuid))
		}
	}
	for _, c := range cells {
		b.addWrite(mutate(c, ovsdb.MutateOperationInsert, insertions[c]), true)
	}
	return b
}

func (b *part) empty() bool { return len(b.removes) == 0 && len(b.writes) == 0 }

func (b *part) addWrite(op ovsdb.Operation, exact bool) {
	b.writes = append(b.writes, op)
	b.exact = append(b.exact, exact)
}

// remove adds the deletion of root rows, and for the others the removal of the
// references that keep them alive.
func (b *part) remove(thorough bool) {
	deletions := map[cell][]any{}
	var cells []cell
	for _, d := range b.plan.gone {
		b.stats.Deleted++
		ref := wireUUID(d.uuid)
		if !d.table.root && d.table.keeps(d.row) {
			// Unreferenced rows go after references are checked: too late where what
			// they refer to goes as well.
			b.removes = append(b.removes, ovsdb.Operation{
				Op: ovsdb.OperationDelete, Table: d.table.Name, Where: whereUUID(d.uuid),
			})
		}
		switch {
		case d.table.root:
			b.removes = append(b.removes, ovsdb.Operation{
				Op: ovsdb.OperationDelete, Table: d.table.Name, Where: whereUUID(d.uuid),
			})
		case d.hang == nil:
		case thorough, d.hang.uuid == "":
			b.removes = append(b.removes, ovsdb.Operation{
				Op: ovsdb.OperationMutate, Table: d.hang.table.Name,
				Where:     []ovsdb.Condition{ovsdb.NewCondition(d.hang.column, ovsdb.ConditionIncludes, ref)},
				Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(d.hang.column, ovsdb.MutateOperationDelete, ref)},
			})
		default:
			c := cell{d.hang.table.Name, d.hang.uuid, d.hang.column}
			if deletions[c] == nil {
				cells = append(cells, c)
			}
			deletions[c] = append(deletions[c], ref)
		}
	}
	for _, c := range cells {
		b.removes = append(b.removes, mutate(c, ovsdb.MutateOperationDelete, deletions[c]))
	}
}

// write adds the insertion of a new row or the update of what differs in an
// existing one.
func (b *part) write(w *wanted) {
	t, row := w.table, structOf(w.model)
	if w.have == nil {
		values := ovsdb.Row{}
		for _, c := range t.columns {
			if v := row.Field(c.field); !v.IsZero() {
				values[c.name] = c.toOVS(v)
			}
		}
		if w.ids != nil {
			values["external_ids"] = wireMap(w.ids)
		}
		b.stats.Inserted++
		b.changed = append(b.changed, w)
		b.addWrite(ovsdb.Operation{Op: ovsdb.OperationInsert, Table: t.Name, UUIDName: w.uuid, Row: values}, false)
		return
	}
	values, have := ovsdb.Row{}, structOf(w.have.row)
	for _, c := range t.columns {
		if v := row.Field(c.field); !equalColumn(v, have.Field(c.field)) {
			values[c.name] = c.toOVS(v)
		}
	}
	var mutations []ovsdb.Mutation
	if w.ids != nil {
		mutations = idMutations(idChange(t.idsOf(w.have.row), w.ids))
	}
	if len(values) > 0 {
		b.addWrite(ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: t.Name, Where: whereUUID(w.uuid), Row: values}, true)
	}
	if len(mutations) > 0 {
		b.addWrite(ovsdb.Operation{Op: ovsdb.OperationMutate, Table: t.Name, Where: whereUUID(w.uuid), Mutations: mutations}, true)
	}
	if len(values) > 0 || len(mutations) > 0 || w.hang != nil {
		b.stats.Updated++
		b.changed = append(b.changed, w)
	}
}

func idMutations(remove []string, insert map[string]string) []ovsdb.Mutation {
	var out []ovsdb.Mutation
	if len(remove) > 0 {
		keys := make([]any, len(remove))
		for i, k := range remove {
			keys[i] = k
		}
		out = append(out, *ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, wireSet(keys)))
	}
	if len(insert) > 0 {
		out = append(out, *ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, wireMap(insert)))
	}
	return out
}

func mutate(c cell, how ovsdb.Mutator, refs []any) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: c.table, Where: whereUUID(c.uuid),
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(c.column, how, wireSet(refs))},
	}
}

func whereUUID(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, wireUUID(uuid))}
}

// operations joins parts into one transaction. Removals go first: a row then
// never hangs on a parent that goes in the same transaction.
func operations(parts []*part) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, b := range parts {
		ops = append(ops, b.removes...)
	}
	for _, b := range parts {
		ops = append(ops, b.writes...)
	}
	return ops
}

// split hands each part the results of its writes; the transaction as a whole
// succeeded.
func split(parts []*part, results []ovsdb.OperationResult) [][]ovsdb.OperationResult {
	for _, b := range parts {
		results = results[len(b.removes):]
	}
	out := make([][]ovsdb.OperationResult, len(parts))
	for i, b := range parts {
		out[i], results = results[:len(b.writes)], results[len(b.writes):]
	}
	return out
}

// log names the rows that a committed part wrote.
func (b *part) log() {
	if !klog.V(5).Enabled() {
		return
	}
	for _, w := range b.changed {
		klog.V(5).InfoS("Wrote northbound row", "owner", b.plan.owner, "table", w.table.Name, "id", w.row.ID, "new", w.have == nil)
	}
	for _, d := range b.plan.gone {
		klog.V(5).InfoS("Deleted northbound row", "owner", b.plan.owner, "table", d.table.Name, "id", d.id)
	}
}

// verify checks that a committed part did what the plan said: writes met the
// rows they were meant for, and the cache shows the new rows and not the old.
func (b *part) verify(v view, results []ovsdb.OperationResult) error {
	for i, r := range results {
		if b.exact[i] && r.Count != 1 {
			return fmt.Errorf("%s on %s met %d rows: %w", b.writes[i].Op, b.writes[i].Table, r.Count, errStale)
		}
		if b.writes[i].Op == ovsdb.OperationInsert && !v.has(tableByName[b.writes[i].Table], r.UUID.GoUUID) {
			return fmt.Errorf("inserted %s row is gone: %w", b.writes[i].Table, errStale)
		}
	}
	if i := slices.IndexFunc(b.plan.gone, func(d *doomed) bool { return v.has(d.table, d.uuid) }); i >= 0 {
		return fmt.Errorf("deleted %s row is still there: %w", b.plan.gone[i].table.Name, errStale)
	}
	return nil
}
