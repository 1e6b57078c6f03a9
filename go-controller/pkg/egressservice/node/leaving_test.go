package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var (
	leavingPod = netip.MustParseAddr("10.244.0.5")
	leavingTo  = netip.MustParseAddr("5.5.5.5")
)

// flushes is a table of connections that may reject being flushed.
type flushes struct {
	kernel
	fail atomic.Int32
}

func (f *flushes) flush(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error {
	if f.fail.Add(-1) >= 0 {
		return errors.New("the table is busy")
	}
	return f.kernel.flush(ctx, stale, ended)
}

// bareHost is a controller whose queue does not run: a test calls program itself.
type bareHost struct {
	*Controller
	chains      *chains
	connections *flushes
}

func newBareHost(t *testing.T) bareHost {
	t.Helper()
	h := bareHost{
		chains:      &chains{Chains: hostfake.NewChains(egressservice.Chains(topology.Families))},
		connections: &flushes{kernel: kernel{open: map[[2]netip.Addr]bool{}}},
	}
	core, egress := informers.NewSharedInformerFactory(fakeapi.NewClientset(), 0), egressfake.NewSimpleClientset()
	c, err := New(Deps{
		Node: "n1", Egress: egress, Chains: h.chains, Tables: h.connections, Flush: h.connections.flush, FlushLed: h.connections.flushLed, ClusterSubnets: cluster,
		OnApplied: func(func()) {}, Settle: func(context.Context) error { return nil },
		IPRules: host.NewSet("ip rules", hostfake.NewKernel(map[host.IPRule]struct{}{}), func(struct{}, struct{}) bool { return true }),
		Informers: snapshot.Informers{
			EgressServices: externalversions.NewSharedInformerFactory(egress, 0).EgressService().V1().EgressServices(),
			Services:       core.Core().V1().Services(),
			EndpointSlices: core.Discovery().V1().EndpointSlices(),
			Pods:           core.Core().V1().Pods(),
		}})
	if err != nil {
		t.Fatal(err)
	}
	h.Controller = c
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx) // an error, since the informers are not started
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return h
}

// serve makes the node translate the pod, or stop translating it.
func (h bareHost) serve(t *testing.T, serves bool) error {
	t.Helper()
	var want contribution
	if serves {
		want.translations = egressservice.Translations{leavingPod: leavingTo}
	}
	return h.program(t.Context(), "default/svc", want, false)
}

// left returns a node that has stopped translating the pod, which has a connection.
func left(t *testing.T) bareHost {
	t.Helper()
	h := newBareHost(t)
	for _, serves := range []bool{true, false} {
		if err := h.serve(t, serves); err != nil {
			t.Fatal(err)
		}
	}
	h.connections.connect(leavingPod.String(), leavingTo.String())
	return h
}

// expect checks the state after a while.
func (h bareHost) expect(t *testing.T, after time.Duration, rules, connected bool) {
	t.Helper()
	<-time.After(after)
	synctest.Wait()
	if got := strings.Contains(h.chains.Dump(topology.IPv4), leavingTo.String()); got != rules {
		t.Errorf("there are rules: %t, want %t", got, rules)
	}
	if got := h.connections.connected(leavingPod.String(), leavingTo.String()); got != connected {
		t.Errorf("the connection is there: %t, want %t", got, connected)
	}
}

// TestLinger: the other nodes have several seconds to follow before a former host
// lets their packets pass without its rules.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := left(t)
		h.expect(t, 4*time.Second, true, true)
		h.expect(t, 2*time.Second, false, false)
		if !slices.Equal(h.connections.ended, []netip.Addr{leavingTo}) {
			t.Errorf("the bridge forgot %v", h.connections.ended)
		}
		if wait := h.leaving.next(time.Now()); wait < time.Hour {
			t.Errorf("there is more to do in %s", wait)
		}
	})
}

// TestOthersKeepTheAddress: when one of the pods is removed, the bridge keeps the
// connections of the others with the address.
func TestOthersKeepTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, other := newBareHost(t), netip.MustParseAddr("10.244.0.6")
		for _, pods := range [][]netip.Addr{{leavingPod, other}, {other}} {
			want := contribution{translations: egressservice.Translations{}}
			for _, p := range pods {
				want.translations[p] = leavingTo
			}
			if err := h.program(t.Context(), "default/svc", want, false); err != nil {
				t.Fatal(err)
			}
		}
		h.connections.connect(leavingPod.String(), leavingTo.String())
		h.expect(t, Linger+time.Second, true, false)
		if len(h.connections.ended) > 0 {
			t.Errorf("the bridge forgot %v, which is given here", h.connections.ended)
		}
		if err := h.serve(t, false); err != nil {
			t.Fatal(err)
		}
		h.expect(t, Linger+time.Second, false, false)
		if !slices.Equal(h.connections.ended, []netip.Addr{leavingTo}) {
			t.Errorf("the bridge forgot %v", h.connections.ended)
		}
	})
}

// TestLeavingOutlivesFailures: connections with an address that is no longer used
// here end, whatever failed when its rule was removed.
func TestLeavingOutlivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := left(t)
		h.chains.refuse(1)
		h.expect(t, Linger+500*time.Millisecond, true, true)
		h.expect(t, time.Second, false, false)
	})
	synctest.Test(t, func(t *testing.T) {
		h := left(t)
		h.connections.fail.Store(1)
		h.expect(t, Linger+500*time.Millisecond, false, true)
		h.expect(t, time.Second, false, false)
	})
}

// TestDropReplacedOutlivesFailures: an expiring ip rule that the one in use replaces is removed, even if that fails at first: it would
// take precedence.
func TestDropReplacedOutlivesFailures(t *testing.T) {
	kernel := hostfake.NewKernel(map[host.IPRule]struct{}{})
	fail := false
	chains := hostfake.NewChains(egressservice.Chains(topology.Families))
	chains.Fail = func(string) error {
		if fail {
			return errors.New("the lock is taken")
		}
		return nil
	}
	rule := func(table int) map[host.IPRule]struct{} {
		return map[host.IPRule]struct{}{{Family: topology.IPv4, Priority: topology.RuleEgressServiceNetwork, Src: netip.MustParsePrefix("10.244.1.6/32"), Table: table}: {}}
	}
	l := newLeaving(Deps{Linger: time.Minute, Chains: chains, IPRules: host.NewSet("ip rules", kernel, func(struct{}, struct{}) bool { return true })}, nil)
	if _, err := l.add(t.Context(), "shop/a", contribution{ipRules: rule(7)}, contribution{}); err != nil || len(kernel.Objects()) != 1 {
		t.Fatalf("%v, %v", err, kernel.Objects())
	}
	fail = true
	if err := l.dropReplaced(t.Context(), contribution{ipRules: rule(8)}); err == nil {
		t.Error("no error")
	}
	fail = false
	if err := l.dropReplaced(t.Context(), contribution{ipRules: rule(8)}); err != nil || len(kernel.Objects()) > 0 {
		t.Errorf("%v, left are %v", err, kernel.Objects())
	}
}

// TestDropReplacedByTranslation: a pod that has passed to an EgressService without a network does not leave by the
// former one's, while other pods of that one may.
func TestDropReplacedByTranslation(t *testing.T) {
	kernel, chains := hostfake.NewKernel(map[host.IPRule]struct{}{}), hostfake.NewChains(egressservice.Chains(topology.Families))
	l := newLeaving(Deps{Linger: time.Minute, Chains: chains, IPRules: host.NewSet("ip rules", kernel, func(struct{}, struct{}) bool { return true })}, nil)
	pod, other, replies := netip.MustParsePrefix("10.244.1.6/32"), netip.MustParsePrefix("10.244.1.7/32"), netip.MustParsePrefix("10.244.1.6/32")
	rule := func(src netip.Prefix, port uint16) host.IPRule {
		r := host.IPRule{Family: topology.IPv4, Priority: topology.RuleEgressServiceNetwork, Src: src, Table: 7, SrcPort: port}
		if port != 0 {
			r.Protocol = "tcp"
		}
		return r
	}
	have := contribution{ipRules: map[host.IPRule]struct{}{rule(pod, 0): {}, rule(other, 0): {}, rule(replies, 80): {}}}
	if _, err := l.add(t.Context(), "shop/a", have, contribution{}); err != nil || len(kernel.Objects()) != 3 {
		t.Fatalf("%v, %v", err, kernel.Objects())
	}
	translates := contribution{translations: egressservice.Translations{pod.Addr(): netip.MustParseAddr("5.5.5.5")}}
	if err := l.dropReplaced(t.Context(), translates); err != nil {
		t.Fatal(err)
	}
	left := kernel.Objects()
	if _, stays := left[rule(pod, 0)]; stays || len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

// TestBackAfterFailedEnd: a translation that returns while its removal keeps failing is in use.
func TestBackAfterFailedEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := left(t)
		h.connections.fail.Store(1)
		h.expect(t, Linger+500*time.Millisecond, false, true)
		if err := h.serve(t, true); err != nil {
			t.Fatal(err)
		}
		h.connections.connect(leavingPod.String(), leavingTo.String())
		h.expect(t, 2*Linger, true, true)
	})
}

// TestBackOutlivesFailures: the connections of a returning translation took another path
// meanwhile, and are forgotten even if something fails at first.
func TestBackOutlivesFailures(t *testing.T) {
	for name, fail := range map[string]func(h bareHost){
		"rules":       func(h bareHost) { h.chains.refuse(1) },
		"connections": func(h bareHost) { h.connections.fail.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := left(t)
				fail(h)
				if err := h.serve(t, true); err == nil {
					t.Fatal("no error")
				}
				if err := h.serve(t, true); err != nil {
					t.Fatal(err)
				}
				h.expect(t, 0, true, false)
			})
		})
	}
}
