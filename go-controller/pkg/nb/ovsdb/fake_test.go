package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// references are the columns that hold references: the writers derive them from Parent and
// Refs.
var references = []string{"ports", "policies", "static_routes", "nat", "gateway_chassis", "load_balancer_group", "bfd"}

// pair is the real writer and the fake one, which get the same calls.
type pair struct {
	t       *testing.T
	server  *ovsdbtest.Server
	client  *ovsdb.Client
	real    *ovsdb.Writer
	fake    *nbfake.Writer
	history []string
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, server: ovsdbtest.StartNB(t), fake: nbfake.New()}
	p.connect()
	return p
}

// connect creates a writer that has no state other than the database.
func (p *pair) connect() {
	if p.client != nil {
		p.client.Close()
	}
	p.client = dial(p.t, ovsdb.Config{Address: p.server.Socket()})
	p.real = ovsdb.NewWriter(p.client)
}

func (p *pair) note(format string, args ...any) {
	p.history = append(p.history, fmt.Sprintf(format, args...))
}

// outcome is the result of an Apply.
type outcome struct {
	Stats        nb.Stats
	Error        string
	Transactions int
}

func outcomeOf(stats nb.Stats, err error, transactions int) outcome {
	o := outcome{Stats: stats, Transactions: transactions}
	switch {
	case errors.Is(err, nb.ErrNoParent):
		o.Error = "no parent"
	case errors.Is(err, nb.ErrConflict):
		o.Error = "conflict"
	case err != nil && strings.Contains(err.Error(), "referential integrity violation"):
		o.Error = "still referred to"
	case err != nil:
		o.Error = err.Error()
	}
	return o
}

// apply calls both writers and compares their results and the rows afterwards.
func (p *pair) apply(o nb.Owner, rows []nb.Row) {
	p.t.Helper()
	p.note("apply %s: %s", o, describe(rows))
	records := p.server.Records()
	stats, err := p.real.Apply(context.Background(), o, rows)
	of := outcomeOf(stats, err, p.server.Records()-records)
	writes := p.fake.Writes()
	stats, err2 := p.fake.Apply(context.Background(), o, rows)
	if err != nil && err2 != nil && errors.Is(err, nb.ErrConflict) != errors.Is(err2, nb.ErrConflict) {
		// Either error may be returned first. Without the taken names they agree.
		free := slices.DeleteFunc(slices.Clone(rows), func(r nb.Row) bool {
			a, ok := r.Model.(*nbdb.AddressSet)
			_, bfd := r.Model.(*nbdb.BFD)
			return bfd || ok && a.Name == "shared"
		})
		if len(free) < len(rows) {
			p.apply(o, free)
			return
		}
	}
	if d := cmp.Diff(of, outcomeOf(stats, err2, p.fake.Writes()-writes)); d != "" {
		p.fail("the fake one answers otherwise (-real +fake):\n%s%v\n%v", d, err, err2)
	}
	p.compare()
}

// applyAll is apply for the desired states of several owners at once. The real writer may
// need more than one transaction if there is anything to write.
func (p *pair) applyAll(want map[nb.Owner][]nb.Row) {
	p.t.Helper()
	for o, rows := range want {
		p.note("apply with others %s: %s", o, describe(rows))
	}
	records := p.server.Records()
	stats, errs := p.real.ApplyAll(context.Background(), want)
	of := map[nb.Owner]outcome{{}: outcomeOf(stats, nil, min(1, p.server.Records()-records))}
	writes := p.fake.Writes()
	stats, errs2 := p.fake.ApplyAll(context.Background(), want)
	as := map[nb.Owner]outcome{{}: outcomeOf(stats, nil, p.fake.Writes()-writes)}
	for o := range want {
		of[o], as[o] = outcomeOf(nb.Stats{}, errs[o], 0), outcomeOf(nb.Stats{}, errs2[o], 0)
	}
	if d := cmp.Diff(of, as); d != "" {
		p.fail("the fake one answers otherwise (-real +fake):\n%s%v\n%v", d, errs, errs2)
	}
	p.compare()
}

// compare compares the rows of all owners.
func (p *pair) compare() {
	p.t.Helper()
	for _, feature := range []string{"network", "egressservice"} {
		owners := p.fake.Owners(feature)
		if d := cmp.Diff(p.real.Owners(feature), owners, cmp.Comparer(func(a, b []nb.Owner) bool { return slices.Equal(a, b) })); d != "" {
			p.fail("the owners differ (-real +fake):\n%s", d)
		}
		for _, o := range owners {
			if d := cmp.Diff(shown(p.real.Rows(o)), shown(p.fake.Rows(o))); d != "" {
				p.fail("rows of %s differ (-real +fake):\n%s", o, d)
			}
		}
	}
}

func (p *pair) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\nhistory:\n%s\nfake:\n%s", fmt.Sprintf(format, args...), strings.Join(p.history, "\n"), p.fake.Dump())
}

func describe(rows []nb.Row) string {
	var out []string
	for _, r := range rows {
		refs := ""
		for _, ref := range r.Refs {
			refs += " ->" + ref.Name
		}
		out = append(out, fmt.Sprintf("%T %s in %q%s", r.Model, r.ID, r.Parent.Name, refs))
	}
	return strings.Join(out, ", ")
}

// shown returns rows as text, without owners and references.
func shown(rows []nb.Row) []string {
	var out []string
	for _, r := range rows {
		v := reflect.ValueOf(r.Model).Elem()
		var columns []string
		for i := range v.NumField() {
			column, f := v.Type().Field(i).Tag.Get("ovsdb"), v.Field(i)
			if column == "_uuid" || slices.Contains(references, column) {
				continue
			}
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				f = f.Elem()
			}
			switch value := f.Interface().(type) {
			case map[string]string:
				clean := map[string]string{}
				for k, s := range value {
					if !strings.HasPrefix(k, "k8s.ovn.org/") {
						clean[k] = s
					}
				}
				columns = append(columns, fmt.Sprintf("%s=%v", column, clean))
			case []string:
				columns = append(columns, fmt.Sprintf("%s=%v", column, slices.Compact(slices.Sorted(slices.Values(value)))))
			default:
				columns = append(columns, fmt.Sprintf("%s=%v", column, value))
			}
		}
		out = append(out, fmt.Sprintf("%T %s %s", r.Model, r.ID, strings.Join(columns, " ")))
	}
	slices.Sort(out)
	return out
}

// more adds rows that refer to rows of other owners, and rows whose names other owners may
// use too.
func (x *world) more(o nb.Owner, rows []nb.Row) []nb.Row {
	bfd := func() nb.Row {
		m := &nbdb.BFD{LogicalPort: x.pick("rtoe-GR_n0", "rtoe-GR_n1"), DstIP: x.pick("172.18.0.9", "172.18.0.8")}
		return nb.Row{ID: m.LogicalPort + "/" + m.DstIP, Model: m}
	}
	if x.some(0.1) {
		rows = append(rows, nb.Row{ID: x.pick("shared", "mine"), Model: &nbdb.AddressSet{Name: "shared", Addresses: []string{x.pick("10.0.0.7", "10.0.0.8")}}})
	}
	if x.some(0.2) {
		rows = append(rows, bfd())
	}
	if x.some(0.2) && o.Feature == "egressservice" {
		m := bfd().Model.(*nbdb.BFD)
		rows = append(rows, nb.Row{ID: "route", Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: x.pick("r0", "r1")},
			Model: &nbdb.LogicalRouterStaticRoute{IPPrefix: "10.244.0.5", Nexthop: m.DstIP},
			Refs:  []nb.Ref{{Column: "bfd", Table: nbdb.BFDTable, Name: m.LogicalPort + "/" + m.DstIP}}})
	}
	return rows
}

// remove deletes a router from both, as a user of ovn-nbctl would.
func (p *pair) remove(x *world) {
	id := x.pick("r0", "r1", "r0-again", "r1-again")
	if !p.fake.Remove(network, nbdb.LogicalRouterTable, id) {
		return
	}
	p.note("lr-del %s", id)
	p.server.Nbctl("--if-exists", "lr-del", strings.TrimSuffix(id, "-again"))
	p.connect()
	p.compare()
}

// TestFakeIsLikeThis compares nbfake with the real writer: results, the number of
// transactions, rows and owners are the same for any sequence of operations.
func TestFakeIsLikeThis(t *testing.T) {
	seeds.Each(t, 6, func(t *testing.T, rng *rand.Rand) {
		p, x := newPair(t), newWorld(0)
		x.rng = rng
		for range 120 {
			switch {
			case x.some(0.05):
				p.note("restart")
				p.connect()
				p.compare()
			case x.some(0.05):
				p.remove(x)
			case x.some(0.1):
				p.apply(x.owners[rng.IntN(len(x.owners))], nil)
			case x.some(0.15):
				// Owners whose rows depend on each other are not written together.
				want := map[nb.Owner][]nb.Row{}
				for range 1 + rng.IntN(3) {
					if o := x.step(); o != network {
						want[o] = x.desired[o]
					}
				}
				p.applyAll(want)
			default:
				o := x.step()
				x.desired[o] = x.more(o, x.desired[o])
				p.apply(o, x.desired[o])
				if x.some(0.2) {
					p.apply(o, x.desired[o])
				}
			}
		}
	})
}
