package ovsdb_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// balancer is a load balancer in the group of all nodes, and its owner.
func balancer(name, endpoint string) (nb.Owner, nb.Row) {
	return nb.Owner{Feature: "service", Object: name}, row(name, nbdb.LoadBalancerGroupTable, "clusterLBGroup",
		&nbdb.LoadBalancer{Name: name, Vips: map[string]string{"10.96.0.9:80": endpoint}})
}

// fillGroup creates load balancers in the group.
func fillGroup(t testing.TB, w *ovsdb.Writer, n int) {
	t.Helper()
	apply(t, w, network, clusterRows()...)
	all := map[nb.Owner][]nb.Row{}
	for i := range n {
		o, r := balancer(fmt.Sprintf("lb-%d", i), "10.244.0.3:80")
		all[o] = []nb.Row{r}
	}
	if _, errs := w.ApplyAll(t.Context(), all); len(errs) > 0 {
		t.Fatal(errs)
	}
}

// addresses returns n addresses.
func addresses(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&0xff, i&0xff))
	}
	return out
}

// bytesOf returns how many bytes f allocates, in all goroutines.
func bytesOf(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCostInGroup: what an owner's Apply costs does not grow with the load balancers of other owners
// in the same group.
func TestCostInGroup(t *testing.T) {
	const others, rounds, limit = 3000, 50, 40 << 10 // bytes for each Apply; the group has 48 KiB of references
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	fillGroup(t, w, others)
	o, same := balancer("lb-7", "10.244.0.3:80")
	node := nb.Owner{Feature: "network", Object: "n1"}
	apply(t, w, node, nodeRows("n1")...)
	for name, f := range map[string]func(i int){
		"no difference": func(int) { apply(t, w, o, same) },
		"other endpoints": func(i int) {
			_, r := balancer("lb-8", fmt.Sprintf("10.244.0.%d:80", i+4))
			apply(t, w, nb.Owner{Feature: "service", Object: "lb-8"}, r)
		},
		"a switch that refers to the group": func(int) { apply(t, w, node, nodeRows("n1")...) },
	} {
		if each := bytesOf(func() {
			for i := range rounds {
				f(i)
			}
		}) / rounds; each > limit {
			t.Errorf("%s: %d bytes for each Apply, want at most %d", name, each, limit)
		}
	}
}

// TestMembershipIsCurrent: a row that someone else takes out of its group, or that is added again,
// is noticed though the writer remembers what the group has.
func TestMembershipIsCurrent(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	fillGroup(t, w, 3)
	o, r := balancer("lb-1", "10.244.0.3:80")
	has := func() int {
		return len(strings.Fields(s.Nbctl("--bare", "--columns=load_balancer", "list", "Load_Balancer_Group")))
	}
	for range 3 {
		for range 3 { // the third time it is remembered
			if stats := apply(t, w, o, r); !stats.Zero() {
				t.Fatalf("wrote %+v", stats)
			}
		}
		uuid := strings.TrimSpace(s.Nbctl("--bare", "--columns=_uuid", "find", "Load_Balancer", "name=lb-1"))
		s.Nbctl("remove", "Load_Balancer_Group", "clusterLBGroup", "load_balancer", uuid)
		if n := has(); n != 2 {
			t.Fatalf("the group has %d", n)
		}
		eventually.Succeeds(t, "the load balancer to be in its group again", func() error {
			if stats := apply(t, w, o, r); stats.Updated != 1 {
				return fmt.Errorf("wrote %+v", stats)
			}
			return nil
		})
		if n := has(); n != 3 {
			t.Fatalf("the group has %d", n)
		}
	}
}

// BenchmarkGroup measures what a Service costs in a group of many: an Apply without a
// difference, one with other endpoints, and one of a node's switch that refers to the group.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{100, 10000} {
		s := ovsdbtest.StartNB(b)
		w := connect(b, ovsdb.Config{Address: s.Socket()})
		fillGroup(b, w, n)
		o, same := balancer("lb-7", "10.244.0.3:80")
		b.Run(fmt.Sprintf("noop/of=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if stats := apply(b, w, o, same); !stats.Zero() {
					b.Fatalf("wrote %+v", stats)
				}
			}
		})
		b.Run(fmt.Sprintf("one/of=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, r := balancer("lb-7", fmt.Sprintf("10.244.%d.4:80", i%250))
				if stats := apply(b, w, o, r); stats.Updated != 1 {
					b.Fatalf("wrote %+v", stats)
				}
			}
		})
		b.Run(fmt.Sprintf("new/of=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			extra, r := balancer("extra", "10.244.0.3:80")
			for b.Loop() {
				apply(b, w, extra, r)
				apply(b, w, extra)
			}
		})
		node := nb.Owner{Feature: "network", Object: "n1"}
		apply(b, w, node, nodeRows("n1")...)
		b.Run(fmt.Sprintf("node/of=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if stats := apply(b, w, node, nodeRows("n1")...); !stats.Zero() {
					b.Fatalf("wrote %+v", stats)
				}
			}
		})
	}
}

// BenchmarkSet measures the change of one address in a large set.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{100, 24000} {
		s := ovsdbtest.StartNB(b)
		w := connect(b, ovsdb.Config{Address: s.Socket()})
		set := func(addrs []string) nb.Row {
			return nb.Row{ID: "set", Model: &nbdb.AddressSet{Name: "set", Addresses: addrs}}
		}
		apply(b, w, svc, set(addresses(n)))
		b.Run(fmt.Sprintf("noop/of=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			same := set(addresses(n))
			for b.Loop() {
				apply(b, w, svc, same)
			}
		})
		b.Run(fmt.Sprintf("one/of=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			addrs, i := addresses(n+1), 0
			for b.Loop() {
				i++
				if stats := apply(b, w, svc, set(addrs[:n+i%2])); stats.Updated != 1 {
					b.Fatalf("wrote %+v", stats)
				}
			}
		})
	}
}

// BenchmarkOwners lists the owners of a feature with few rows while another has many.
func BenchmarkOwners(b *testing.B) {
	s := ovsdbtest.StartNB(b)
	w := connect(b, ovsdb.Config{Address: s.Socket()})
	fillGroup(b, w, 10000)
	for _, feature := range []string{"network", "service"} {
		b.Run(feature, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(w.Owners(feature)) == 0 {
					b.Fatal("none")
				}
			}
		})
	}
}
