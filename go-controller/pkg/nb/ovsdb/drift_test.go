package ovsdb_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// drifted collects what a writer reports.
type drifted struct {
	mu     sync.Mutex
	owners map[nb.Owner]int
}

func watchDrift(w *ovsdb.Writer) *drifted {
	d := &drifted{owners: map[nb.Owner]int{}}
	w.OnDrift(func(o nb.Owner) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.owners[o]++
	})
	return d
}

// take returns what was reported since the last call.
func (d *drifted) take() map[nb.Owner]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.owners
	d.owners = map[nb.Owner]int{}
	return out
}

// waitFor waits until owner o, and no other, is reported.
func (d *drifted) waitFor(t *testing.T, o nb.Owner) {
	t.Helper()
	eventually.Succeeds(t, "drift of "+o.String(), func() error {
		got := d.take()
		if len(got) > 1 || len(got) == 1 && got[o] == 0 {
			t.Fatalf("drift of %v, want %v alone", got, o)
		}
		if len(got) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
}

func TestDrift(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	seen := watchDrift(w)
	probe := nb.Owner{Feature: "probe"}
	probeRow := nb.Row{ID: "probe", Model: &nbdb.AddressSet{Name: "probe"}}
	apply(t, w, probe, probeRow)
	// reported waits until the events of all earlier changes were handled, and returns whose they were: the event of an
	// edit of the probe's row comes after them.
	edits := 0
	reported := func() map[nb.Owner]int {
		t.Helper()
		edits++
		s.Nbctl("set", "Address_Set", "probe", fmt.Sprintf("addresses=10.9.9.%d", edits))
		all := map[nb.Owner]int{}
		eventually.Succeeds(t, "drift of the probe", func() error {
			for o, n := range seen.take() {
				all[o] += n
			}
			if all[probe] == 0 {
				return fmt.Errorf("only of %v", all)
			}
			return nil
		})
		apply(t, w, probe, probeRow)
		delete(all, probe)
		return all
	}
	sync := func() {
		t.Helper()
		if all := reported(); len(all) > 0 {
			t.Fatalf("drift of %v, want none", all)
		}
	}
	svcAlone := func() {
		t.Helper()
		if all := reported(); len(all) != 1 || all[svc] == 0 {
			t.Fatalf("drift of %v, want %v alone", all, svc)
		}
	}
	rows := []nb.Row{policy("10.244.0.5", "10.244.1.2"), policy("10.244.0.6", "10.244.1.2")}
	restored := func() {
		t.Helper()
		svcAlone()
		before := w.Repaired()
		if stats := apply(t, w, svc, rows...); stats.Zero() {
			t.Error("nothing was put right")
		}
		if apply(t, w, svc, rows...); w.Repaired() != before+1 {
			t.Errorf("%d repairs were counted, want 1", w.Repaired()-before)
		}
		if n := strings.Count(fields(s.Nbctl("lr-policy-list", "ovn_cluster_router")), "101 ip4.src == 10.244.0."); n != 2 {
			t.Errorf("%d policies, want 2", n)
		}
	}

	// Our own changes are not drift.
	apply(t, w, network, router("ovn_cluster_router"))
	apply(t, w, svc, rows[0])
	apply(t, w, svc, policy("10.244.0.5", "10.244.7.2"))
	apply(t, w, svc)
	before := w.Repaired()
	apply(t, w, svc, rows...)
	sync()
	if w.Repaired() != before+1 {
		t.Errorf("%d repairs were counted, want that of the probe's row alone", w.Repaired()-before)
	}

	s.Nbctl("lr-policy-del", "ovn_cluster_router", "101", "ip4.src == 10.244.0.5")
	restored()
	s.Nbctl("lr-policy-del", "ovn_cluster_router")
	restored()
	uuid := strings.TrimSpace(s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Router_Policy", `match="ip4.src == 10.244.0.6"`))
	s.Nbctl("set", "Logical_Router_Policy", uuid, "priority=7")
	restored()
	s.Nbctl("set", "Logical_Router_Policy", uuid, "priority=101", "external_ids:k8s.ovn.org/id=stolen")
	restored()
	sync()

	// A change that is reverted by someone else does not count as repaired.
	uuid = strings.TrimSpace(s.Nbctl("--bare", "--columns=_uuid", "find", "Logical_Router_Policy", `match="ip4.src == 10.244.0.6"`))
	s.Nbctl("set", "Logical_Router_Policy", uuid, "priority=7")
	s.Nbctl("set", "Logical_Router_Policy", uuid, "priority=101")
	s.Nbctl("set", "Address_Set", "probe", "addresses=10.9.8.1")
	eventually.Succeeds(t, "the event after those", func() error {
		if seen.take()[probe] == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	before = w.Repaired()
	if stats := apply(t, w, svc, rows...); !stats.Zero() || w.Repaired() != before {
		t.Errorf("%+v written, %d repairs counted, want none", stats, w.Repaired()-before)
	}
	apply(t, w, probe, probeRow)

	// Deleting a parent deletes the rows of other owners with it; they are restored
	// together with it.
	apply(t, w, network)
	svcAlone()
	apply(t, w, network, router("ovn_cluster_router"))
	apply(t, w, svc, rows...)
	sync()

	// While the server was down, anything can have happened.
	s.Stop()
	s.Edit(`{"op":"delete","table":"Logical_Router","where":[]}`)
	s.Start()
	missing := map[nb.Owner]bool{network: true, svc: true, probe: true}
	eventually.Succeeds(t, "all owners to be reported", func() error {
		for o := range seen.take() {
			delete(missing, o)
		}
		if len(missing) > 0 {
			return fmt.Errorf("%v are missing", missing)
		}
		return nil
	})
	apply(t, w, network, router("ovn_cluster_router"))
	if stats := apply(t, w, svc, rows...); stats.Inserted != 2 {
		t.Errorf("%+v after the policies were lost, want 2 inserted", stats)
	}
}

// TestDriftElsewhere adds a row of a feature's owner, from outside, to a table that the
// feature never wrote.
func TestDriftElsewhere(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	seen := watchDrift(w)
	apply(t, w, network, router("ovn_cluster_router"))
	apply(t, w, svc, policy("10.244.0.5", "10.244.1.2"))
	s.Nbctl("create", "Address_Set", "name=stray", `external_ids={"k8s.ovn.org/owner-controller"=ovnkube,"k8s.ovn.org/owner-type"=egressservice,"k8s.ovn.org/name"="ns/svc","k8s.ovn.org/id"=x}`)
	seen.waitFor(t, svc)
	if stats := apply(t, w, svc, policy("10.244.0.5", "10.244.1.2")); stats != (nb.Stats{Deleted: 1}) {
		t.Errorf("%+v, want the stray row deleted", stats)
	}
}

// TestDriftOfParent: a load balancer stays when its router is deleted, or loses it, and is reported to its owner, which attaches it again.
func TestDriftOfParent(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	seen := watchDrift(w)
	owner := func(name string) nb.Owner { return nb.Owner{Feature: "service", Object: "ns/" + name} }
	lb := func(name, router string) nb.Row {
		return row("tcp", nbdb.LogicalRouterTable, router, &nbdb.LoadBalancer{Name: name, Vips: map[string]string{"10.96.0.1:80": "10.244.0.5:80"}})
	}
	parents := func() { apply(t, w, network, router("r"), router("other")) }
	parents()
	for _, name := range []string{"a", "b"} {
		apply(t, w, owner(name), lb(name, "r"))
	}
	apply(t, w, owner("elsewhere"), lb("elsewhere", "other"))
	reported := func(want ...nb.Owner) {
		t.Helper()
		got := map[nb.Owner]int{}
		eventually.Succeeds(t, "drift", func() error {
			for o, n := range seen.take() {
				got[o] += n
			}
			for _, o := range want {
				if got[o] == 0 {
					return fmt.Errorf("%v of %v", got, want)
				}
			}
			return nil
		})
		if len(got) != len(want) {
			t.Errorf("drift of %v, want %v", got, want)
		}
	}
	attached := func() {
		t.Helper()
		parents()
		for _, name := range []string{"a", "b"} {
			apply(t, w, owner(name), lb(name, "r"))
		}
		if got := len(strings.Fields(s.Nbctl("--bare", "--columns=load_balancer", "list", "Logical_Router", "r"))); got != 2 {
			t.Errorf("the router has %d load balancers, want 2", got)
		}
	}
	s.Nbctl("lr-del", "r")
	reported(network, owner("a"), owner("b"))
	attached()
	s.Nbctl("lr-lb-del", "r", "a")
	reported(owner("a"))
	before := w.Repaired()
	attached()
	apply(t, w, network, router("other"))
	reported(owner("a"), owner("b"))
	attached()
	if got := w.Repaired() - before; got != 1 {
		t.Errorf("%d repairs were counted, want that of what others changed", got)
	}
	apply(t, w, owner("a")) // no drift: it goes itself
	s.Nbctl("lr-lb-del", "r", "b")
	reported(owner("b"))
}
