package suite

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	severalName = "several"
	// severalConnections is how many connections each pod keeps.
	severalConnections = 20
)

var severalIPs = addresses("172.18.0.221", "172.18.0.222", "fc00:f853:ccd:e793::221", "fc00:f853:ccd:e793::222")

// severalAddresses moves one of two addresses of a family while pods have open connections: those
// with the other address continue, and so do those with the address that moves.
func (e *egressIPTest) severalAddresses(t *testing.T) {
	all, err := e.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The order of the next hops stays the same, whichever of the outer nodes is replaced by the
	// one between.
	order := slices.Clone(nodes)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Compare(all[a].Join[0].Addr().String(), all[b].Join[0].Addr().String())
	})
	first, between, last := order[0], order[1], order[2]
	ports := lab.PortRange{First: 33000, Last: 33999}
	for _, affinity := range []v1.AddressAffinity{v1.AddressAffinityNone, v1.AddressAffinityPod} {
		t.Run(string(affinity), func(t *testing.T) {
			e.assignable(t, first, last)
			e.create(t, severalName, severalIPs, held, func(spec *v1.EgressIPSpec) { spec.AddressAffinity = affinity })
			holders := e.programmed(t, severalName)
			var streams []string
			var own []lab.PortRange
			for i := range 4 {
				streams, own = append(streams, fmt.Sprintf("%s-%d", severalName, i)), append(own, ports)
				ports = ports.Next()
			}
			err := atOnce(len(streams), func(i int) error {
				_, err := e.RunStreams(t.Context(), streams[i], between, chosen(severalName), lab.OutsideAddresses[i%2], severalConnections, own[i])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer e.deletePods(t, streams)
			if affinity == v1.AddressAffinityPod {
				e.oneEach(t)
			}
			e.assignable(t, order...)
			for _, from := range []string{first, last} {
				e.beginAgain(t, streams)
				took := during(func() {
					e.patchNode(t, from, `{"spec":{"taints":[{"key":"k8s.ovn.org/egress","value":"drain","effect":"NoSchedule"}]}}`)
					for a, node := range holders {
						if node == from {
							e.movedFrom(t, severalName, a, from)
						}
					}
				})
				gaps := e.wentOn(t, streams, true, took)
				figures.Record(t, fmt.Sprintf("EgressIP, open connections: one of two addresses moves, affinity %s", affinity), figures.OpenConnectionMove, gaps...)
				e.patchNode(t, from, `{"spec":{"taints":null}}`)
				holders = e.programmed(t, severalName)
				if affinity == v1.AddressAffinityNone {
					break // the next move would be to the other end
				}
			}
			e.remove(t, severalName)
		})
		if t.Failed() {
			return
		}
	}
}

// oneEach checks that each pod has one address of each family.
func (e *egressIPTest) oneEach(t *testing.T) {
	t.Helper()
	e.choose(t, severalName, "egress-0", "egress-1", "egress-2")
	defer e.choose(t, severalName)
	e.programmed(t, severalName)
	for name := range e.pods {
		for _, to := range lab.OutsideAddresses {
			// No condition says that a label change has been processed.
			err := lab.Until(t.Context(), egressPatience, name+" to leave with one of the addresses", func(ctx context.Context) error {
				seen, err := e.SeenFromPod(ctx, name, to)
				if err == nil && !slices.Contains(severalIPs, seen) {
					err = fmt.Errorf("it leaves with %s", seen)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			sources, err := e.SourcesFromPod(t.Context(), name, to, 10)
			if err != nil {
				t.Fatal(err)
			}
			for a := range sources {
				if len(sources) != 1 || !slices.ContainsFunc(severalIPs, func(ip netip.Addr) bool { return ip == a }) {
					t.Errorf("%s leaves to %s with %v", name, to, sources)
				}
			}
		}
	}
}
