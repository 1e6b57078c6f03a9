package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// mtu is the MTU of pods; the wire between the nodes has a larger one.
const mtu = 1400

// pathMTU checks that packets that fit into the overlay are answered, and that senders of larger
// ones are told the MTU.
func (w *world) pathMTU(t *testing.T) {
	cluster, local := w.make(t, "mtu", loadBalancer), w.make(t, "mtu-local", externalLocal)
	w.announce(t, worker1)
	server := w.pods["s1"]
	if err := w.RouteTo(t.Context(), server.Addresses, worker1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, a := range server.Addresses {
			if _, err := w.Kin.Exec(context.Background(), lab.Outside, "ip", "route", "del", a.String()); err != nil {
				t.Error(err)
			}
		}
	})
	toPod := func(is4 bool) netip.AddrPort { return netip.AddrPortFrom(server.Address(is4), lab.ServePort) }
	toOutside := func(is4 bool) netip.AddrPort { return netip.AddrPortFrom(outside(is4), lab.ServePort) }
	for _, way := range []struct {
		udpWay
		// answers: whether an answer is expected; not from a pod that is reached directly, without
		// a Service.
		answers bool
		// router: the gateway router rejects packets that are too large.
		router bool
	}{
		{udpWay{"pod to pod", pod("c2"), toPod}, true, false},
		{udpWay{"pod to outside", pod("c2"), toOutside}, true, false},
		{udpWay{"pod to cluster address", pod("c2"), cluster.cluster}, true, false},
		{udpWay{"host to cluster address", machine(worker2), cluster.cluster}, true, false},
		{udpWay{"outside to a port", machine(lab.Outside), w.port(cluster, worker1)}, true, false},
		{udpWay{"outside to a port that stays", machine(lab.Outside), w.port(local, worker1)}, true, true},
		{udpWay{"outside to load balancer address", machine(lab.Outside), cluster.external}, true, true},
		{udpWay{"outside to pod", machine(lab.Outside), toPod}, false, true},
	} {
		w.both(t, way.name, func(ctx context.Context, is4 bool) error {
			headers := 28
			if !is4 {
				headers = 48
			}
			if way.answers {
				if _, _, err := w.ask(ctx, way.from, way.to(is4), "-whole", "-size", fmt.Sprint(mtu-headers)); err != nil {
					return fmt.Errorf("what fits: %w", err)
				}
			}
			_, _, err := w.ask(ctx, way.from, way.to(is4), "-whole", "-timeout", "1s", "-size", fmt.Sprint(mtu+1-headers))
			want := fmt.Sprintf("the path takes %d", mtu)
			if way.router && w.mode == "shared" && !is4 {
				// The userspace datapath overwrites the MTU with a UDP checksum when it translates
				// the error back.
				want = "message too long"
			}
			switch {
			case err == nil:
				return errors.New("an answer to what does not fit")
			case !strings.Contains(err.Error(), want):
				return err
			}
			return nil
		})
	}
}
