package node

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// translations returns the translations of the endpoints of one of many services to its address.
func translations(service, each int) egressservice.Translations {
	t := egressservice.Translations{}
	for i := range each {
		n := service*each + i
		t[netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)})] = netip.AddrFrom4([4]byte{5, 5, byte(service >> 8), byte(service)})
	}
	return t
}

// BenchmarkProgram writes the translations of 10,000 endpoints to the kernel, like a
// host that takes over, and then changes one endpoint.
func BenchmarkProgram(b *testing.B) {
	const endpoints = 10000
	for _, services := range []int{1, 1000} {
		each := endpoints / services
		all := func() *iptables.Writer {
			w, err := iptables.New(egressservice.Chains(topology.Families))
			if err != nil {
				b.Fatal(err)
			}
			return w
		}
		apply := func(ns *netnstest.NS, w *iptables.Writer) {
			keys := make(chan int, services)
			for s := range services {
				keys <- s
			}
			close(keys)
			var done []<-chan struct{}
			for range workers {
				// The worker whose turn it is runs the command in its namespace.
				done = append(done, ns.Go(func() {
					for s := range keys {
						key := fmt.Sprintf("default/svc-%d", s)
						if err := w.Apply(context.Background(), egressservice.Contributor(key), translations(s, each).Rules(key)); err != nil {
							b.Error(err)
						}
					}
				}))
			}
			for _, d := range done {
				<-d
			}
		}
		b.Run(fmt.Sprintf("all/services=%d", services), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				ns := netnstest.New(b)
				b.StartTimer()
				apply(ns, all())
				b.StopTimer()
				if n := strings.Count(ns.Run("iptables-save", "-t", "nat"), "-j SNAT"); n != endpoints {
					b.Fatalf("%d translations in the kernel", n)
				}
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("one/services=%d", services), func(b *testing.B) {
			ns := netnstest.New(b)
			w := all()
			apply(ns, w)
			<-ns.Go(func() {
				const key = "default/svc-0"
				for i := 0; b.Loop(); i++ {
					t := translations(0, each)
					t[netip.AddrFrom4([4]byte{10, 244, 250, byte(i)})] = netip.AddrFrom4([4]byte{5, 5, 0, 0})
					if err := w.Apply(context.Background(), egressservice.Contributor(key), t.Rules(key)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
