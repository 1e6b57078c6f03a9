package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// sourceFor returns the address with which gateways see pods of a node: the node's address on their
// wire.
func (g *gatewayTest) sourceFor(ctx context.Context, node string, is4 bool, gateways []lab.Gateway) (netip.Addr, error) {
	nodes, err := g.Nodes(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	var addrs []netip.Addr
	for _, p := range gateways[0].Node(nodes[node]) {
		addrs = append(addrs, p.Addr())
	}
	return pick(addrs, is4)
}

// secondUplink has pods use a gateway on the network of the nodes' second uplink. own reports
// whether the gateway sees the pods' own addresses.
func (g *gatewayTest) secondUplink(t *testing.T, own bool) {
	ctx := t.Context()
	second, err := g.AddGatewayOn(ctx, 3, secondNetwork, "192.168.50", "fd00:50")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.StartBFD(ctx, second, bfdInterval); err != nil {
		t.Fatal(err)
	}
	ordinary := func(what string) {
		t.Helper()
		for _, name := range []string{"a", "b"} {
			addresses, err := g.NodeAddresses(ctx, g.servers[name].Node)
			if err != nil {
				t.Fatal(err)
			}
			g.seenOutside(t, addresses, name)
		}
		if t.Failed() {
			t.Fatalf("what pods send outside is not as usual %s", what)
		}
	}
	ordinary("before")
	g.policy(t, hops(watched(), second))
	g.uses(t, 30*time.Second, own, second)
	g.secondInbound(t, second)
	if err := g.KillBFD(ctx, second); err != nil {
		t.Fatal(err)
	}
	ordinary("while the gateway is down")
	g.policy(t, hops(watched(), g.gateways...))
	g.uses(t, 30*time.Second, own, g.gateways...)
	g.remove(t)
	g.unused(t, second)
	ordinary("after")
}

// secondInbound connects from the gateway to pods, and to the nodes themselves.
func (g *gatewayTest) secondInbound(t *testing.T, second lab.Gateway) {
	t.Helper()
	nodes, err := g.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, is4 := range g.families() {
		to := map[string]netip.Addr{}
		for _, name := range []string{"a", "b"} {
			to["pod "+name] = g.servers[name].Address(is4)
		}
		for _, name := range []string{"ovn-worker", "ovn-worker2"} {
			for _, p := range second.Node(nodes[name]) {
				if p.Addr().Is4() == is4 {
					to["node "+name] = p.Addr()
				}
			}
		}
		if len(to) != 4 {
			t.Fatalf("destinations are %v", to)
		}
		for what, a := range to {
			err := lab.Until(t.Context(), 20*time.Second, fmt.Sprintf("connections from the gateway to %s at %s", what, a), func(ctx context.Context) error {
				seen, err := g.SourcesFromMachine(ctx, second.Name, a, 5)
				if err == nil && len(seen) != 1 {
					err = fmt.Errorf("seen as %v", seen)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}
