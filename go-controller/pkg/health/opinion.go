package health

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// witnesses bounds how many others are asked whether we are cut off.
const witnesses = 8

// Opinion tells from the network of the hosts, below the cluster's own, whether a
// node is dead. A node is where its host is silent while somebody else out there is
// not: then the way out of this host works.
type Opinion struct {
	// Probers ask an address of a host, each in its way; one answer is enough.
	Probers []Prober
	// Hosts returns the addresses of the host of each node but the own one.
	Hosts func() map[string][]netip.Addr
	// NextHops returns where packets of this host go first.
	NextHops func() []netip.Addr
	// Lost reports whether Kubernetes has given a node up, since nothing was heard of
	// its kubelet for long.
	Lost func(node string) bool
}

// Dead reports whether a node is dead; false where that cannot be told before ctx ends.
func (o Opinion) Dead(ctx context.Context, node string) bool {
	hosts := o.Hosts()
	if len(hosts[node]) == 0 {
		return o.Lost(node)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	others := slices.Clone(o.NextHops())
	for name, addrs := range hosts {
		if name != node && len(others) < witnesses {
			others = append(others, addrs...)
		}
	}
	// Both are asked at the same time, and for the whole of it: the node's silence
	// counts only where it lasts longer than it took others to answer.
	alive, heard := o.any(ctx, hosts[node]), o.any(ctx, others)
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
		case ok := <-heard:
			heard = nil
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

// any reports whether any of the addresses answers; once all have been silent, or one
// has answered.
func (o Opinion) any(ctx context.Context, addrs []netip.Addr) <-chan bool {
	asked := len(addrs) * len(o.Probers)
	results, result := make(chan bool, asked), make(chan bool, 1)
	for _, a := range addrs {
		for _, p := range o.Probers {
			go func() {
				results <- panics.Catch("health", func() error { return p.Probe(ctx, "", a) }) == nil
			}()
		}
	}
	go func() {
		for range asked {
			if <-results {
				result <- true
				return
			}
		}
		result <- false
	}()
	return result
}
