package ovsdb

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// errStale means that the database changed between diff and commit.
var errStale = errors.New("rows changed underneath")

// part is what one owner's plan contributes to a transaction.
type part struct {
	plan    *plan
	stats   nb.Stats
	changed []*wanted
	removes []ovsdb.Operation
	leaves  references // to remove from cells
	writes  []ovsdb.Operation
	// exact[i] is true if writes[i] must match exactly one row.
	exact []bool
	joins references // to add to cells
	// awaited is true if nodes need to know when the change has taken effect.
	awaited bool
}

// cell identifies one reference column of one row.
type cell struct {
	table, uuid, column string
}

// references holds rows by the cell that refers to them.
type references struct {
	cells []cell // in the order of their first rows
	rows  map[cell][]any
}

func (r *references) add(c cell, refs ...any) {
	if r.rows == nil {
		r.rows = map[cell][]any{}
	}
	if r.rows[c] == nil {
		r.cells = append(r.cells, c)
	}
	r.rows[c] = append(r.rows[c], refs...)
}

func (r *references) addAll(more references) {
	for _, c := range more.cells {
		r.add(c, more.rows[c]...)
	}
}

// build turns a plan into operations. With thorough it searches for the reference to a row
// to be deleted, instead of relying on the parent recorded on the row.
func build(p *plan, thorough bool) *part {
	b := &part{plan: p}
	b.remove(thorough)
	for _, w := range p.rows {
		b.write(w)
		if w.parentRef != nil {
			b.joins.add(cell{w.parentRef.table.Name, w.parentRef.uuid, w.parentRef.column}, wireUUID(w.uuid))
		}
	}
	return b
}

// size returns how many operations the part has by itself.
func (b *part) size() int {
	return len(b.removes) + len(b.leaves.cells) + len(b.writes) + len(b.joins.cells)
}

func (b *part) addWrite(op ovsdb.Operation, exact bool) {
	b.writes = append(b.writes, op)
	b.exact = append(b.exact, exact)
}

func (b *part) await(t *table, row model.Model, deleted bool) {
	b.awaited = b.awaited || t.Awaited != nil && t.Awaited(row, deleted)
}

// remove adds the deletion of rows of root tables and, for other rows, the removal of the
// references that keep them alive.
func (b *part) remove(thorough bool) {
	for _, d := range b.plan.gone {
		b.stats.Deleted++
		b.await(d.table, d.row, true)
		ref := wireUUID(d.uuid)
		if !d.table.root && d.table.keeps(d.row) {
			// The server removes unreferenced rows after it has checked references: too
			// late if the rows they refer to are deleted too.
			b.removes = append(b.removes, ovsdb.Operation{
				Op: ovsdb.OperationDelete, Table: d.table.Name, Where: whereUUID(d.uuid),
			})
		}
		switch {
		case d.table.root:
			b.removes = append(b.removes, ovsdb.Operation{
				Op: ovsdb.OperationDelete, Table: d.table.Name, Where: whereUUID(d.uuid),
			})
		case d.parentRef == nil:
		case thorough, d.parentRef.uuid == "":
			b.removes = append(b.removes, ovsdb.Operation{
				Op: ovsdb.OperationMutate, Table: d.parentRef.table.Name,
				Where:     []ovsdb.Condition{ovsdb.NewCondition(d.parentRef.column, ovsdb.ConditionIncludes, ref)},
				Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(d.parentRef.column, ovsdb.MutateOperationDelete, ref)},
			})
		default:
			b.leaves.add(cell{d.parentRef.table.Name, d.parentRef.uuid, d.parentRef.column}, ref)
		}
	}
}

// write adds the insertion of a new row, or the change of the columns that differ in an
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
		b.await(t, w.model, false)
		b.changed = append(b.changed, w)
		b.addWrite(ovsdb.Operation{Op: ovsdb.OperationInsert, Table: t.Name, UUIDName: w.uuid, Row: values}, false)
		return
	}
	values, have := ovsdb.Row{}, structOf(w.have.row)
	var mutations []ovsdb.Mutation
	for _, c := range t.columns {
		v := row.Field(c.field)
		switch how := c.change(v, have.Field(c.field)); {
		case how.mutations != nil:
			mutations = append(mutations, how.mutations...)
		case how.differs:
			values[c.name] = c.toOVS(v)
		}
	}
	if len(values)+len(mutations) > 0 {
		b.await(t, w.model, false)
	}
	if w.ids != nil {
		remove, insert := idChange(t.idsOf(w.have.row), w.ids)
		mutations = append(mutations, mapMutations("external_ids", remove, insert)...)
	}
	if len(values) > 0 {
		b.addWrite(ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: t.Name, Where: whereUUID(w.uuid), Row: values}, true)
	}
	if len(mutations) > 0 {
		b.addWrite(ovsdb.Operation{Op: ovsdb.OperationMutate, Table: t.Name, Where: whereUUID(w.uuid), Mutations: mutations}, true)
	}
	if len(values) > 0 || len(mutations) > 0 || w.parentRef != nil {
		b.stats.Updated++
		b.changed = append(b.changed, w)
	}
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

// transaction is several parts that are committed together.
type transaction struct {
	parts  []*part
	ops    []ovsdb.Operation
	begin  []int        // where the writes of each part begin among the operations
	joined map[cell]int // which operation adds rows to a cell
	// increments is true if it increments nb_cfg; the last operation reads it.
	increments bool
}

// newTransaction joins parts. Removals come first, so that a row is never attached to a
// parent that is deleted in the same transaction. All rows that several parts add to a cell
// are one operation: the cell may have thousands of rows, and the cost of each operation is
// proportional to that.
func newTransaction(parts []*part) *transaction {
	t := &transaction{parts: parts, joined: map[cell]int{}}
	var leaves, joins references
	for _, b := range parts {
		t.ops = append(t.ops, b.removes...)
		leaves.addAll(b.leaves)
		joins.addAll(b.joins)
		t.increments = t.increments || b.awaited
	}
	for _, c := range leaves.cells {
		t.ops = append(t.ops, mutate(c, ovsdb.MutateOperationDelete, leaves.rows[c]))
	}
	for _, b := range parts {
		t.begin = append(t.begin, len(t.ops))
		t.ops = append(t.ops, b.writes...)
	}
	for _, c := range joins.cells {
		t.joined[c] = len(t.ops)
		t.ops = append(t.ops, mutate(c, ovsdb.MutateOperationInsert, joins.rows[c]))
	}
	if t.increments {
		t.ops = append(t.ops, incrementOperations()...)
	}
	return t
}

// verify checks that a part of a committed transaction did what was planned: writes matched
// the intended rows, and the cache has the new rows and not the deleted ones.
func (t *transaction) verify(i int, v view, results []ovsdb.OperationResult) error {
	b := t.parts[i]
	for j, w := range b.writes {
		r := results[t.begin[i]+j]
		if b.exact[j] && r.Count != 1 {
			return fmt.Errorf("%s on %s met %d rows: %w", w.Op, w.Table, r.Count, errStale)
		}
		if w.Op == ovsdb.OperationInsert && !v.has(tableByName[w.Table], r.UUID.GoUUID) {
			return fmt.Errorf("inserted %s row is gone: %w", w.Table, errStale)
		}
	}
	for _, c := range b.joins.cells {
		if n := results[t.joined[c]].Count; n != 1 {
			return fmt.Errorf("%s to refer from met %d rows: %w", c.table, n, errStale)
		}
	}
	if j := slices.IndexFunc(b.plan.gone, func(d *deletion) bool { return v.has(d.table, d.uuid) }); j >= 0 {
		return fmt.Errorf("deleted %s row is still there: %w", b.plan.gone[j].table.Name, errStale)
	}
	return nil
}

// log logs the rows that a committed part wrote.
func (b *part) log() {
	if !klog.V(5).Enabled() {
		return
	}
	for _, w := range b.changed {
		klog.V(5).InfoS("Wrote northbound row", "owner", w.owner, "table", w.table.Name, "id", w.row.ID, "new", w.have == nil)
	}
	for _, d := range b.plan.gone {
		klog.V(5).InfoS("Deleted northbound row", "owner", b.plan.owner, "table", d.table.Name, "id", d.id)
	}
}
