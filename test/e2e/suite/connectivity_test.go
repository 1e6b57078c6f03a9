package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// path is a path of packets: who connects to whom, and which source address is seen. Each end is a
// machine, a pod or the outside host, as an address of one family.
type path struct {
	name     string
	from     string // pod or machine
	fromPod  bool
	to, seen func(is4 bool) (netip.Addr, error)
}

func (s *suite) connectivity(t *testing.T) {
	for _, p := range s.paths(t.Context()) {
		for family, is4 := range map[string]bool{"v4": true, "v6": false} {
			t.Run(p.name+"/"+family, func(t *testing.T) {
				to, err := p.to(is4)
				if err != nil {
					t.Fatal(err)
				}
				want, err := p.seen(is4)
				if err != nil {
					t.Fatal(err)
				}
				call := s.SeenFromMachine
				if p.fromPod {
					call = s.SeenFromPod
				}
				err = lab.Until(t.Context(), 20*time.Second, p.name, func(ctx context.Context) error {
					have, err := call(ctx, p.from, to)
					if err == nil && have != want {
						return fmt.Errorf("seen as %s, want %s", have, want)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	t.Run("Exec", s.executed)
}

// executed has programs in a pod and on a node ask for what the test process asks itself from their namespaces
// otherwise.
func (s *suite) executed(t *testing.T) {
	for _, to := range s.servers["b"].Addresses {
		management, err := s.managementAddress(t.Context(), "ovn-worker", to.Is4())
		if err != nil {
			t.Fatal(err)
		}
		url := lab.URL(to, "/clientip")
		in, err := s.Exec(t.Context(), "a", "/probe", "get", url)
		if want := s.servers["a"].Address(to.Is4()).String(); err != nil || in != want {
			t.Errorf("a program in a pod was seen as %q, want %s: %v", in, want, err)
		}
		on, err := s.Kin.Exec(t.Context(), "ovn-worker", lab.MachineProbe, "get", url)
		if want := management.String(); err != nil || strings.TrimSpace(on) != want {
			t.Errorf("a program on a node was seen as %q, want %s: %v", on, want, err)
		}
	}
}

func (s *suite) paths(ctx context.Context) []path {
	pod := func(name string) func(bool) (netip.Addr, error) {
		return func(is4 bool) (netip.Addr, error) { return s.servers[name].Address(is4), nil }
	}
	node := func(name string) func(bool) (netip.Addr, error) {
		return func(is4 bool) (netip.Addr, error) { return s.nodeAddress(ctx, name, is4) }
	}
	management := func(name string) func(bool) (netip.Addr, error) {
		return func(is4 bool) (netip.Addr, error) { return s.managementAddress(ctx, name, is4) }
	}
	outside := func(is4 bool) (netip.Addr, error) {
		return pick(lab.OutsideAddresses, is4)
	}
	return []path{
		{"pod to pod on its node", "b", true, pod("b2"), pod("b")},
		{"pod to pod on another node", "a", true, pod("b"), pod("a")},
		{"pod to its own node", "a", true, node("ovn-worker"), pod("a")},
		{"pod to another node", "a", true, node(s.servers["b"].Node), node("ovn-worker")},
		{"pod to outside", "a", true, outside, node("ovn-worker")},
		{"host to pod on it", "ovn-worker", false, pod("a"), management("ovn-worker")},
		{"host to pod on another node", "ovn-worker", false, pod("b"), management("ovn-worker")},
		{"control plane to pod", lab.ControlPlane, false, pod("b"), management(lab.ControlPlane)},
		{"host to host", "ovn-worker", false, node(s.servers["b"].Node), node("ovn-worker")},
		{"host to outside", "ovn-worker", false, outside, node("ovn-worker")},
		{"outside to host", lab.Outside, false, node("ovn-worker"), outside},
	}
}

func (s *suite) nodeAddress(ctx context.Context, name string, is4 bool) (netip.Addr, error) {
	addresses, err := s.NodeAddresses(ctx, name)
	if err != nil {
		return netip.Addr{}, err
	}
	return pick(addresses, is4)
}

// managementAddress returns the address of the node's management port: the second of its subnet.
func (s *suite) managementAddress(ctx context.Context, name string, is4 bool) (netip.Addr, error) {
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	var addresses []netip.Addr
	for _, subnet := range nodes[name].Subnets {
		addresses = append(addresses, subnet.Masked().Addr().Next().Next())
	}
	return pick(addresses, is4)
}

func pick(addresses []netip.Addr, is4 bool) (netip.Addr, error) {
	for _, a := range addresses {
		if a.Is4() == is4 {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address of the family among %v", addresses)
}
