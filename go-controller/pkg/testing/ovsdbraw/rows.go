package ovsdbraw

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Row is a row by column, as JSON has it.
type Row map[string]any

// Op is an operation of a transaction.
type Op map[string]any

// Rows returns all rows of a database by table, without those of tables that are left out.
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

// Inserts returns the operations that make rows in an empty database as they are in
// another one, in one transaction.
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

// insertable returns the columns of a row that a client would insert: not those that are
// empty. Without the schema, false and 0 may be more than what a column has anyway.
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

// named refers to rows by the names they have in the transaction.
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
