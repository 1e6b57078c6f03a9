package ovsdb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// internalTables configure the connection to the database and its name; their rows have no
// owner.
var internalTables = []string{"NB_Global", "Connection", "SSL"}

// Stored returns a consistent snapshot of the rows of all tables in the database, except
// those about the database itself.
func (c *Client) Stored(ctx context.Context) ([]nb.Stored, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	var ops []ovsdb.Operation
	for _, name := range slices.Sorted(maps.Keys(s.data.Schema().Tables)) {
		if !slices.Contains(internalTables, name) {
			ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: name})
		}
	}
	results, err := s.transact(c.cfg.TransactTimeout, ops)
	if err != nil {
		return nil, fmt.Errorf("read the northbound database: %w", err)
	}
	var rows []nb.Stored
	for i, r := range results {
		for _, row := range r.Rows {
			rows = append(rows, stored(ops[i].Table, row))
		}
	}
	setParents(rows)
	return rows, nil
}

// setParents records on rows the parents that reference them, in a stable order.
func setParents(rows []nb.Stored) {
	at := map[string]int{}
	for i, r := range rows {
		at[r.UUID] = i
	}
	for _, t := range tables {
		for holder, column := range t.Parents {
			for _, h := range rows {
				if h.Table != holder {
					continue
				}
				for _, uuid := range h.Sets[column] {
					if i, ok := at[uuid]; ok && rows[i].Table == t.Name {
						rows[i].Parents = append(rows[i].Parents, nb.Parent{Table: holder, Name: h.Value("name")})
					}
				}
			}
		}
	}
	for _, r := range rows {
		slices.SortFunc(r.Parents, func(a, b nb.Parent) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Name, b.Name)) })
	}
}

// stored converts a row from the library's representation.
func stored(name string, row ovsdb.Row) nb.Stored {
	s := nb.Stored{Table: name, Sets: map[string][]string{}, Maps: map[string]map[string]string{}}
	for column, value := range row {
		switch v := value.(type) {
		case ovsdb.UUID:
			if column == "_uuid" {
				s.UUID = v.GoUUID
			} else if column != "_version" {
				s.Sets[column] = []string{v.GoUUID}
			}
		case ovsdb.OvsMap:
			for key, element := range v.GoMap {
				if s.Maps[column] == nil {
					s.Maps[column] = map[string]string{}
				}
				s.Maps[column][text(key)] = text(element)
			}
		case ovsdb.OvsSet:
			for _, element := range v.GoSet {
				s.Sets[column] = append(s.Sets[column], text(element))
			}
			slices.Sort(s.Sets[column])
		default:
			s.Sets[column] = []string{text(v)}
		}
	}
	if owner, ok := ownerOfStored(s); ok {
		s.Owner = &owner
	}
	return s
}

// text returns a value of a column as text.
func text(v any) string {
	if id, ok := v.(ovsdb.UUID); ok {
		return id.GoUUID
	}
	return fmt.Sprint(v)
}

// ownerOfStored returns the owner of a row; ok is false for foreign rows.
func ownerOfStored(s nb.Stored) (nb.Owner, bool) {
	t := tableByName[s.Table]
	if t == nil {
		return nb.Owner{}, false
	}
	if t.Identity == nil {
		return ownerOf(s.Maps["external_ids"])
	}
	m := t.New()
	for i, field := range t.keys {
		structOf(m).Field(field).SetString(s.Value(t.Key[i]))
	}
	return t.Identity(m)
}

// Mark makes foreign rows ours, in one transaction. Only our keys in their external_ids
// change. It returns how many of the rows existed.
func (c *Client) Mark(ctx context.Context, rows []nb.Stored, marks []nb.Mark) (int, error) {
	have := map[string]map[string]string{}
	for _, r := range rows {
		have[r.UUID] = r.Maps["external_ids"]
	}
	var ops []ovsdb.Operation
	for _, m := range marks {
		t := tableByName[m.Table]
		if t == nil || t.ids < 0 {
			return 0, fmt.Errorf("mark row %s of %s: no rows of that table can be owned", m.UUID, m.Table)
		}
		ids, err := wantedIDs(t, m.Owner, nb.Row{ID: m.ID, Parent: m.Parent}, nil)
		if err != nil {
			return 0, fmt.Errorf("mark row %s of %s: %w", m.UUID, m.Table, err)
		}
		want := maps.Clone(have[m.UUID])
		if want == nil {
			want = map[string]string{}
		}
		maps.Copy(want, ids)
		remove, insert := idChange(have[m.UUID], want)
		if mutations := mapMutations("external_ids", remove, insert); len(mutations) > 0 {
			ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationMutate, Table: m.Table, Where: whereUUID(m.UUID), Mutations: mutations})
		}
	}
	if len(ops) == 0 {
		return 0, nil
	}
	s, err := c.current(ctx)
	if err != nil {
		return 0, err
	}
	results, err := s.transact(c.cfg.TransactTimeout, ops)
	if err != nil {
		return 0, fmt.Errorf("mark rows: %w", err)
	}
	n := 0
	for _, r := range results {
		n += r.Count
	}
	return n, nil
}
