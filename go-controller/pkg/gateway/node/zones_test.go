package node

import (
	"strings"
	"testing"
)

// TestZonesOfLostBridge: br-int has the zones of conntrack that ovn-controller uses again after
// it was lost, and nobody writes any where it has them.
func TestZonesOfLostBridge(t *testing.T) {
	l := newLab(t)
	g := l.start(l.db)
	l.zones = "default_a 7\n"         // a node whose ovn-controller knows of no router yet
	if err := l.pass(g); err != nil { // what is missing then is no matter of br-int
		t.Log(err)
	}
	ids := func() string { return l.vs.Run("ovs-vsctl", "get", "bridge", "br-int", "external_ids") }
	if got := ids(); strings.Contains(got, "ct-zone") {
		t.Errorf("zones that nobody gave out: %s", got)
	}
	l.vs.Run("ovs-vsctl", "set", "bridge", "br-int", "external_ids:ct-zone-681dfdf1_dnat=9")
	l.zones = "681dfdf1_dnat 10\n681dfdf1_snat 0\ndefault_a 7\n"
	if err := l.pass(g); err != nil {
		t.Log(err)
	}
	if got := ids(); strings.Contains(got, "_snat") || !strings.Contains(got, `ct-zone-681dfdf1_dnat="9"`) {
		t.Errorf("zones that ovn-controller has written were changed: %s", got)
	}
	l.vs.Run("ovs-vsctl", "del-br", "br-int")
	if err := l.pass(g); err != nil {
		t.Log(err)
	}
	for _, want := range []string{`ct-zone-681dfdf1_dnat="10"`, `ct-zone-681dfdf1_snat="0"`, `ct-zone-default_a="7"`} {
		if got := ids(); !strings.Contains(got, want) {
			t.Errorf("lacks %s: %s", want, got)
		}
	}
}
