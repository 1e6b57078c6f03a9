package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// translate makes the node translate pods for one EgressService, in pairs of a pod and its address.
func (h bareHost) translate(t *testing.T, key string, pairs ...netip.Addr) error {
	t.Helper()
	want := contribution{translations: egressservice.Translations{}}
	for pair := range slices.Chunk(pairs, 2) {
		want.translations[pair[0]] = pair[1]
	}
	return h.program(t.Context(), key, want, false)
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTranslationMovesToAnother: EgressServices may share an address. If one of them gets the pod of another with
// the same address, the pod keeps its connections when the rules of the former expire.
func TestTranslationMovesToAnother(t *testing.T) {
	for name, next := range map[string]func(h bareHost, t *testing.T){
		"written": func(h bareHost, t *testing.T) { must(t, h.translate(t, "default/b", leavingPod, leavingTo)) },
		"half written": func(h bareHost, t *testing.T) {
			h.connections.fail.Store(1)
			if err := h.translate(t, "default/b", leavingPod, leavingTo); err == nil {
				t.Fatal("no error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBareHost(t)
				must(t, h.translate(t, "default/a", leavingPod, leavingTo))
				must(t, h.translate(t, "default/a"))
				next(h, t)
				h.connections.connect(leavingPod.String(), leavingTo.String())
				h.expect(t, Linger+time.Second, true, true)
				if len(h.connections.ended) > 0 {
					t.Errorf("the bridge forgot %v, which is given here", h.connections.ended)
				}
				must(t, h.translate(t, "default/b", leavingPod, leavingTo))
				must(t, h.translate(t, "default/b"))
				h.expect(t, Linger+time.Second, false, false)
				if !slices.Equal(h.connections.ended, []netip.Addr{leavingTo}) {
					t.Errorf("the bridge forgot %v", h.connections.ended)
				}
			})
		})
	}
}

// TestTranslationsOfOnePodEnd: if a pod had several translations, of one or more EgressServices, the connections of all of
// them end.
func TestTranslationsOfOnePodEnd(t *testing.T) {
	for _, next := range []string{"default/a", "default/b"} {
		t.Run(next, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, other := newBareHost(t), netip.MustParseAddr("6.6.6.6")
				must(t, h.translate(t, "default/a", leavingPod, leavingTo))
				must(t, h.translate(t, "default/a"))
				must(t, h.translate(t, next, leavingPod, other))
				must(t, h.translate(t, next))
				h.connections.connect(leavingPod.String(), leavingTo.String())
				h.connections.connect(leavingPod.String(), other.String())
				h.expect(t, Linger+time.Second, false, false)
				if h.connections.connected(leavingPod.String(), other.String()) {
					t.Errorf("the connection with %s is still there", other)
				}
				if want := []netip.Addr{leavingTo, other}; !slices.Equal(h.connections.ended, want) {
					t.Errorf("the bridge forgot %v, want %v", h.connections.ended, want)
				}
			})
		})
	}
}

// TestHalfWrittenEnds: a translation of a partially failed attempt may have been in use: it expires like others.
func TestHalfWrittenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBareHost(t)
		h.connections.fail.Store(1)
		if err := h.translate(t, "default/a", leavingPod, leavingTo); err == nil {
			t.Fatal("no error")
		}
		h.connections.connect(leavingPod.String(), leavingTo.String())
		must(t, h.translate(t, "default/a"))
		h.expect(t, Linger-time.Second, true, true)
		h.expect(t, 2*time.Second, false, false)
	})
}

// TestLastTranslationComesFirst: of the translations of a pod that are expiring, the last one determines the address of
// new connections: the pod's earlier address may be in use elsewhere already.
func TestLastTranslationComesFirst(t *testing.T) {
	last := netip.MustParseAddr("6.6.6.6")
	for _, keys := range [][2]string{{"default/a", "default/a"}, {"default/a", "default/b"}, {"default/b", "default/a"}} {
		t.Run(keys[0]+" "+keys[1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBareHost(t)
				for i, to := range []netip.Addr{leavingTo, last} {
					must(t, h.translate(t, keys[i], leavingPod, to))
					<-time.After(time.Second)
					must(t, h.translate(t, keys[i]))
				}
				dump := h.chains.Dump(topology.IPv4)
				first, second := strings.Index(dump, "--to-source "+last.String()), strings.Index(dump, "--to-source "+leavingTo.String())
				if first < 0 || second < first {
					t.Errorf("%s does not come first:\n%s", last, dump)
				}
				for _, to := range []netip.Addr{leavingTo, last} {
					if !strings.Contains(dump, "-A OVN-KUBE-STRAY -d "+to.String()) {
						t.Errorf("packets of no connection to %s are not dropped:\n%s", to, dump)
					}
				}
			})
		})
	}
}
