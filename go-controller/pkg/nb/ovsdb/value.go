package ovsdb

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-org/libovsdb/ovsdb"
)

// equalColumn compares a column of two rows the way the database does: sets
// without order and without duplicates, nil equal to empty.
func equalColumn(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Slice:
		if s, ok := a.Addr().Interface().(*[]string); ok {
			return equalSet(*s, *b.Addr().Interface().(*[]string))
		}
		if s, ok := a.Addr().Interface().(*[]int); ok {
			return equalSet(*s, *b.Addr().Interface().(*[]int))
		}
	case reflect.Map:
		if m, ok := a.Addr().Interface().(*map[string]string); ok {
			return maps.Equal(*m, *b.Addr().Interface().(*map[string]string))
		}
		if a.Len() == 0 && b.Len() == 0 {
			return true
		}
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return a.Elem().Equal(b.Elem())
	case reflect.String, reflect.Int, reflect.Bool, reflect.Float64:
		return a.Equal(b)
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func equalSet[T cmp.Ordered](a, b []T) bool {
	if slices.Equal(a, b) {
		return true
	}
	return slices.Equal(sortedSet(a), sortedSet(b))
}

func sortedSet[T cmp.Ordered](s []T) []T {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

// toOVS converts a column's value to what goes over the wire.
func (c column) toOVS(v reflect.Value) (any, error) {
	if v.Kind() == reflect.Slice && v.Len() > 1 {
		if s, ok := v.Addr().Interface().(*[]string); ok {
			v = reflect.ValueOf(sortedSet(*s)) // the server refuses duplicates
		}
	}
	value, err := ovsdb.NativeToOvs(c.schema, v.Interface())
	if err != nil {
		return nil, fmt.Errorf("convert column %s: %w", c.name, err)
	}
	return value, nil
}

// seed makes digests comparable within this process.
var seed = maphash.MakeSeed()

// digest condenses what the writer answers for in a row. Equal rows have equal
// digests whatever the order of their sets and maps.
func (t *table) digest(row reflect.Value, ids map[string]string) uint64 {
	var sum uint64
	for i, c := range t.columns {
		sum += mix(uint64(i+1), hashValue(row.Field(c.field)))
	}
	for k, v := range managedIDs(ids) {
		sum += mix(0, mix(maphash.String(seed, k), maphash.String(seed, v)))
	}
	return sum
}

func hashValue(v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.String:
		return maphash.String(seed, v.String())
	case reflect.Pointer:
		if v.IsNil() {
			return 0
		}
		return mix(1, hashValue(v.Elem()))
	case reflect.Slice:
		if s, ok := v.Addr().Interface().(*[]string); ok && len(*s) > 1 {
			v = reflect.ValueOf(sortedSet(*s))
		}
		var sum uint64
		for i := range v.Len() {
			sum += mix(1, hashValue(v.Index(i)))
		}
		return sum
	case reflect.Map:
		var sum uint64
		for it := v.MapRange(); it.Next(); {
			sum += mix(hashValue(it.Key()), hashValue(it.Value()))
		}
		return sum
	default:
		return maphash.Comparable(seed, v.Interface())
	}
}

// mix combines two hashes; the order of its arguments matters.
func mix(a, b uint64) uint64 {
	return (a ^ b*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
}
