package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestZonesOfLostBridge: br-int gets the conntrack zones that ovn-controller uses again after
// it was lost, and no zones are written if it has them.
func TestZonesOfLostBridge(t *testing.T) {
	l := newLab(t)
	g := l.start(l.db)
	l.zones = "default_a 7\n"         // a node whose ovn-controller has no router yet
	if err := l.pass(g); err != nil { // other missing parts do not affect br-int
		t.Log(err)
	}
	ids := func() string { return l.vs.Run("ovs-vsctl", "get", "bridge", "br-int", "external_ids") }
	if got := ids(); strings.Contains(got, "ct-zone") {
		t.Errorf("zones that nobody gave out: %s", got)
	}
	l.vs.Run("ovs-vsctl", "set", "bridge", "br-int", "external_ids:ct-zone-681dfdf1_dnat=9")
	awaitBridge(t, g, func(ids map[string]string) bool { return ids["ct-zone-681dfdf1_dnat"] == "9" })
	l.zones = "681dfdf1_dnat 10\n681dfdf1_snat 0\ndefault_a 7\n"
	if err := l.pass(g); err != nil {
		t.Log(err)
	}
	if got := ids(); strings.Contains(got, "_snat") || !strings.Contains(got, `ct-zone-681dfdf1_dnat="9"`) {
		t.Errorf("zones that ovn-controller has written were changed: %s", got)
	}
	l.vs.Run("ovs-vsctl", "del-br", "br-int")
	awaitBridge(t, g, func(ids map[string]string) bool { return ids == nil })
	if err := l.pass(g); err != nil {
		t.Log(err)
	}
	for _, want := range []string{`ct-zone-681dfdf1_dnat="10"`, `ct-zone-681dfdf1_snat="0"`, `ct-zone-default_a="7"`} {
		if got := ids(); !strings.Contains(got, want) {
			t.Errorf("lacks %s: %s", want, got)
		}
	}
}

// awaitBridge waits until the gateway has noticed a change of br-int by others: is reports
// whether its external_ids, nil if it is deleted, are as expected.
func awaitBridge(t *testing.T, g *Gateway, is func(ids map[string]string) bool) {
	t.Helper()
	eventually.Succeeds(t, "the gateway to hear of br-int", func() error {
		bridges, err := g.OVS.Bridges(t.Context())
		if err != nil {
			return err
		}
		var ids map[string]string
		if i := slices.IndexFunc(bridges, func(b ovs.Bridge) bool { return b.Name == "br-int" }); i >= 0 {
			ids = bridges[i].ExternalIDs
			if ids == nil {
				ids = map[string]string{}
			}
		}
		if !is(ids) {
			return fmt.Errorf("%v", ids)
		}
		return nil
	})
}
