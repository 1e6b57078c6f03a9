package nb

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Text renders a row of a table in readable form: table, parent, and the columns and
// references that are not empty, sorted by name.
func Text(table string, row Row) string {
	parts := []string{table}
	if row.Parent != (Parent{}) {
		parts = append(parts, "in "+row.Parent.Name+":")
	}
	v := reflect.ValueOf(row.Model).Elem()
	var cols []string
	for i := range v.NumField() {
		column := v.Type().Field(i).Tag.Get("ovsdb")
		if s, ok := valueText(v.Field(i)); ok && column != "_uuid" {
			cols = append(cols, column+"="+s)
		}
	}
	for _, r := range row.Refs {
		cols = append(cols, r.Column+"->"+r.Table+"("+r.Name+")")
	}
	slices.Sort(cols)
	return strings.Join(append(parts, cols...), " ")
}

// valueText renders a column; ok is false for empty ones.
func valueText(v reflect.Value) (s string, ok bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "", false
		}
		return atomText(v.Elem()), true
	case reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, atomText(v.Index(i)))
		}
		slices.Sort(items)
		return "[" + strings.Join(slices.Compact(items), ", ") + "]", len(items) > 0
	case reflect.Map:
		var items []string
		for it := v.MapRange(); it.Next(); {
			items = append(items, atomText(it.Key())+"="+atomText(it.Value()))
		}
		slices.Sort(items)
		return "{" + strings.Join(items, ", ") + "}", len(items) > 0
	default:
		return atomText(v), !v.IsZero()
	}
}

// atomText renders a value, quoted if its end would otherwise be ambiguous.
func atomText(v reflect.Value) string {
	s := fmt.Sprint(v.Interface())
	if v.Kind() == reflect.String && (s == "" || strings.ContainsAny(s, " \t\n\"=,[]{}")) {
		return fmt.Sprintf("%q", s)
	}
	return s
}
