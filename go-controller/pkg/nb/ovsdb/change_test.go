package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// numbered returns the texts "prefix from" to "prefix to", without the latter.
func numbered(prefix string, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

func asMap(keys []string, value string) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		out[k] = value
	}
	return out
}

// TestOnlyChangedElements: of a large set or map only the elements that change are sent.
func TestOnlyChangedElements(t *testing.T) {
	udp := nbdb.LoadBalancerProtocolUDP
	set := func(addrs []string) model.Model { return &nbdb.AddressSet{Name: "a", Addresses: addrs} }
	port := func(networks []string) model.Model { return &nbdb.LogicalRouterPort{Name: "p", Networks: networks} }
	balancer := func(vips map[string]string) model.Model {
		return &nbdb.LoadBalancer{Name: "l", Protocol: &udp, Vips: vips}
	}
	vips := asMap(numbered("v", 0, 5000), "a")
	for _, c := range []struct {
		name       string
		have, want model.Model
		ops        string // operations and mutators
		bytes      int    // at most
		awaited    bool
	}{
		{name: "no difference but the order", have: set([]string{"a", "b"}), want: set([]string{"b", "a", "b"})},
		{name: "no difference of large sets", have: set(numbered("a", 0, 5000)), want: set(append(numbered("a", 10, 5000), numbered("a", 0, 20)...))},
		{name: "small", have: set(numbered("a", 0, 5)), want: set(numbered("a", 0, 6)), ops: "update", bytes: 300},
		{name: "one more", have: set(numbered("a", 0, 5000)), want: set(numbered("a", 0, 5001)), ops: "mutate insert", bytes: 300},
		{name: "one less", have: set(numbered("a", 0, 5000)), want: set(numbered("a", 1, 5000)), ops: "mutate delete", bytes: 300},
		{name: "another", have: set(numbered("a", 0, 5000)), want: set(numbered("a", 1, 5001)), ops: "mutate insert delete", bytes: 300},
		{name: "wanted twice", have: set(numbered("a", 0, 100)), want: set(append(numbered("a", 0, 101), "a100", "a3")), ops: "mutate insert", bytes: 300},
		{name: "all others", have: set(numbered("a", 0, 100)), want: set(numbered("b", 0, 100)), ops: "update", bytes: 5000},
		{name: "none", have: set(numbered("a", 0, 100)), want: set(nil), ops: "update", bytes: 300},
		{name: "a set that may not be empty", have: port(numbered("a", 0, 100)), want: port(numbered("a", 1, 101)), ops: "mutate insert delete", bytes: 300},
		{name: "one pair more", have: balancer(vips), want: balancer(asMap(numbered("v", 0, 5001), "a")), ops: "mutate insert", bytes: 300, awaited: true},
		{name: "one pair less", have: balancer(vips), want: balancer(asMap(numbered("v", 1, 5000), "a")), ops: "mutate delete", bytes: 300, awaited: true},
		{name: "another value", have: balancer(vips), want: func() model.Model {
			other := maps.Clone(vips)
			other["v7"] = "b"
			return balancer(other)
		}(), ops: "mutate delete insert", bytes: 300, awaited: true},
		{name: "all other values", have: balancer(asMap(numbered("v", 0, 100), "a")), want: balancer(asMap(numbered("v", 0, 100), "b")), ops: "update", bytes: 5000, awaited: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &part{plan: &plan{}}
			b.write(&wanted{table: tableOf(c.want), model: c.want, have: &found{row: c.have}, uuid: strings.Repeat("0", 36)})
			var ops []string
			for _, op := range b.writes {
				ops = append(ops, op.Op)
				for _, m := range op.Mutations {
					ops = append(ops, string(m.Mutator))
				}
			}
			if got := strings.Join(ops, " "); got != c.ops || b.awaited != c.awaited {
				t.Errorf("%q, awaited %t, want %q, %t", got, b.awaited, c.ops, c.awaited)
			}
			if text, err := json.Marshal(b.writes); err != nil || len(b.writes) > 0 && len(text) > c.bytes {
				t.Errorf("%d bytes (%v), want at most %d", len(text), err, c.bytes)
			}
		})
	}
}

func tableOf(m model.Model) *table {
	i := slices.IndexFunc(tables, func(t *table) bool { return fmt.Sprintf("%T", t.New()) == fmt.Sprintf("%T", m) })
	return tables[i]
}

// TestDiff: what diffSets and diffMaps return turns one set or map into the other.
func TestDiff(t *testing.T) {
	seeds.Each(t, 200, func(t *testing.T, rng *rand.Rand) {
		some := func() []string {
			var out []string
			for range rng.IntN(30) {
				out = append(out, fmt.Sprint(rng.IntN(30)))
			}
			return out
		}
		want, have := some(), some()
		slices.Sort(have)
		have = slices.Compact(have)
		insert, remove := diffSets(want, have)
		got := slices.DeleteFunc(slices.Concat(have, insert), func(s string) bool { return slices.Contains(remove, s) })
		slices.Sort(got)
		if !slices.Equal(got, sortedSet(want)) || slices.ContainsFunc(insert, func(s string) bool { return slices.Contains(have, s) }) {
			t.Errorf("from %v to %v: insert %v, remove %v", have, want, insert, remove)
		}
		before, after := map[string]string{}, map[string]string{}
		for _, k := range have {
			before[k] = fmt.Sprint(rng.IntN(2))
		}
		for _, k := range want {
			after[k] = fmt.Sprint(rng.IntN(2))
		}
		pairs, keys := diffMaps(after, before)
		result := maps.Clone(before)
		for _, k := range keys {
			delete(result, k)
		}
		for k, v := range pairs {
			if _, ok := result[k]; !ok { // an insert does not overwrite
				result[k] = v
			}
		}
		if !maps.Equal(result, after) {
			t.Errorf("from %v to %v: insert %v, remove %v", before, after, pairs, keys)
		}
	})
}

// TestOthersChangeTheSameSet: if someone else changes a large set or map between the comparison and
// the write, the owner is told, and its next Apply puts it right.
func TestOthersChangeTheSameSet(t *testing.T) {
	o := nb.Owner{Feature: "service", Object: "a"}
	rows := func(addrs []string, vips map[string]string) []nb.Row {
		return []nb.Row{
			{ID: "s", Model: &nbdb.AddressSet{Name: "s", Addresses: addrs}},
			{ID: "l", Model: &nbdb.LoadBalancer{Name: "l", Vips: vips}},
		}
	}
	wantVips := asMap(numbered("10.0.0.1:", 1000, 1102), "b")
	before := rows(numbered("10.0.0.", 0, 100), asMap(numbered("10.0.0.1:", 1000, 1100), "b"))
	want := rows(numbered("10.0.0.", 1, 102), wantVips)
	for name, edit := range map[string][]string{
		"adds":             {"add", "Address_Set", "s", "addresses", "10.9.9.9"},
		"removes":          {"remove", "Address_Set", "s", "addresses", "10.0.0.7"},
		"adds the same":    {"add", "Address_Set", "s", "addresses", "10.0.0.101"},
		"removes the same": {"remove", "Address_Set", "s", "addresses", "10.0.0.0"},
		"clears":           {"clear", "Address_Set", "s", "addresses"},
		"another value":    {"set", "Load_Balancer", "l", `vips:"10.0.0.1:1007"="c"`},
		"the same key":     {"set", "Load_Balancer", "l", `vips:"10.0.0.1:1101"="c"`},
		"removes a pair":   {"remove", "Load_Balancer", "l", "vips", `"10.0.0.1:1003"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := ovsdbtest.StartNB(t)
			c, err := Connect(t.Context(), Config{Address: s.Socket()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			w := NewWriter(c)
			if _, err := w.Apply(t.Context(), o, before); err != nil {
				t.Fatal(err)
			}
			session, err := c.current(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r := &request{ctx: t.Context(), owner: o, want: want, done: make(chan outcome, 1)}
			b, err := w.plan(session.view, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range b.writes {
				if op.Op != "mutate" {
					t.Fatalf("%s on %s, want mutations", op.Op, op.Table)
				}
			}
			told := make(chan struct{}, 100)
			w.OnDrift(func(nb.Owner) { told <- struct{}{} })
			s.Nbctl(edit...)
			if again := w.send(session, []*request{r}, []*part{b}); len(again) > 0 {
				t.Fatal("starts over")
			}
			eventually.Succeeds(t, "the rows to be as wanted", func() error {
				select {
				case <-told:
				case <-t.Context().Done():
				}
				if _, err := w.Apply(t.Context(), o, want); err != nil {
					return err
				}
				if got, all := s.Nbctl("--bare", "--columns=addresses", "list", "Address_Set", "s"), numbered("10.0.0.", 1, 102); !slices.Equal(sortedSet(strings.Fields(got)), sortedSet(all)) {
					return fmt.Errorf("addresses are %s", got)
				}
				got := s.Nbctl("--bare", "--columns=vips", "list", "Load_Balancer", "l")
				if pairs := strings.Fields(got); len(pairs) != len(wantVips) || strings.Count(got, "=b") != len(wantVips) {
					return fmt.Errorf("vips are %s", got)
				}
				return nil
			})
		})
	}
}
