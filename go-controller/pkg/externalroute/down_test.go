package externalroute

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestAllDown: while none of a pod's hops of a family is usable, there are only its
// routes and their sessions, as if there were no policy: it is routed and
// translated like other pods. One hop that is up, or without BFD, is enough.
func TestAllDown(t *testing.T) {
	watched := func(up ...string) func(*state) {
		return func(s *state) { s.watched, s.up = true, up }
	}
	both := func(s *state) { s.rerouted = []string{"10.244.0.5", "10.244.1.5", "fd00:10:244:1::5"} }
	hops := policy("p", 1, onlyRed, static("172.18.0.51", bfd, skip), static("172.18.0.52", bfd), static("fc00::51", bfd, skip))
	for name, c := range map[string]struct {
		mode   topology.GatewayMode
		change []func(*state)
		led    string // families whose traffic is led to the gateways
		nats   []string
	}{
		"all up":             {topology.GatewayLocal, []func(*state){watched("172.18.0.51", "172.18.0.52", "fc00::51")}, "ip4 ip6", []string{"10.244.0.5 exempt", "fd00:10:244:1::5 exempt"}},
		"one up":             {topology.GatewayLocal, []func(*state){watched("172.18.0.52")}, "ip4", []string{"10.244.0.5 exempt"}},
		"all down, local":    {topology.GatewayLocal, []func(*state){watched()}, "", nil},
		"all down, shared":   {topology.GatewayShared, []func(*state){watched(), both}, "", nil},
		"none yet":           {topology.GatewayShared, []func(*state){watched("172.18.0.99"), both}, "", nil},
		"all up, shared":     {topology.GatewayShared, []func(*state){watched("172.18.0.51", "fc00::51"), both}, "ip4 ip6", []string{"10.244.0.5 exempt", "fd00:10:244:1::5 exempt"}},
		"one not watched":    {topology.GatewayLocal, []func(*state){watched(), policy("q", 0, onlyRed, static("172.18.0.53"))}, "ip4", []string{"10.244.0.5 exempt"}},
		"one by one, down":   {topology.GatewayShared, []func(*state){watched(), disableSNAT}, "", []string{"10.244.0.5", "10.244.0.6", "fd00:10:244:1::5", "fd00:10:244:1::6"}},
		"one by one, up":     {topology.GatewayShared, []func(*state){watched("172.18.0.51", "fc00::51"), disableSNAT}, "", []string{"10.244.0.6", "fd00:10:244:1::6"}},
		"one by one, both":   {topology.GatewayLocal, []func(*state){watched(), disableSNAT, both}, "", []string{"10.244.0.5", "10.244.0.6", "fd00:10:244:1::5", "fd00:10:244:1::6"}},
		"one by one, shared": {topology.GatewayShared, []func(*state){watched("fc00::51"), disableSNAT}, "", []string{"10.244.0.5", "10.244.0.6", "fd00:10:244:1::6"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbfake.New()
			w.AnyParent = true
			dual(c.mode, append([]func(*state){hops}, c.change...)...).apply(t, w)
			var led, nats []string
			routes, sessions := 0, 0
			for _, r := range w.Rows(Owner("ovn-worker")) {
				switch m := r.Model.(type) {
				case *nbdb.LogicalRouterPolicy:
					if m.Priority == topology.PriorityHybridRoute {
						led = append(led, strings.TrimPrefix(r.ID, "hybrid "))
					}
				case *nbdb.NAT:
					text := m.LogicalIP
					if len(r.Refs) > 0 {
						text += " exempt"
					}
					nats = append(nats, text)
				case *nbdb.LogicalRouterStaticRoute:
					routes++
				case *nbdb.BFD:
					sessions++
				}
			}
			slices.Sort(led)
			if strings.Join(led, " ") != c.led || !slices.Equal(nats, c.nats) {
				t.Errorf("led: %v, want %s; translations: %v, want %v", led, c.led, nats, c.nats)
			}
			if routes < 3 || sessions != 3 {
				t.Errorf("%d routes, %d sessions", routes, sessions)
			}
		})
	}
}

// TestDownButMarked: what a pod sends to a gateway that expects its own address is marked before OVN
// uses the gateway, since it does so before the pod's translation ends.
func TestDownButMarked(t *testing.T) {
	down := func(s *state) { s.watched = true }
	plainToo := policy("p", 1, onlyRed, static("172.18.0.51", bfd, skip), static("172.18.0.52", bfd), static("fc00::51", bfd))
	for name, c := range map[string]struct {
		change []func(*state)
		hops   []string // to which packets of pods are marked
	}{
		"one pod expected untranslated": {[]func(*state){plainToo, down}, []string{"172.18.0.51", "172.18.0.52"}},
		"the usual next hop, too":       {[]func(*state){policy("p", 1, onlyRed, static("172.18.0.1", bfd, skip), static("172.18.0.51", bfd)), down}, []string{"172.18.0.51"}},
		"the usual next hop, in use":    {[]func(*state){policy("p", 1, onlyRed, static("172.18.0.1", bfd, skip)), func(s *state) { s.watched, s.up = true, []string{"172.18.0.1"} }}, []string{"172.18.0.1"}},
		"translated":                    {[]func(*state){policy("p", 1, onlyRed, static("172.18.0.51", bfd)), down}, nil},
		"no pod translated":             {[]func(*state){policy("p", 1, onlyRed, static("172.18.0.51", bfd), static("fc00::51", bfd)), down, disableSNAT}, []string{"172.18.0.51", "fc00::51"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbfake.New()
			w.AnyParent = true
			dual(topology.GatewayShared, c.change...).apply(t, w)
			var hops []string
			for _, r := range w.Rows(Owner("ovn-worker")) {
				if m, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok && m.Priority == topology.PriorityUntranslated {
					hops = append(hops, m.Match[strings.LastIndex(m.Match, " ")+1:])
				}
			}
			if !slices.Equal(hops, c.hops) {
				t.Errorf("marked to %v, want %v", hops, c.hops)
			}
		})
	}
}

// TestUp reads the sessions of a node.
func TestUp(t *testing.T) {
	session := func(to string, status *nbdb.BFDStatus) nb.Row {
		return nb.Row{ID: to, Model: &nbdb.BFD{DstIP: to, Status: status}}
	}
	up := Up([]nb.Row{session("172.18.0.51", new(nbdb.BFDStatusUp)), session("172.18.0.52", new(nbdb.BFDStatusDown)),
		session("172.18.0.53", new(nbdb.BFDStatusInit)), session("172.18.0.54", nil), session("fc00::51", new(nbdb.BFDStatusUp))})
	if len(up) != 2 || !up[addrs("172.18.0.51")[0]] || !up[addrs("fc00::51")[0]] {
		t.Errorf("up are %v", up)
	}
}

// TestSkipOfEndingSession: a hop counts for the translation of its pods while its former session is ending,
// as one does that is down.
func TestSkipOfEndingSession(t *testing.T) {
	w := nbfake.New()
	w.AnyParent = true
	ending := func(s *state) { s.ending = []string{"172.18.0.52"} }
	dual(topology.GatewayLocal, policy("p", 1, onlyRed, static("172.18.0.51"), static("172.18.0.52", bfd, skip)), ending).apply(t, w)
	exempt, routes := 0, 0
	for _, r := range w.Rows(Owner("ovn-worker")) {
		switch m := r.Model.(type) {
		case *nbdb.NAT:
			if m.LogicalIP == "10.244.0.5" && len(r.Refs) > 0 {
				exempt++
			}
		case *nbdb.LogicalRouterStaticRoute:
			routes++
		}
	}
	if exempt != 1 || routes != 1 {
		t.Errorf("%d exemptions, %d routes, want one of each", exempt, routes)
	}
}
