package adopt

import (
	"cmp"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Config is the part of the configuration that determines which feature translates which addresses.
type Config struct {
	// MultiExternalGateway is whether external gateways are enabled.
	MultiExternalGateway bool
}

// Listing classifies the rows of a northbound database.
type Listing struct {
	// Ours is the number of rows that are ours already.
	Ours int
	// Understood are rows of others that can become ours.
	Understood []Understood
	// Left are the rows that are left alone.
	Left []Left
}

// Understood is a row that will become ours.
type Understood struct {
	Row  nb.Stored
	Mark nb.Mark
	// Replaced means that the owner has rows of another form, and deletes this one once those exist.
	Replaced bool
}

// Left is a row that is left alone.
type Left struct {
	Row nb.Stored
	// In is the row that contains it; zero if there is none or several.
	In nb.Parent
}

// Marks returns the marks that make the understood rows ours.
func (l Listing) Marks() []nb.Mark {
	marks := make([]nb.Mark, 0, len(l.Understood))
	for _, u := range l.Understood {
		marks = append(marks, u.Mark)
	}
	return marks
}

// List classifies all rows of a northbound database.
func List(c Config, rows []nb.Stored) Listing {
	d := newDatabase(c, rows)
	claims := map[string]claim{}
	for _, r := range rows {
		if rule := rules[r.Table]; rule != nil && r.Owner == nil {
			if cl, ok := rule(d, r); ok {
				claims[r.UUID] = cl
			}
		}
	}
	for _, r := range rows {
		if r.Table != nbdb.AddressSetTable || r.Owner != nil {
			continue
		}
		if owner, ok := d.setOwner(r, claims); ok {
			claims[r.UUID] = claim{owner: owner}
		}
	}
	var l Listing
	for _, r := range rows {
		cl, ok := claims[r.UUID]
		switch {
		case ok:
			l.Understood = append(l.Understood, understood(r, cl))
		case r.Owner != nil:
			l.Ours++
		default:
			l.Left = append(l.Left, Left{Row: r, In: d.in(r)})
		}
	}
	slices.SortFunc(l.Understood, func(a, b Understood) int { return compare(a.Row, b.Row) })
	slices.SortFunc(l.Left, func(a, b Left) int { return compare(a.Row, b.Row) })
	return l
}

func compare(a, b nb.Stored) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(Name(a), Name(b)), cmp.Compare(a.UUID, b.UUID))
}

// setOwner returns the owner of the rows that refer to an address set, if all of them are understood.
func (d *database) setOwner(set nb.Stored, claims map[string]claim) (owner nb.Owner, ok bool) {
	for _, r := range slices.Concat(d.mentions[set.Value("name")], d.holders[set.UUID]) {
		cl, understood := claims[r.UUID]
		if !understood {
			return nb.Owner{}, false
		}
		owner, ok = cl.owner, true
	}
	return owner, ok
}

func understood(r nb.Stored, cl claim) Understood {
	u := Understood{Row: r, Mark: nb.Mark{Table: r.Table, UUID: r.UUID, Owner: cl.owner, ID: cl.id}}
	if cl.id == "" {
		u.Replaced, u.Mark.ID = true, "former "+r.UUID
	} else {
		u.Mark.Parent = parent(r)
	}
	return u
}
