package node

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

func (k *kernel) flushRouted(_ context.Context, pods map[netip.Addr]bool) error {
	if err := k.fails(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.open {
		if to, known := k.routed[c[0]]; pods[c[0]] && known && c[1] != to {
			delete(k.open, c)
		}
	}
	return nil
}

// routes sets the address that the routes of the host give to a pod.
func (k *kernel) routes(pod, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.routed == nil {
		k.routed = map[netip.Addr]netip.Addr{}
	}
	k.routed[netip.MustParseAddr(pod)] = netip.MustParseAddr(to)
}

// TestNetworkTakesOver: connections of pods that an EgressService leads into a network without translating them lose the
// address of their former way out when the rules are written, and again when the policies are in force; and that of the network when
// the rules are gone. Those of other pods, and those with the right address, stay.
func TestNetworkTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pod, egressIP, own, network = "10.244.1.6", "10.10.10.5", "172.18.0.4", "192.168.50.4"
		w := newWorld(t)
		w.linger = Linger
		w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
		if err := w.kube.Tracker().Add(slice("more", pod)); err != nil {
			t.Fatal(err)
		}
		if err := w.kube.Tracker().Add(service("more", "6.6.6.6")); err != nil {
			t.Fatal(err)
		}
		eg := egress("more", "")
		if err := w.egress.Tracker().Add(eg); err != nil {
			t.Fatal(err)
		}
		w.start()
		check := func(what, gone, stays string) {
			t.Helper()
			w.eventually(gone+" to go: "+what, func() bool { return !w.kernel.connected(pod, gone) })
			if !w.kernel.connected(pod, stays) || !w.kernel.connected("10.244.0.99", egressIP) {
				t.Errorf("%s: the right connection, or that of another pod, is gone", what)
			}
		}
		w.kernel.connect(pod, egressIP)
		w.kernel.connect(pod, network)
		w.kernel.connect("10.244.0.99", egressIP)
		w.kernel.routes(pod, network)
		eg = egress("more", v1.HostAll)
		eg.Spec.Network, eg.Spec.SourceIPBy = "blue", v1.SourceIPNetwork
		w.update(eg)
		check("when the rules are written", egressIP, network)
		<-time.After(time.Minute)
		synctest.Wait()
		w.kernel.connect(pod, own)
		settled := w.settled.Load()
		w.applied()
		check("when the policies are in force", own, network)
		if w.settled.Load() == settled {
			t.Error("the datapath may lead packets elsewhere, and they recreate the connection")
		}
		w.stop()
		w.kernel.connect(pod, own)
		w.start()
		check("after a restart", own, network)
		w.kernel.connect(pod, own)
		w.kernel.routes(pod, own)
		w.update(egress("more", ""))
		check("when the rules are gone", network, own)
	})
}
