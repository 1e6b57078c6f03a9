package ovsdb

import (
	"cmp"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
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

// toOVS converts a column's value to its wire format, using plain values instead of the
// library's types, whose nested encoders take several times as long.
func (c column) toOVS(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return wireSet(nil)
		}
		return c.atom(v.Elem())
	case reflect.Slice:
		if s, ok := v.Addr().Interface().(*[]string); ok {
			v = reflect.ValueOf(sortedSet(*s)) // the server rejects duplicates
		}
		set := make([]any, v.Len())
		for i := range set {
			set[i] = c.atom(v.Index(i))
		}
		return wireSet(set)
	case reflect.Map:
		pairs := make([][2]any, 0, v.Len())
		for it := v.MapRange(); it.Next(); {
			pairs = append(pairs, [2]any{it.Key().Interface(), it.Value().Interface()})
		}
		return [2]any{"map", pairs}
	default:
		return c.atom(v)
	}
}

func (c column) atom(v reflect.Value) any {
	if c.reference {
		return wireUUID(v.String())
	}
	return v.Interface()
}

// wireSet returns a set in wire format.
func wireSet(elements []any) any {
	if elements == nil {
		elements = []any{}
	}
	return [2]any{"set", elements}
}

// wireMap returns a map in wire format.
func wireMap(m map[string]string) any {
	pairs := make([][2]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, [2]string{k, v})
	}
	return [2]any{"map", pairs}
}

// wireUUID returns a reference to a row, either an existing one or one inserted in the same
// transaction.
func wireUUID(uuid string) any {
	if len(uuid) == 36 {
		return [2]string{"uuid", uuid}
	}
	return [2]string{"named-uuid", uuid}
}

// seed makes digests comparable within this process.
var seed = maphash.MakeSeed()

// digest returns a hash of the columns of a row that the writer manages. Equal rows have
// equal digests regardless of the order of their sets and maps.
func (t *table) digest(row reflect.Value, ids map[string]string) uint64 {
	var sum uint64
	for i, c := range t.columns {
		sum += mix(uint64(i+1), hashValue(row.Field(c.field)))
	}
	for k, v := range ids {
		if isForeignKey(k) {
			continue
		}
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
		hashes := make([]uint64, v.Len())
		for i := range hashes {
			hashes[i] = mix(1, hashValue(v.Index(i)))
		}
		slices.Sort(hashes) // hashes are faster to sort than what they are of
		var sum uint64
		for _, h := range slices.Compact(hashes) {
			sum += h
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
