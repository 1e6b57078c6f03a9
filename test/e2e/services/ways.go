package services

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// paths tests every path to each kind of Service.
func (w *world) paths(t *testing.T) {
	t.Run("Cluster", w.clusterPaths)
	t.Run("ExternalLocal", w.externalLocalPaths)
	t.Run("InternalLocal", w.internalLocalPaths)
	t.Run("Nobody", w.nobodyPaths)
	t.Run("Hosts", w.hostPaths)
	t.Run("HostsLocal", w.hostLocalPaths)
}

func (w *world) clusterPaths(t *testing.T) {
	s := w.make(t, "cluster", loadBalancer)
	both := []string{"s1", "s2"}
	for _, c := range []string{"c0", "c1", "c2"} {
		w.try(t, c+" to cluster address", way{pod(c), s.cluster, both, w.of(c)})
		w.try(t, c+" to load balancer address", way{pod(c), s.external, both, w.of(c)})
	}
	w.try(t, "server to itself among others", way{pod("s1"), s.cluster, both, nil})
	w.try(t, "pod to its node's port", way{pod("c1"), w.port(s, worker1), both, w.of("c1")})
	w.try(t, "pod to another node's port", way{pod("c1"), w.port(s, worker2), both, nil})
	w.try(t, "pod to a port of a node without endpoint", way{pod("c1"), w.port(s, lab.ControlPlane), both, nil})
	for _, node := range nodes {
		w.try(t, node+" to cluster address", way{machine(node), s.cluster, both, nil})
		w.try(t, node+" to load balancer address", way{machine(node), s.external, both, nil})
		w.try(t, node+" to its own port", way{machine(node), w.port(s, node), both, nil})
		w.try(t, node+" to another's port", way{machine(node), w.port(s, another(node)), both, nil})
		w.try(t, "outside to port of "+node, way{machine(lab.Outside), w.port(s, node), both, nil})
	}
	for _, node := range []string{lab.ControlPlane, worker1} {
		w.announce(t, node)
		w.try(t, "outside to load balancer address at "+node, way{machine(lab.Outside), s.external, both, nil})
	}
}

func (w *world) externalLocalPaths(t *testing.T) {
	s := w.make(t, "etp", loadBalancer, externalLocal)
	both := []string{"s1", "s2"}
	w.try(t, "pod to cluster address", way{pod("c1"), s.cluster, both, w.of("c1")})
	w.try(t, "pod to load balancer address", way{pod("c0"), s.external, both, w.of("c0")})
	w.try(t, "pod to its node's port", way{pod("c0"), w.port(s, lab.ControlPlane), both, w.of("c0")})
	w.try(t, "host to its own port", way{machine(worker1), w.port(s, worker1), both, nil})
	w.try(t, "host to load balancer address", way{machine(lab.ControlPlane), s.external, both, nil})
	w.try(t, "outside to a port with endpoint", way{machine(lab.Outside), w.port(s, worker1), both[:1], outside})
	w.try(t, "outside to another port with endpoint", way{machine(lab.Outside), w.port(s, worker2), both[1:], outside})
	w.try(t, "outside to a port without endpoint", way{machine(lab.Outside), w.port(s, lab.ControlPlane), nil, nil})
	w.announce(t, worker2)
	w.try(t, "outside to load balancer address", way{machine(lab.Outside), s.external, both[1:], outside})
	w.announce(t, lab.ControlPlane)
	w.try(t, "outside to load balancer address without endpoint", way{machine(lab.Outside), s.external, nil, nil})

	kept := outside
	if w.mode == "shared" {
		kept = nil // the connection does not pass the gateway router
	}
	w.try(t, "outside to a port at another address of a node", way{machine(lab.Outside), w.portElsewhere(t, s, worker1), both[:1], kept})
}

// portElsewhere adds other addresses to a node, which the outside host reaches, and returns a
// Service's port there.
func (w *world) portElsewhere(t *testing.T, s service, node string) func(is4 bool) netip.AddrPort {
	t.Helper()
	addresses := []netip.Addr{netip.MustParseAddr("5.5.9.9"), netip.MustParseAddr("fd05:9::9")}
	if err := w.RouteTo(t.Context(), addresses, node); err != nil {
		t.Fatal(err)
	}
	change := func(verb string) error {
		var err error
		for _, a := range addresses {
			_, failed := w.Kin.Exec(context.WithoutCancel(t.Context()), node, "ip", "addr", verb, netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo")
			err = errors.Join(err, failed)
		}
		return err
	}
	if err := change("add"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := change("del"); err != nil {
			t.Error(err)
		}
	})
	port := w.port(s, node)
	return func(is4 bool) netip.AddrPort {
		return netip.AddrPortFrom(lab.OfFamily(addresses, is4), port(is4).Port())
	}
}

func (w *world) internalLocalPaths(t *testing.T) {
	s := w.make(t, "itp", internalLocal)
	both := []string{"s1", "s2"}
	w.try(t, "pod with an endpoint", way{pod("c1"), s.cluster, both[:1], w.of("c1")})
	w.try(t, "pod with another endpoint", way{pod("c2"), s.cluster, both[1:], w.of("c2")})
	w.try(t, "pod without endpoint", way{pod("c0"), s.cluster, nil, nil})
	w.try(t, "host with an endpoint", way{machine(worker1), s.cluster, both[:1], nil})
	w.try(t, "host without endpoint", way{machine(lab.ControlPlane), s.cluster, nil, nil})
	w.try(t, "outside to a port", way{machine(lab.Outside), w.port(s, worker1), both, nil})
	w.try(t, "host to its own port", way{machine(worker1), w.port(s, worker1), both, nil})
}

func (w *world) nobodyPaths(t *testing.T) {
	s := w.make(t, "nobody", loadBalancer, nobody)
	w.announce(t, worker1)
	w.try(t, "pod to cluster address", way{pod("c1"), s.cluster, nil, nil})
	w.try(t, "pod to its node's port", way{pod("c1"), w.port(s, worker1), nil, nil})
	w.try(t, "pod to another node's port", way{pod("c1"), w.port(s, worker2), nil, nil})
	w.try(t, "pod to load balancer address", way{pod("c1"), s.external, nil, nil})
	w.try(t, "host to cluster address", way{machine(worker1), s.cluster, nil, nil})
	w.try(t, "host to its own port", way{machine(worker1), w.port(s, worker1), nil, nil})
	w.try(t, "host to load balancer address", way{machine(worker1), s.external, nil, nil})
	w.try(t, "outside to a port", way{machine(lab.Outside), w.port(s, worker1), nil, nil})
	w.try(t, "outside to load balancer address", way{machine(lab.Outside), s.external, nil, nil})
}

func (w *world) hostPaths(t *testing.T) {
	s := w.onHosts(t, "hosts", loadBalancer)
	both := []string{worker1, worker2}
	w.try(t, "pod on a node without endpoint", way{pod("c0"), s.cluster, both, nil})
	w.try(t, "pod on a node with endpoint", way{pod("c1"), s.cluster, both, nil})
	w.try(t, "pod to its node's port", way{pod("c1"), w.port(s, worker1), both, nil})
	w.try(t, "pod to another node's port", way{pod("c1"), w.port(s, worker2), both, nil})
	w.try(t, "pod to load balancer address", way{pod("c2"), s.external, both, nil})
	for _, node := range nodes {
		w.try(t, node+" to cluster address", way{machine(node), s.cluster, both, nil})
		w.try(t, node+" to load balancer address", way{machine(node), s.external, both, nil})
		w.try(t, node+" to its own port", way{machine(node), w.port(s, node), both, nil})
		w.try(t, "outside to port of "+node, way{machine(lab.Outside), w.port(s, node), both, nil})
	}
	w.announce(t, worker1)
	w.try(t, "outside to load balancer address", way{machine(lab.Outside), s.external, both, nil})
}

func (w *world) hostLocalPaths(t *testing.T) {
	s := w.onHosts(t, "hosts-local", loadBalancer, externalLocal, internalLocal)
	w.try(t, "pod with an endpoint", way{pod("c1"), s.cluster, []string{worker1}, nil})
	w.try(t, "pod without endpoint", way{pod("c0"), s.cluster, nil, nil})
	w.try(t, "host with an endpoint", way{machine(worker2), s.cluster, []string{worker2}, nil})
	w.try(t, "host without endpoint", way{machine(lab.ControlPlane), s.cluster, nil, nil})
	w.try(t, "outside to a port with endpoint", way{machine(lab.Outside), w.port(s, worker1), []string{worker1}, outside})
	w.try(t, "outside to a port without endpoint", way{machine(lab.Outside), w.port(s, lab.ControlPlane), nil, nil})
	w.announce(t, worker2)
	w.try(t, "outside to load balancer address", way{machine(lab.Outside), s.external, []string{worker2}, outside})
}

// another returns a node with an endpoint that is not the given one.
func another(node string) string {
	if node == worker1 {
		return worker2
	}
	return worker1
}
