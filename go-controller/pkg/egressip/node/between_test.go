package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// escapes returns the pods that an ip rule routes to a table in which they leave by no link and are not
// dropped, or by a link on which they are not translated: they would leave with an address of the host.
func (w *world) escapes() []string {
	var out []string
	routes, chains := w.routes.Objects(), w.chains.Dump(topology.IPv4)
	for r := range w.ipRules.Objects() {
		if r.Priority != topology.RuleEgressIP || r.Family != topology.IPv4 {
			continue
		}
		pod, dropped := r.Src.Addr(), false
		for route, hop := range routes {
			if route.Table != r.Table {
				continue
			}
			dropped = dropped || hop.Drop
			if !hop.Drop && !strings.Contains(chains, fmt.Sprintf("-s %s/32 -o %s -j SNAT", pod, route.Link)) {
				out = append(out, fmt.Sprintf("%s leaves by %s", pod, route.Link))
			}
		}
		if !dropped {
			out = append(out, fmt.Sprintf("%s leaves by the main table after table %d", pod, r.Table))
		}
	}
	return out
}

// TestNothingEscapesBetween: a pod leaves with no address of the host, not even between two writes, while the link of
// its egress address is lost, created again and replaced, and while pods come and go. So it does not matter if the
// process ends in between, or if rules cannot be written.
func TestNothingEscapesBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, secondary("10.10.10.5 "+self))
		w.pod("red", "web", "10.244.1.3/24")
		routed := func() bool {
			for r := range w.ipRules.Objects() {
				if r.Src == topology.HostPrefix(netip.MustParseAddr("10.244.1.3")) {
					return true
				}
			}
			return false
		}
		var step atomic.Pointer[string]
		var begun, locked atomic.Bool
		check := func() {
			if got := w.escapes(); len(got) > 0 {
				t.Errorf("%s: %q", *step.Load(), got)
			}
			if begun.Load() && !routed() {
				t.Errorf("%s: the pod leaves by the main table", *step.Load())
			}
		}
		// The kernel removes the routes of a link that goes down, and refuses others.
		var down atomic.Value
		down.Store("")
		goDown := func(link string) {
			down.Store(link)
			for r := range w.routes.Objects() {
				if r.Link == link {
					w.routes.Drop(r)
				}
			}
		}
		w.routes.Fail = func(op string, r host.Route) error {
			check()
			if op == "add" && r.Link != "" && r.Link == down.Load() {
				return syscall.ENETDOWN
			}
			return nil
		}
		w.ipRules.Fail = func(string, host.IPRule) error { check(); return nil }
		w.chains.Fail = func(contributor string) error {
			check()
			if locked.Load() && contributor == egressip.Contributor("prod") {
				return errors.New("iptables is locked")
			}
			return nil
		}
		again, another := dummy("dummy"), dummy("net1")
		again.Index, another.Index = 222, 333
		has := func(text string) { w.eventually(text, func() bool { return strings.Contains(w.dump(), text) }) }
		lacks := func(text string) {
			w.eventually("no "+text, func() bool { return !strings.Contains(w.dump(), text) })
		}
		for _, c := range []struct {
			what string
			do   func()
		}{
			{"at the start", func() { w.start(); w.saysEventually("prod", self+" 10.10.10.5") }},
			{"link lost", func() { goDown("dummy"); w.setNetworks(w.networks[0]); w.saysEventually("prod", self) }},
			{"link created again", func() {
				down.Store("")
				w.setNetworks(w.networks[0], again)
				w.saysEventually("prod", self+" 10.10.10.5")
			}},
			{"another link", func() {
				goDown("dummy")
				w.setNetworks(w.networks[0], another)
				has("from 10.244.1.3 lookup 1333")
				lacks("dummy")
			}},
			{"one more pod", func() { w.pod("red", "more", "10.244.2.7/24"); has("from 10.244.2.7 lookup 1333") }},
			{"one pod less", func() { w.port("red", "more", ""); lacks("10.244.2.7") }},
			{"one more pod while iptables is locked", func() {
				locked.Store(true)
				w.pod("red", "late", "10.244.2.8/24")
				<-time.After(time.Second)
				locked.Store(false)
				has("from 10.244.2.8 lookup 1333")
			}},
		} {
			step.Store(&c.what)
			c.do()
			synctest.Wait()
			begun.Store(true)
			check()
		}
		if got := w.dump(); strings.Contains(got, "table 1111") || strings.Contains(got, "table 1222") || strings.Contains(got, "dummy") {
			t.Errorf("state of earlier links remains:\n%s", got)
		}
	})
}
