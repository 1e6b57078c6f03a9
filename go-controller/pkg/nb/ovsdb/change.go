package ovsdb

import (
	"reflect"
	"slices"

	"github.com/ovn-org/libovsdb/ovsdb"
)

// large is from how many elements on a column is changed element by element, so that the cost of
// one more pod or Service does not grow with those that are there. A smaller one is written as a
// whole.
const large = 64

// change is how a column of a row becomes as wanted.
type change struct {
	differs bool
	// mutations are the elements to insert and remove; nil if the column is to be written as a
	// whole.
	mutations []ovsdb.Mutation
}

// change compares a column of two rows. A large set or map of which more than half stays is mutated.
// The mutations have the same result as writing it, unless someone else changes the same
// column at the same time: then the row is not as it was expected to become, and the owner is
// told to write it again.
func (c column) change(want, have reflect.Value) change {
	if !c.unbounded || have.Len() < large {
		return change{differs: !equalColumn(want, have)}
	}
	switch have := have.Addr().Interface().(type) {
	case *[]string:
		insert, remove := diffSets(*want.Addr().Interface().(*[]string), *have)
		n := len(insert) + len(remove)
		if 2*n >= len(*have) {
			return change{differs: true}
		}
		return change{differs: n > 0, mutations: c.setMutations(insert, remove)}
	case *map[string]string:
		insert, remove := diffMaps(*want.Addr().Interface().(*map[string]string), *have)
		n := max(len(insert), len(remove))
		if 2*n >= len(*have) {
			return change{differs: true}
		}
		return change{differs: n > 0, mutations: mapMutations(c.name, remove, insert)}
	default:
		return change{differs: !equalColumn(want, reflect.ValueOf(have).Elem())}
	}
}

// diffSets returns the elements to insert into and to remove from a set. Only the wanted one may
// have duplicates.
func diffSets(want, have []string) (insert, remove []string) {
	if slices.Equal(want, have) {
		return nil, nil
	}
	at := make(map[string]int, len(have))
	for i, s := range have {
		at[s] = i
	}
	stays := make([]bool, len(have), len(have)+1)
	for _, s := range want {
		i, ok := at[s]
		if !ok {
			insert = append(insert, s)
			i = len(stays)
			at[s], stays = i, append(stays, true) // once, even if it is wanted twice
		}
		stays[i] = true
	}
	for i, s := range have {
		if !stays[i] {
			remove = append(remove, s)
		}
	}
	return insert, remove
}

// diffMaps returns the pairs to insert into a map, and the keys to remove before that: an insert does
// not overwrite.
func diffMaps(want, have map[string]string) (insert map[string]string, remove []string) {
	insert = map[string]string{}
	for k, old := range have {
		if v, ok := want[k]; !ok || v != old {
			remove = append(remove, k)
		}
	}
	for k, v := range want {
		if old, ok := have[k]; !ok || v != old {
			insert[k] = v
		}
	}
	return insert, remove
}

// setMutations inserts first, for sets that must not be empty.
func (c column) setMutations(insert, remove []string) []ovsdb.Mutation {
	var out []ovsdb.Mutation
	if len(insert) > 0 {
		out = append(out, *ovsdb.NewMutation(c.name, ovsdb.MutateOperationInsert, c.toOVS(reflect.ValueOf(&insert).Elem())))
	}
	if len(remove) > 0 {
		out = append(out, *ovsdb.NewMutation(c.name, ovsdb.MutateOperationDelete, c.toOVS(reflect.ValueOf(&remove).Elem())))
	}
	return out
}

// mapMutations removes keys, whatever their values are by then, and inserts pairs.
func mapMutations(column string, remove []string, insert map[string]string) []ovsdb.Mutation {
	var out []ovsdb.Mutation
	if len(remove) > 0 {
		keys := make([]any, len(remove))
		for i, k := range remove {
			keys[i] = k
		}
		out = append(out, *ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, wireSet(keys)))
	}
	if len(insert) > 0 {
		out = append(out, *ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, wireMap(insert)))
	}
	return out
}
