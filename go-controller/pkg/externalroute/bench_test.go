package externalroute

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// benchNodes is the number of nodes over which the pods are spread.
const benchNodes = 10

// load returns namespaces with a policy each.
func load(namespaces, podsEach, hopsEach int) state {
	s := dual(topology.GatewayLocal)
	s.namespaces, s.pods = nil, nil
	for i := range namespaces {
		name := fmt.Sprintf("ns%d", i)
		s.namespaces = append(s.namespaces, Namespace{Name: name, Labels: map[string]string{"name": name}})
		var hops []any
		for h := range hopsEach {
			hops = append(hops, static(fmt.Sprintf("172.18.%d.%d", 1+i, 1+h), bfd))
		}
		policy(name, 1, map[string]string{"name": name}, hops...)(&s)
		for p := range podsEach {
			n := i*podsEach + p
			s.pods = append(s.pods, Pod{Key: fmt.Sprintf("%s/p%d", name, p), Namespace: name,
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 244, byte(n % benchNodes), byte(3 + n/benchNodes)})}})
		}
	}
	return s
}

func benchNode(i int) topology.Node {
	n := testNode(0, topology.GatewayLocal)
	n.Name = fmt.Sprintf("node%d", i)
	return n
}

// plan returns the rows of each node.
func (s state) plan() map[string][]nb.Row {
	plan, rows := s.decide(), map[string][]nb.Row{}
	for i := range benchNodes {
		snap := NodeSnapshot{Node: benchNode(i)}
		for j, p := range s.pods {
			if j%benchNodes == i {
				snap.Pods = append(snap.Pods, p)
			}
		}
		rows[snap.Node.Name] = NodeRows(s.cfg, plan, snap)
	}
	return rows
}

func routers(b *testing.B) *ovsdbtest.Server {
	s := ovsdbtest.StartNB(b)
	args := []string{"lr-add", topology.ClusterRouter}
	for i := range benchNodes {
		args = append(args, "--", "lr-add", topology.GatewayRouter(benchNode(i).Name))
	}
	s.Nbctl(args...)
	return s
}

// ours plans and writes the rows of all nodes at once, and compares this with one raw
// transaction of the same rows, without and with a client that monitors.
func ours(b *testing.B, s state) (planning, total, raw, monitored time.Duration) {
	b.Helper()
	server := routers(b)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: server.Socket()})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	w := ovsdb.NewWriter(client)
	start := time.Now()
	rows := s.plan()
	planning = time.Since(start)
	want := make(map[nb.Owner][]nb.Row, len(rows))
	for node, list := range rows {
		want[Owner(node)] = list
	}
	if _, errs := w.ApplyAll(ctx, want); len(errs) > 0 {
		b.Fatal(errs)
	}
	total = time.Since(start)
	return planning, total, server.Bulk(false), server.Bulk(true)
}

// BenchmarkExternalGateways compares planning and writing with one raw bulk
// insert of the same rows on a separate server. x-raw is the ratio to the raw insert without a
// monitor, each the best of all rounds: other load on the machine can only
// make rounds longer.
func BenchmarkExternalGateways(b *testing.B) {
	for _, c := range []struct{ namespaces, pods, hops int }{{50, 20, 2}, {35, 60, 4}} {
		b.Run(fmt.Sprintf("%dx%dpods-x%dhops", c.namespaces, c.pods, c.hops), func(b *testing.B) {
			s := load(c.namespaces, c.pods, c.hops)
			planning, total, raw, monitored := time.Hour, time.Hour, time.Hour, time.Hour
			for range b.N {
				p, all, bare, heard := ours(b, s)
				planning, total, raw, monitored = min(planning, p), min(total, all), min(raw, bare), min(monitored, heard)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(raw.Seconds()*1000, "raw-ms")
			b.ReportMetric(monitored.Seconds()*1000, "monitored-ms")
			b.ReportMetric(planning.Seconds()*1000, "plan-ms")
			b.ReportMetric(total.Seconds()*1000, "ours-ms")
			b.ReportMetric(float64(total)/float64(raw), "x-raw")
		})
	}
}
