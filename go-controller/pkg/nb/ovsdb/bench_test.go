package ovsdb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// benchRows are EgressService policies spread over owners, as its planner
// makes them.
func benchRows(rows, owners int) map[nb.Owner][]nb.Row {
	out := map[nb.Owner][]nb.Row{}
	for i := range rows {
		object := fmt.Sprintf("ns/svc-%d", i%owners)
		addr := fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&0xff, i&0xff)
		o := nb.Owner{Feature: "egressservice", Object: object}
		out[o] = append(out[o], nb.Row{ID: addr, Parent: clusterRouter, Model: &nbdb.LogicalRouterPolicy{
			Priority: 101, Match: "ip4.src == " + addr, Action: nbdb.LogicalRouterPolicyActionReroute,
			Nexthops: []string{"10.244.1.2"}, ExternalIDs: map[string]string{"EgressSVC": object},
		}})
	}
	return out
}

// writeAll applies all owners from as many goroutines as workers.
func writeAll(b *testing.B, w *ovsdb.Writer, rows map[nb.Owner][]nb.Row, workers int) time.Duration {
	b.Helper()
	owners := make(chan nb.Owner, len(rows))
	for o := range rows {
		owners <- o
	}
	close(owners)
	var wg sync.WaitGroup
	start := time.Now()
	for range workers {
		wg.Go(func() {
			for o := range owners {
				if _, err := w.Apply(context.Background(), o, rows[o]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// BenchmarkWrite compares the writer with one raw transaction of the same rows on a
// separate server, once without and once with a monitoring client. x-raw is the ratio to
// the former, each the best of all rounds: other load on the machine can only make them
// longer.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct{ rows, owners, workers int }{
		{1000, 1, 1}, {1000, 100, 1}, {1000, 100, 16},
		{10000, 1, 1}, {10000, 1000, 1}, {10000, 1000, 16}, {10000, 1000, 64},
	} {
		b.Run(fmt.Sprintf("rows=%d/owners=%d/workers=%d", c.rows, c.owners, c.workers), func(b *testing.B) {
			rows := benchRows(c.rows, c.owners)
			raw, monitored, ours := time.Hour, time.Hour, time.Hour
			for range b.N {
				s := ovsdbtest.StartNB(b)
				w := connect(b, ovsdb.Config{Address: s.Socket()})
				apply(b, w, network, router(clusterRouter.Name))
				ours = min(ours, writeAll(b, w, rows, c.workers))
				raw, monitored = min(raw, s.Bulk(false)), min(monitored, s.Bulk(true))
				s.Kill()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(raw.Seconds()*1000, "raw-ms")
			b.ReportMetric(monitored.Seconds()*1000, "monitored-ms")
			b.ReportMetric(ours.Seconds()*1000, "writer-ms")
			b.ReportMetric(float64(ours)/float64(raw), "x-raw")
		})
	}
}

// BenchmarkSteady measures the cost of an owner with many rows in steady state: an Apply
// without a difference, and one that changes a single row.
func BenchmarkSteady(b *testing.B) {
	const total = 10000
	s := ovsdbtest.StartNB(b)
	w := connect(b, ovsdb.Config{Address: s.Socket()})
	apply(b, w, network, router(clusterRouter.Name))
	writeAll(b, w, benchRows(total-10, 1), 1)
	small := nb.Owner{Feature: "egressservice", Object: "ns/small"}
	var few []nb.Row
	for i := range 10 {
		few = append(few, policy(fmt.Sprintf("10.1.1.%d", i), "10.244.1.2"))
	}
	apply(b, w, small, few...)
	var big nb.Owner
	var many []nb.Row
	for o, rows := range benchRows(total-10, 1) {
		big, many = o, rows
	}
	for _, c := range []struct {
		name  string
		owner nb.Owner
		rows  []nb.Row
	}{{"of=10", small, few}, {"of=10000", big, many}} {
		b.Run("noop/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if stats := apply(b, w, c.owner, c.rows...); !stats.Zero() {
					b.Fatalf("wrote %+v", stats)
				}
			}
		})
		b.Run("one/"+c.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c.rows[0] = policy(c.rows[0].ID, fmt.Sprintf("10.244.%d.3", i%250))
				if stats := apply(b, w, c.owner, c.rows...); stats.Updated != 1 {
					b.Fatalf("wrote %+v", stats)
				}
			}
		})
	}
}
