package ovsdb_test

import (
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestStrongReference: a NAT row prevents the deletion of the address set it refers to; one
// transaction can delete both, or delete the set and change the NAT row.
func TestStrongReference(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	gr := nb.Owner{Feature: "network", Object: "n1"}
	apply(t, w, gr, router("GR_n1"))
	empty := s.Dump()
	o := nb.Owner{Feature: "externalroute", Object: "n1"}
	set := nb.Row{ID: "set", Model: &nbdb.AddressSet{Name: "set", Addresses: []string{"0.0.0.0/1"}}}
	nat := onRouter("GR_n1", "10.244.0.5", &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.3", LogicalIP: "10.244.0.5"})
	exempted := nat
	exempted.Refs = []nb.Ref{{Column: "exempted_ext_ips", Table: nbdb.AddressSetTable, Name: "set"}}
	for _, step := range []struct {
		name string
		want []nb.Row
		nb.Stats
	}{
		{"both", []nb.Row{exempted, set}, nb.Stats{Inserted: 2}},
		{"again", []nb.Row{exempted, set}, nb.Stats{}},
		{"the set goes", []nb.Row{nat}, nb.Stats{Updated: 1, Deleted: 1}},
		{"the set comes back", []nb.Row{exempted, set}, nb.Stats{Inserted: 1, Updated: 1}},
		{"both go", nil, nb.Stats{Deleted: 2}},
	} {
		records := s.Records()
		if got := apply(t, w, o, step.want...); got != step.Stats {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.Stats)
		}
		if n := s.Records() - records; n > 1 {
			t.Errorf("%s took %d transactions", step.name, n)
		}
	}
	if got := s.Dump(); got != empty {
		t.Errorf("left behind:\n%s", got)
	}
}
