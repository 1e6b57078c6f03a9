package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// translating contains OVN's translations on this node, and the connections of the gateway router:
// their sources and the addresses that the other side sees.
type translating struct {
	silent      bool               // they cannot be read
	first       []host.Translation // as they are read first
	changes     chan []host.Translation
	connections [][2]netip.Addr
	fails       int    // number of reads that fail
	passes      int    // number of passes over the connections
	waiting     func() // called while the next one waits for OVN's changes to be in force
}

func newTranslating() translating { return translating{changes: make(chan []host.Translation)} }

func (w *world) followTranslations(ctx context.Context, changed func([]host.Translation)) {
	if w.ovn.silent {
		<-ctx.Done()
		return
	}
	changed(w.ovn.first)
	for {
		select {
		case all := <-w.ovn.changes:
			changed(all)
		case <-ctx.Done():
			return
		}
	}
}

// translation returns the translation of a pod to an egress address.
func translation(pod, to string) host.Translation {
	return host.Translation{Source: topology.HostPrefix(netip.MustParseAddr(pod)), To: netip.MustParseAddr(to)}
}

func (w *world) flushTranslations(_ context.Context, now func() func(src, dst, to netip.Addr) bool) (int, error) {
	w.mu.Lock()
	waiting := w.ovn.waiting
	w.ovn.waiting = nil
	w.mu.Unlock()
	if waiting != nil {
		waiting()
	}
	stale := now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ovn.fails > 0 {
		w.ovn.fails--
		return 0, errors.New("ovs-vswitchd does not answer")
	}
	w.ovn.passes++
	before := len(w.ovn.connections)
	w.ovn.connections = slices.DeleteFunc(w.ovn.connections, func(c [2]netip.Addr) bool {
		return stale(c[0], netip.MustParseAddr("192.0.2.1"), c[1])
	})
	return before - len(w.ovn.connections), nil
}

// TestTranslationsEnd: when the egress address of a pod changes on its own node, its connections
// with the previous address are forgotten, but not those of others; this also works if the switch
// does not answer at first.
func TestTranslationsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, web := netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr("10.244.1.4")
		egress, own := netip.MustParseAddr(four), netip.MustParseAddr("172.18.0.3")
		base := host.Translation{Source: netip.MustParsePrefix("10.244.0.0/16"), To: own}
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
		w.ovn.connections = [][2]netip.Addr{{pod, own}, {web, egress}}
		stop := w.start()
		defer stop()
		w.saysEventually("prod", self+" "+four)
		left := func(what string, all []host.Translation, want ...[2]netip.Addr) {
			t.Helper()
			w.ovn.changes <- all
			w.eventually(what, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.Equal(w.ovn.connections, want)
			})
		}
		left("what is as it is to be to stay", []host.Translation{base, translation(web.String(), four)}, [2]netip.Addr{pod, own}, [2]netip.Addr{web, egress})
		w.mu.Lock()
		w.ovn.fails = 2
		w.mu.Unlock()
		left("a pod that gets the address not to keep the node's", []host.Translation{base, translation(pod.String(), four), translation(web.String(), four)}, [2]netip.Addr{web, egress})
		w.mu.Lock()
		w.ovn.connections = append(w.ovn.connections, [2]netip.Addr{pod, egress})
		w.mu.Unlock()
		left("a pod that has it no more not to keep it", []host.Translation{base, translation(web.String(), four)}, [2]netip.Addr{web, egress})
		// An address that was handed over continues for a while: others still send to this node.
		w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
		w.saysEventually("prod")
		left("what is handed over to stay", []host.Translation{base}, [2]netip.Addr{web, egress})
	})
}

// TestTranslationsChangeMeanwhile: a pod gets another egress address while its connections are about to be looked at. Those that
// begin with it stay.
func TestTranslationsChangeMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, now := netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr(more)
		w := newWorld(t, object("prod", []string{four, more}, []string{four + " " + self, more + " " + self}))
		defer w.start()()
		w.saysEventually("prod", self+" "+four+" "+more)
		fakeapi.Settle()
		w.mu.Lock()
		w.ovn.waiting = func() {
			for range 2 { // the second one is taken when the first one has been
				w.ovn.changes <- []host.Translation{translation(pod.String(), more)}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ovn.connections = [][2]netip.Addr{{pod, now}}
		}
		w.mu.Unlock()
		w.ovn.changes <- []host.Translation{translation(pod.String(), four)}
		fakeapi.Settle()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ovn.passes < 2 || len(w.ovn.connections) != 1 {
			t.Errorf("%v are left after %d passes", w.ovn.connections, w.ovn.passes)
		}
	})
}
