package health

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// maxOthers is how many addresses other than the node's are probed to find out whether this host is
// cut off.
const maxOthers = 8

// Opinion uses the hosts' network, on which the cluster network runs, to decide whether a node is
// dead. It is if its host is silent while another address answers, because then this host's own
// network works.
type Opinion struct {
	// Probers probe an address of a host, each in its own way; one answer is enough.
	Probers []Prober
	// Hosts returns the addresses of the host of each node except the own one.
	Hosts func() map[string][]netip.Addr
	// NextHops returns this host's default gateways.
	NextHops func() []netip.Addr
	// Lost reports whether Kubernetes has given up on a node, because its kubelet has not been
	// heard from for long.
	Lost func(node string) bool
}

// Dead reports whether a node is dead; false if that cannot be decided before ctx ends.
func (o Opinion) Dead(ctx context.Context, node string) bool {
	hosts := o.Hosts()
	if len(hosts[node]) == 0 {
		return o.Lost(node)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	others := slices.Clone(o.NextHops())
	for name, addrs := range hosts {
		if name != node && len(others) < maxOthers {
			others = append(others, addrs...)
		}
	}
	// Both are probed at the same time, and until one side decides: the node's silence counts only
	// if it lasts longer than it took others to answer.
	alive, othersAlive := o.any(ctx, hosts[node]), o.any(ctx, others)
	answered := false
	for {
		select {
		case ok := <-alive:
			if ok {
				return false
			}
			alive = nil
			if answered {
				return true
			}
		case ok := <-othersAlive:
			othersAlive = nil
			if answered = ok; !ok {
				return o.Lost(node)
			}
			if alive == nil {
				return true
			}
		case <-ctx.Done():
			return answered || o.Lost(node)
		}
	}
}

// any returns whether any of the addresses answers, as soon as one has answered or all have been
// silent.
func (o Opinion) any(ctx context.Context, addrs []netip.Addr) <-chan bool {
	probes := len(addrs) * len(o.Probers)
	results, result := make(chan bool, probes), make(chan bool, 1)
	for _, a := range addrs {
		for _, p := range o.Probers {
			go func() {
				results <- panics.Catch("health", func() error { return p.Probe(ctx, "", a) }) == nil
			}()
		}
	}
	go func() {
		for range probes {
			if <-results {
				result <- true
				return
			}
		}
		result <- false
	}()
	return result
}
