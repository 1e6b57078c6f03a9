package ovsdbraw

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Row is a row by column, as decoded from JSON.
type Row map[string]any

// Op is an operation of a transaction.
type Op map[string]any

// Rows returns all rows of a database by table, except those of the excluded tables.
func (c *Conn) Rows(ctx context.Context, database string, without ...string) (map[string][]Row, error) {
	text, err := c.Call(ctx, "get_schema", database)
	if err != nil {
		return nil, err
	}
	var schema struct{ Tables map[string]any }
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("read schema of %s: %w", database, err)
	}
	for _, table := range without {
		delete(schema.Tables, table)
	}
	names, ops := slices.Sorted(maps.Keys(schema.Tables)), []Op(nil)
	for _, name := range names {
		ops = append(ops, Op{"op": "select", "table": name, "where": []any{}})
	}
	outcomes, err := c.Transact(ctx, database, ops...)
	if err != nil {
		return nil, err
	}
	rows := map[string][]Row{}
	for i, o := range outcomes {
		rows[names[i]] = o.Rows
	}
	return rows, nil
}

// Inserts returns the operations that insert copies of another database's rows into an empty database, in one
// transaction.
func Inserts(tables map[string][]Row) []Op {
	var ops []Op
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		for _, row := range tables[table] {
			uuid := row["_uuid"].([]any)[1].(string)
			ops = append(ops, Op{"op": "insert", "table": table, "uuid-name": nameOf(uuid), "row": insertable(row)})
		}
	}
	return ops
}

// insertable returns the columns of a row that a client would insert, without empty ones. Without the schema, it
// cannot omit false and 0 even where they are the default.
func insertable(row Row) Row {
	columns := Row{}
	for name, value := range row {
		list, composite := value.([]any)
		switch {
		case name == "_uuid", name == "_version", value == "":
		case composite && list[0] != "uuid" && len(list[1].([]any)) == 0:
		default:
			columns[name] = named(value)
		}
	}
	return columns
}

// named replaces references to rows by the rows' names in the transaction.
func named(value any) any {
	list, ok := value.([]any)
	if !ok {
		return value
	}
	if len(list) == 2 && list[0] == "uuid" {
		return []any{"named-uuid", nameOf(list[1].(string))}
	}
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = named(v)
	}
	return out
}

func nameOf(uuid string) string { return "r" + strings.ReplaceAll(uuid, "-", "_") }
