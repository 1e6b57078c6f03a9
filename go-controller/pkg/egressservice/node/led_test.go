package node

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func (k *kernel) flushLed(_ context.Context, pods map[netip.Addr]bool) error {
	if err := k.fails(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.open {
		if pods[c[0]] && k.former[c[1]] {
			delete(k.open, c)
		}
	}
	return nil
}

// Pods of the node, and addresses, for each family: that of an EgressIP on another link than the network's, and that of the latter.
var (
	ledPods, otherPods      = [2]string{"10.244.1.6", "fd00:10:244:2::6"}, [2]string{"10.244.1.7", "fd00:10:244:2::7"}
	formerAddrs, rightAddrs = [2]string{"10.10.10.5", "fd10::5"}, [2]string{"192.168.50.3", "fd50::3"}
)

// TestNewlyLedPods: connections of pods that are led into a network without a translation lose the address of another link, when the
// pods are led there, or into another network, and after a restart; not those of pods that were led there before, whatever address
// they seem to have: they may leave through external gateways.
func TestNewlyLedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.kernel.tables["blue"], w.kernel.tables["red"] = host.RoutingTable{Number: 7}, host.RoutingTable{Number: 8}
		w.kernel.former = map[netip.Addr]bool{netip.MustParseAddr(formerAddrs[0]): true, netip.MustParseAddr(formerAddrs[1]): true}
		must(t, w.kube.Tracker().Add(pod("default", "led", "ovn-worker2", ledPods[1])))
		must(t, w.kube.Tracker().Add(pod("default", "other", "ovn-worker2", otherPods[:]...)))
		endpoints := func(addrs ...string) {
			t.Helper()
			_, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", addrs...), metav1.UpdateOptions{})
			must(t, err)
		}
		connect := func() {
			for i := range formerAddrs {
				for _, p := range []string{ledPods[i], otherPods[i]} {
					w.kernel.connect(p, formerAddrs[i])
					w.kernel.connect(p, rightAddrs[i])
				}
			}
		}
		check := func(what string, led, other bool) {
			t.Helper()
			for i, to := range formerAddrs {
				w.eventually(what, func() bool {
					return w.kernel.connected(ledPods[i], to) == led && w.kernel.connected(otherPods[i], to) == other
				})
			}
			fakeapi.Settle()
			for i, to := range formerAddrs {
				if w.kernel.connected(ledPods[i], to) != led || w.kernel.connected(otherPods[i], to) != other {
					t.Errorf("%s: connections are gone", what)
				}
				if !w.kernel.connected(ledPods[i], rightAddrs[i]) || !w.kernel.connected(otherPods[i], rightAddrs[i]) {
					t.Errorf("%s: connections with the right address are gone", what)
				}
			}
		}
		endpoints(ledPods[:]...)
		w.start()
		connect()
		eg := egress("demo-svc", v1.HostAll)
		eg.Spec.Network, eg.Spec.SourceIPBy = "blue", v1.SourceIPNetwork
		w.update(eg)
		check("when pods are led into the network", false, true)
		connect()
		for range 3 {
			w.applied()
			<-time.After(9 * time.Minute)
			check("when ovn-controller reports", true, true)
		}
		endpoints(append(otherPods[:], ledPods[:]...)...)
		check("when another pod is led there", true, false)
		connect()
		eg.Spec.Network = "red"
		w.update(eg)
		check("in another network", false, false)
		connect()
		w.stop()
		w.start()
		check("after a restart", false, false)
	})
}

// lead makes the node lead the pod into a network for an EgressService.
func (h bareHost) lead(t *testing.T, key string, table int) error {
	t.Helper()
	return h.program(t.Context(), key, contribution{ipRules: map[host.IPRule]struct{}{
		{Family: topology.IPv4, Priority: topology.RuleEgressServiceNetwork, Src: topology.HostPrefix(leavingPod), Table: table}: {},
	}}, false)
}

// TestNewlyLedTranslated: connections of a pod that an EgressService translates stay, also while its rules expire, though their address is that
// of another link: they end with the translation.
func TestNewlyLedTranslated(t *testing.T) {
	for _, key := range []string{"default/a", "default/b"} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBareHost(t)
				h.connections.former = map[netip.Addr]bool{leavingTo: true}
				must(t, h.translate(t, "default/a", leavingPod, leavingTo))
				h.connections.connect(leavingPod.String(), leavingTo.String())
				if key != "default/a" {
					must(t, h.lead(t, key, 7))
					if !h.connections.connected(leavingPod.String(), leavingTo.String()) {
						t.Error("a connection of a pod that is translated is gone")
					}
					must(t, h.program(t.Context(), key, contribution{}, false))
					must(t, h.translate(t, "default/a"))
				}
				must(t, h.lead(t, key, 7))
				h.expect(t, Linger-time.Second, true, true)
				h.expect(t, 2*time.Second, false, false)
			})
		})
	}
}

// TestNewlyLedAgain: connections that cannot be deleted are deleted later: with those of another EgressService, or with the next attempt, also if it
// leads the pods where they were led before.
func TestNewlyLedAgain(t *testing.T) {
	for what, next := range map[string]func(h bareHost, t *testing.T) error{
		"again": func(h bareHost, t *testing.T) error { return h.lead(t, "default/a", 8) },
		"back":  func(h bareHost, t *testing.T) error { return h.lead(t, "default/a", 7) },
		"another": func(h bareHost, t *testing.T) error {
			return h.translate(t, "default/b", netip.MustParseAddr(otherPods[0]), leavingTo)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBareHost(t)
				h.connections.former = map[netip.Addr]bool{leavingTo: true}
				must(t, h.lead(t, "default/a", 7))
				h.connections.connect(leavingPod.String(), leavingTo.String())
				h.connections.fail.Store(1)
				if err := h.lead(t, "default/a", 8); err == nil {
					t.Fatal("no error")
				}
				if !h.connections.connected(leavingPod.String(), leavingTo.String()) {
					t.Fatal("the connection is gone already")
				}
				must(t, next(h, t))
				if h.connections.connected(leavingPod.String(), leavingTo.String()) {
					t.Error("the connection is still there")
				}
			})
		})
	}
}
