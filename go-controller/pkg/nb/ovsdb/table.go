package ovsdb

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Table describes how rows of one table are owned, found and compared.
type Table struct {
	// Name is the name of the table in the schema.
	Name string
	// New returns an empty model.
	New func() model.Model
	// Key lists the columns that identify a row uniquely; their values are joined with "/"
	// for nb.Ref and nb.Parent. Empty for tables whose rows have no name.
	Key []string
	// Parents maps a parent table to its column that references rows of this table.
	Parents map[string]string
	// Refs are the reference columns that nb.Row.Refs may set. Other reference columns are
	// left unchanged.
	Refs []string
	// Ignore are columns that OVN writes: never compared, never written.
	Ignore []string
	// Notify are those columns of Ignore that owners depend on: they are read, and a change
	// is reported as drift.
	Notify []string
	// Identity derives the owner of a row from its columns, for tables without
	// external_ids; ok is false for foreign rows. The row ID is the key.
	Identity func(model.Model) (owner nb.Owner, ok bool)
	// Few is set for tables with few rows that hold many others. Such rows are read in place: a lookup would copy
	// everything they hold.
	Few bool
	// Awaited reports whether nodes, or the master, need to know when a change of a row, or its deletion, has taken effect. Such a change also
	// increments nb_cfg of NB_Global, and every ovn-controller publishes that value on its host once the flows are installed.
	Awaited func(row model.Model, deleted bool) bool
}

// column is a column the writer monitors, compares and writes.
type column struct {
	name      string
	field     int  // index of the field in the model
	reference bool // holds UUIDs
	unbounded bool // a set or map of any size
}

// table is a Table with values derived from it and from the schema.
type table struct {
	Table
	typ      reflect.Type // of the struct
	root     bool         // rows live without being referenced
	depth    int          // 0 for tables without parents among the non-root tables
	columns  []column     // compared and written
	members  []string     // monitored only: references to rows of root tables
	keys     []int        // fields of Key
	uuid     int          // field of the UUID
	strong   []int        // fields of Refs that keep the rows they refer to
	notified []int        // fields of Notify
	ids      int          // field of external_ids, -1 if the table has none
}

var (
	tables      = compile(literals)
	tableByType = indexTables(func(t *table) reflect.Type { return t.typ })
	tableByName = indexTables(func(t *table) string { return t.Name })
)

func indexTables[K comparable](key func(*table) K) map[K]*table {
	m := make(map[K]*table, len(tables))
	for _, t := range tables {
		m[key(t)] = t
	}
	return m
}

// compile checks the literals against the schema; a mistake in one is a programming error
// and panics at startup.
func compile(lits []Table) []*table {
	schema := nbdb.Schema()
	var out []*table
	byName := map[string]*table{}
	for _, lit := range lits {
		t := newTable(lit, schema.Table(lit.Name))
		out = append(out, t)
		byName[t.Name] = t
	}
	for _, t := range out {
		for parent, col := range t.Parents {
			if t.root {
				byName[parent].members = append(byName[parent].members, col)
			}
		}
		t.depth = depth(t, byName)
	}
	for _, t := range out {
		slices.Sort(t.members)
		t.members = slices.Compact(t.members)
	}
	return out
}

func depth(t *table, byName map[string]*table) int {
	d := 0
	for parent := range t.Parents {
		d = max(d, depth(byName[parent], byName)+1)
	}
	return d
}

func newTable(lit Table, schema *ovsdb.TableSchema) *table {
	t := &table{Table: lit, typ: reflect.TypeOf(lit.New()).Elem(), root: schema.IsRoot, uuid: -1, ids: -1}
	fields := map[string]int{}
	for i := range t.typ.NumField() {
		name := t.typ.Field(i).Tag.Get("ovsdb")
		fields[name] = i
		switch {
		case name == "_uuid":
			t.uuid = i
		case name == "external_ids":
			t.ids = i
		case slices.Contains(lit.Ignore, name), isReference(schema.Column(name)) && !slices.Contains(lit.Refs, name):
		default:
			t.columns = append(t.columns, column{
				name: name, field: i, reference: isReference(schema.Column(name)), unbounded: isUnbounded(schema.Column(name)),
			})
		}
	}
	for _, name := range slices.Concat(lit.Key, lit.Refs, lit.Ignore, lit.Notify) {
		if _, ok := fields[name]; !ok {
			panic(fmt.Sprintf("table %s has no column %s", lit.Name, name))
		}
	}
	for _, name := range lit.Notify {
		t.notified = append(t.notified, fields[name])
	}
	for _, name := range lit.Refs {
		if kind, err := schema.Column(name).TypeObj.Key.RefType(); err == nil && kind == ovsdb.Strong {
			t.strong = append(t.strong, fields[name])
		}
	}
	for _, name := range lit.Key {
		t.keys = append(t.keys, fields[name])
	}
	if (t.ids < 0) != (lit.Identity != nil) {
		panic(fmt.Sprintf("table %s needs either external_ids or an identity", lit.Name))
	}
	return t
}

func isReference(c *ovsdb.ColumnSchema) bool {
	if c.TypeObj == nil || c.TypeObj.Key == nil {
		return false
	}
	target, err := c.TypeObj.Key.RefTable()
	return err == nil && target != ""
}

func isUnbounded(c *ovsdb.ColumnSchema) bool {
	return c.TypeObj != nil && c.TypeObj.Max() == ovsdb.Unlimited
}

// monitored lists the columns that the cache needs.
func (t *table) monitored() []string {
	cols := slices.Concat(t.members, t.Notify)
	for _, c := range t.columns {
		cols = append(cols, c.name)
	}
	if t.ids >= 0 {
		cols = append(cols, "external_ids")
	}
	slices.Sort(cols)
	return slices.Compact(cols)
}

// notifies reports whether a change of a row affects a column that its owner depends on.
func (t *table) notifies(old, row model.Model) bool {
	return old != nil && row != nil && slices.ContainsFunc(t.notified, func(field int) bool {
		return !reflect.DeepEqual(structOf(old).Field(field).Interface(), structOf(row).Field(field).Interface())
	})
}

// refColumn returns the column of t that a Ref may set.
func (t *table) refColumn(name string) (column, bool) {
	if !slices.Contains(t.Refs, name) {
		return column{}, false
	}
	i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
	return t.columns[i], true
}

// key returns the unique name of a row, "" in tables without one.
func (t *table) key(m model.Model) string {
	if len(t.keys) == 1 {
		return structOf(m).Field(t.keys[0]).String()
	}
	parts := make([]string, 0, 2)
	for _, f := range t.keys {
		parts = append(parts, structOf(m).Field(f).String())
	}
	return strings.Join(parts, "/")
}

// probeKey returns a model with only the key columns set, for a lookup.
func (t *table) probeKey(key string) model.Model {
	m := t.New()
	parts := []string{key}
	if len(t.keys) > 1 {
		parts = strings.SplitN(key, "/", len(t.keys))
	}
	for i, part := range parts {
		structOf(m).Field(t.keys[i]).SetString(part)
	}
	if t.ids >= 0 {
		t.setIDs(m, map[string]string{featureKey: noSuch, objectKey: noSuch})
	}
	return m
}

// probeOwner returns a model that only the index on owners can find.
func (t *table) probeOwner(o nb.Owner) model.Model {
	m := t.New()
	for _, f := range t.keys {
		structOf(m).Field(f).SetString(noSuch)
	}
	t.setIDs(m, map[string]string{featureKey: o.Feature, objectKey: o.Object})
	return m
}

// noSuch is a value that no row has: the library searches one index after another and stops
// at the first hit.
const noSuch = "\x00"

// ownerOf returns the owner and the ID of a row; ok is false for foreign rows.
func (t *table) ownerOf(m model.Model) (o nb.Owner, id string, ok bool) {
	if t.Identity != nil {
		o, ok = t.Identity(m)
		return o, t.key(m), ok
	}
	ids := t.idsOf(m)
	if o, ok = ownerOf(ids); ok {
		id, _ = placeOf(t, ids)
	}
	return o, id, ok
}

// parentOf returns the parent recorded on a row.
func (t *table) parentOf(m model.Model) nb.Parent {
	_, parent := placeOf(t, t.idsOf(m))
	return parent
}

func (t *table) uuidOf(m model.Model) string { return structOf(m).Field(t.uuid).String() }

func (t *table) idsOf(m model.Model) map[string]string {
	if t.ids < 0 {
		return nil
	}
	return *structOf(m).Field(t.ids).Addr().Interface().(*map[string]string)
}

func (t *table) setIDs(m model.Model, ids map[string]string) {
	*structOf(m).Field(t.ids).Addr().Interface().(*map[string]string) = ids
}

// membersOf returns the UUIDs of the rows that a column of references to root tables holds.
func (t *table) membersOf(m model.Model, column string) []string {
	for i := range t.typ.NumField() {
		if t.typ.Field(i).Tag.Get("ovsdb") == column {
			return *structOf(m).Field(i).Addr().Interface().(*[]string)
		}
	}
	return nil
}

// keeps reports whether a row has strong references, so that the rows it refers to cannot
// be deleted.
func (t *table) keeps(m model.Model) bool {
	return slices.ContainsFunc(t.strong, func(field int) bool { return !structOf(m).Field(field).IsZero() })
}

func structOf(m model.Model) reflect.Value { return reflect.ValueOf(m).Elem() }
