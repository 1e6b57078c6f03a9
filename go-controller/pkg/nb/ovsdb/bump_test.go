package ovsdb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestBumpOfWaitedFor: after a transaction with rows that the master waits for, Bump needs none of its own, unless another one
// follows or the value is not enough.
func TestBumpOfWaitedFor(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	s.Nbctl("init")
	s.Nbctl("lr-add", "gr")
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	nat := onRouter("gr", "a", &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.33", LogicalIP: "10.244.0.3", ExternalIDs: map[string]string{"name": "prod"}})
	policy := onRouter("gr", "p", &nbdb.LogicalRouterPolicy{Priority: topology.PriorityEgressIP, Match: "ip4.src == 10.244.0.3", Action: nbdb.LogicalRouterPolicyActionDrop})
	bump := func(beyond, transactions int) int {
		t.Helper()
		before := s.Records()
		value, err := w.Bump(t.Context(), beyond)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Records() - before; n != transactions {
			t.Errorf("%d transactions, want %d", n, transactions)
		}
		if got := s.Nbctl("get", "nb_global", ".", "nb_cfg"); strings.TrimSpace(got) != fmt.Sprint(value) {
			t.Errorf("nb_cfg is %s, and %d is returned", got, value)
		}
		return value
	}
	first := bump(0, 1)
	apply(t, w, svc, nat)
	second := bump(first, 0)
	if second != first+1 {
		t.Errorf("%d after %d", second, first)
	}
	apply(t, w, svc, nat, policy)
	third := bump(0, 0)
	apply(t, w, svc, policy) // the translation is removed, which nobody waits for
	if fourth := bump(third, 1); fourth != third+1 {
		t.Errorf("%d after %d", fourth, third)
	}
	apply(t, w, svc)
	if value := bump(7000, 1); value != 7001 {
		t.Errorf("%d, which is not beyond what chassis have reported", value)
	}
	apply(t, w, svc, nat)
	if value := bump(7000, 0); value != 7002 {
		t.Errorf("%d", value)
	}
	apply(t, w, nb.Owner{Feature: "other", Object: "o"}, onRouter("gr", "b", &nbdb.LogicalRouterPolicy{Priority: 1, Match: "1", Action: nbdb.LogicalRouterPolicyActionDrop}))
	bump(7000, 1)
}
