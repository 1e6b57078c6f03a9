package ovsdb_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

var (
	ours   = nb.Owner{Feature: "network", Object: "pod"}
	theirs = nb.Owner{Feature: "egressservice", Object: "ip"}
)

// translation returns a row that occupies a slot.
func translation(id, source, to string, yields bool) nb.Row {
	return nb.Row{ID: id, Parent: clusterRouter, Yields: yields,
		Model: &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: to, LogicalIP: source}}
}

// TestYield: a yielding row and the row it yields to are swapped in one transaction,
// whichever of them is added or deleted, also after a restart.
func TestYield(t *testing.T) {
	p := newPair(t)
	p.apply(network, []nb.Row{router(clusterRouter.Name)})
	plain := []nb.Row{translation("10.244.0.5", "10.244.0.5", "172.18.0.3", true), translation("10.244.0.6", "10.244.0.6", "172.18.0.3", true)}
	egress := []nb.Row{translation("10.244.0.5@n", "10.244.0.5", "172.18.0.33", false)}
	is := func(want string) {
		t.Helper()
		var got []string
		for _, line := range strings.Split(p.server.Nbctl("--bare", "--columns=logical_ip,external_ip", "--format=csv", "--no-headings", "list", "NAT"), "\n") {
			if line != "" {
				got = append(got, line)
			}
		}
		if len(got) == 2 && got[0] > got[1] {
			got[0], got[1] = got[1], got[0]
		}
		if strings.Join(got, " ") != want {
			t.Errorf("translations %q, want %q", got, want)
		}
	}
	const node, other = "10.244.0.5,172.18.0.3 10.244.0.6,172.18.0.3", "10.244.0.5,172.18.0.33 10.244.0.6,172.18.0.3"
	p.apply(ours, plain)
	is(node)
	p.apply(theirs, egress)
	is(other)
	p.apply(ours, plain) // nothing to write
	p.apply(theirs, nil)
	is(node)
	p.apply(theirs, egress)
	p.apply(ours, nil)
	is("10.244.0.5,172.18.0.33")
	p.apply(ours, plain)
	is(other)

	p.connect()
	p.fake.Restart()
	p.apply(theirs, egress)
	p.apply(ours, plain)
	is(other)
	p.apply(theirs, nil)
	is(node)

	// Of two yielding rows, one is in the database.
	again := nb.Owner{Feature: "network", Object: "again"}
	p.apply(again, plain[:1])
	p.apply(ours, plain[1:])
	is(node)
	p.apply(theirs, egress)
	p.apply(again, nil)
	p.apply(theirs, nil)
	is("10.244.0.6,172.18.0.3")

	p.applyAll(map[nb.Owner][]nb.Row{ours: plain, theirs: egress})
	is(other)
	// Outside changes are repaired, whichever owner is reconciled first.
	p.fake.Remove(theirs, nbdb.NATTable, "10.244.0.5@n")
	drifted := make(chan nb.Owner, 100)
	p.real.OnDrift(func(o nb.Owner) { drifted <- o })
	p.server.Nbctl("lr-nat-del", clusterRouter.Name, "snat", "10.244.0.5")
	for told := network; told != ours; {
		select {
		case told = <-drifted:
		case <-time.After(20 * time.Second):
			t.Fatal("the owner of the row that yielded is not told")
		}
	}
	p.apply(ours, plain)
	is(node)
}

// TestNeverTwoNeverNone: whatever is written concurrently, each transaction leaves exactly
// one translation of each address for which an owner has a yielding one.
func TestNeverTwoNeverNone(t *testing.T) {
	seeds.Each(t, 4, func(t *testing.T, rng *rand.Rand) {
		p := newPair(t)
		apply(t, p.real, network, router(clusterRouter.Name))
		const addrs, rounds = 12, 60
		var plain [3][]nb.Row // four addresses each
		for i := range addrs {
			a := fmt.Sprintf("10.244.0.%d", i)
			plain[i/4] = append(plain[i/4], translation(a, a, "172.18.0.3", true))
		}
		owner := func(i int) nb.Owner { return nb.Owner{Feature: "network", Object: fmt.Sprint("node", i)} }
		for i, rows := range plain {
			apply(t, p.real, owner(i), rows...)
		}
		before := p.server.Records()
		var all sync.WaitGroup
		run := func(f func(rng *rand.Rand)) {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			all.Go(func() {
				for range rounds {
					f(own)
				}
			})
		}
		for i := range plain {
			run(func(rng *rand.Rand) { // the node's address changes
				to := fmt.Sprintf("172.18.0.%d", 3+rng.IntN(2))
				var rows []nb.Row
				for _, r := range plain[i] {
					rows = append(rows, translation(r.ID, r.ID, to, true))
				}
				apply(t, p.real, owner(i), rows...)
			})
		}
		for i := range 4 { // each has three addresses, of three nodes
			run(func(rng *rand.Rand) {
				want := map[nb.Owner][]nb.Row{}
				for j := range 3 {
					a, o := fmt.Sprintf("10.244.0.%d", i+4*j), nb.Owner{Feature: "egressservice", Object: fmt.Sprint(i, "/", j)}
					if want[o] = nil; rng.IntN(2) == 0 {
						want[o] = []nb.Row{translation(a+"@n", a, fmt.Sprintf("172.18.0.%d", 33+rng.IntN(2)), false)}
					}
				}
				if _, errs := p.real.ApplyAll(t.Context(), want); len(errs) > 0 {
					t.Errorf("apply: %v", errs)
				}
			})
		}
		all.Wait()
		if n := checkJournal(t, p.server.Journal(), before, addrs); n == 0 {
			t.Error("nothing was written")
		}
	})
}

// checkJournal replays the transactions of a database and, skipping the first ones, reports
// those that leave an address with other than one translation.
func checkJournal(t *testing.T, journal string, after, addrs int) (changes int) {
	t.Helper()
	rows := map[string]string{}
	for i, record := range strings.Split("\n"+journal, "\nOVSDB JSON ")[1:] {
		_, text, _ := strings.Cut(record, "\n")
		var txn struct{ NAT map[string]map[string]any }
		if i == 0 || json.Unmarshal([]byte(text), &txn) != nil {
			continue // the schema
		}
		for uuid, row := range txn.NAT {
			switch source, ok := row["logical_ip"].(string); {
			case row == nil:
				delete(rows, uuid)
			case ok:
				rows[uuid] = source
			}
		}
		if i <= after {
			continue
		}
		changes++
		count := map[string]int{}
		for _, source := range rows {
			count[source]++
		}
		for a := range addrs {
			if n := count[fmt.Sprintf("10.244.0.%d", a)]; n != 1 {
				t.Errorf("transaction %d leaves 10.244.0.%d with %d translations", i, a, n)
			}
		}
	}
	return changes
}

// TestYieldRefused: a row is restored even though the other rows of its owner are rejected.
func TestYieldRefused(t *testing.T) {
	w := connect(t, ovsdb.Config{Address: ovsdbtest.StartNB(t).Socket()})
	apply(t, w, network, router(clusterRouter.Name))
	apply(t, w, theirs, translation("10.244.0.5@n", "10.244.0.5", "172.18.0.33", false))
	lost := policy("10.244.0.5", "10.244.1.2")
	lost.Parent.Name = "absent"
	_ = applyError(t, w, ours, translation("10.244.0.5", "10.244.0.5", "172.18.0.3", true), lost)
	if stats := apply(t, w, theirs); stats != (nb.Stats{Inserted: 1, Deleted: 1}) {
		t.Errorf("wrote %+v", stats)
	}
	if rows := w.Rows(ours); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
}
