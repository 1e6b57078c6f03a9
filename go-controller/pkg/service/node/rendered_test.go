package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// TestRenderedOnce: a change of one Service renders only its own flows, and a change of the node all of them.
func TestRenderedOnce(t *testing.T) {
	states := map[string][]service.Ingress{"prod/cluster-ip": nil}
	for i := range 100 {
		states[fmt.Sprintf("prod/svc-%d", i)] = []service.Ingress{
			{To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{5, 5, 5, byte(i)}), 80), Protocol: "tcp"},
			{To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{6, 6, 6, byte(i)}), 80), Protocol: "tcp"},
		}
	}
	var r rendered
	facts := bridge.Bridge{MAC: "02:00:00:00:00:01"}
	count := 0
	pass := func(what string, want int) {
		t.Helper()
		count = 0
		next := rendered{facts: facts, byKey: map[string]ingressFlows{}}
		for key, ingress := range states {
			render := func(i service.Ingress) []host.Flow {
				count++
				return []host.Flow{host.Flow(fmt.Sprint(facts.VLAN, i))}
			}
			var all []host.Flow
			for _, i := range ingress {
				all = append(all, host.Flow(fmt.Sprint(facts.VLAN, i)))
			}
			if got := r.of(key, ingress, next, render); !slices.Equal(got, all) {
				t.Errorf("%s: %s has %q, want %q", what, key, got, all)
			}
		}
		r = next
		if count != want {
			t.Errorf("%s: %d rendered, want %d", what, count, want)
		}
	}
	pass("first", 200)
	pass("nothing changed", 0)
	changed := slices.Clone(states["prod/svc-7"])
	changed[1].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	states["prod/svc-7"] = changed
	pass("one changed", 2)
	delete(states, "prod/svc-8")
	pass("one gone", 0)
	states["prod/svc-7"] = changed[:1]
	pass("one address gone", 1)
	facts.VLAN = 7
	pass("another VLAN", 198-1)
	if len(r.byKey) != 99 {
		t.Errorf("the flows of %d Services are kept", len(r.byKey))
	}
}
