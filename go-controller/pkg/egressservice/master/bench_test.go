package master

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// snapshots are services that have endpoints/services endpoints each.
func snapshots(endpoints, services int) []egressservice.Snapshot {
	out := make([]egressservice.Snapshot, 0, services)
	for i := range services {
		name := fmt.Sprintf("svc-%d", i)
		var pods []string
		for j := range endpoints / services {
			n := i*endpoints/services + j
			pods = append(pods, fmt.Sprintf("10.244.%d.%d", n>>8&0xff, n&0xff))
		}
		out = append(out, egressservice.Snapshot{Egress: egress(name), Service: service(name, "5.5.5.5"),
			Slices: []*discoveryv1.EndpointSlice{slice(name, pods...)}})
	}
	return out
}

func benchNodes() []place.Node {
	var nodes []place.Node
	for i := range 100 {
		nodes = append(nodes, place.Node{Reach: place.Alive, Node: topology.Node{
			Name: fmt.Sprintf("node-%d", i), Ready: true, Labels: map[string]string{worker: ""},
			Subnets: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))},
		}})
	}
	return nodes
}

// plan is all planning, from objects to rows.
func plan(snaps []egressservice.Snapshot, nodes []place.Node) map[nb.Owner][]nb.Row {
	services := make([]egressservice.Service, 0, len(snaps))
	for _, s := range snaps {
		services = append(services, egressservice.Decode(s, cluster))
	}
	decisions := egressservice.Decide(nodes, services)
	rows := make(map[nb.Owner][]nb.Row, len(services))
	for _, s := range services {
		rows[egressservice.Owner(s.Key)] = egressservice.MasterRows(s, decisions[s.Key])
	}
	return rows
}

// raw writes the rows as one transaction that is ready to be sent, and returns
// how long the server took.
func raw(b *testing.B, rows map[nb.Owner][]nb.Row) time.Duration {
	b.Helper()
	s := ovsdbtest.StartNB(b)
	defer s.Kill()
	s.Nbctl("lr-add", topology.ClusterRouter)
	params, refs := []any{"OVN_Northbound"}, []any{}
	for o, list := range rows {
		for _, r := range list {
			m, name := r.Model.(*nbdb.LogicalRouterPolicy), fmt.Sprintf("r%d", len(refs))
			refs = append(refs, []any{"named-uuid", name})
			params = append(params, map[string]any{"op": "insert", "table": nbdb.LogicalRouterPolicyTable, "uuid-name": name,
				"row": map[string]any{"priority": m.Priority, "match": m.Match, "action": m.Action, "nexthops": m.Nexthops[0],
					"external_ids": []any{"map", [][]string{{"EgressSVC", o.Object}, {"owner", o.String()}, {"id", r.ID}}}}})
		}
	}
	params = append(params, map[string]any{"op": "mutate", "table": nbdb.LogicalRouterTable,
		"where":     []any{[]any{"name", "==", topology.ClusterRouter}},
		"mutations": []any{[]any{"policies", "insert", []any{"set", refs}}}})
	request, err := json.Marshal(map[string]any{"method": "transact", "params": params, "id": 1})
	if err != nil {
		b.Fatal(err)
	}
	conn, err := net.Dial("unix", strings.TrimPrefix(s.Socket(), "unix:"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	if _, err := conn.Write(request); err != nil {
		b.Fatal(err)
	}
	var reply struct {
		Result []struct{ Error, Details string }
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	for _, r := range reply.Result {
		if r.Error != "" {
			b.Fatalf("raw transaction refused: %s: %s", r.Error, r.Details)
		}
	}
	return took
}

// database is a fresh one with the cluster's router.
func database(b *testing.B) (*ovsdb.Writer, func()) {
	b.Helper()
	s := ovsdbtest.StartNB(b)
	s.Nbctl("lr-add", topology.ClusterRouter)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket()})
	if err != nil {
		b.Fatal(err)
	}
	return ovsdb.NewWriter(client), func() {
		client.Close()
		s.Kill()
	}
}

// write applies rows with as many workers as the controller has.
func write(b *testing.B, w nb.Writer, rows map[nb.Owner][]nb.Row) {
	b.Helper()
	owners := make(chan nb.Owner, len(rows))
	for o := range rows {
		owners <- o
	}
	close(owners)
	var wg sync.WaitGroup
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
}

// BenchmarkConverge plans and writes all endpoints from nothing, and compares
// with the same rows in one raw transaction: x-raw is the ratio.
func BenchmarkConverge(b *testing.B) {
	for _, c := range []struct{ endpoints, services int }{{1000, 1}, {1000, 100}, {10000, 1}, {10000, 1000}} {
		b.Run(fmt.Sprintf("endpoints=%d/services=%d", c.endpoints, c.services), func(b *testing.B) {
			snaps, nodes := snapshots(c.endpoints, c.services), benchNodes()
			var planned, ours, bulk time.Duration
			for range b.N {
				w, stop := database(b)
				start := time.Now()
				rows := plan(snaps, nodes)
				planned += time.Since(start)
				write(b, w, rows)
				ours += time.Since(start)
				n := 0
				for o := range rows {
					n += len(rows[o])
				}
				if n != c.endpoints || len(w.Owners(egressservice.Feature)) != c.services {
					b.Fatalf("%d rows of %d owners", n, len(w.Owners(egressservice.Feature)))
				}
				stop()
				bulk += raw(b, rows)
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(planned.Seconds()*1000/n, "plan-ms")
			b.ReportMetric(ours.Seconds()*1000/n, "all-ms")
			b.ReportMetric(bulk.Seconds()*1000/n, "raw-ms")
			b.ReportMetric(float64(ours)/float64(bulk), "x-raw")
		})
	}
}

// BenchmarkEndpointChange is one endpoint of ten that comes or goes while there
// are 1,000 services: one transaction, whatever the others are.
func BenchmarkEndpointChange(b *testing.B) {
	snaps, nodes := snapshots(10000, 1000), benchNodes()
	w, stop := database(b)
	defer stop()
	rows := plan(snaps, nodes)
	write(b, w, rows)
	svc := egressservice.Decode(snaps[0], cluster)
	d := egressservice.Decide(nodes, []egressservice.Service{svc})[svc.Key]
	for i := 0; b.Loop(); i++ {
		svc.Endpoints[0].Addr = netip.AddrFrom4([4]byte{10, 244, 250, byte(i)})
		stats, err := w.Apply(context.Background(), egressservice.Owner(svc.Key), egressservice.MasterRows(svc, d))
		if err != nil || i > 0 && stats != (nb.Stats{Inserted: 1, Deleted: 1}) {
			b.Fatalf("%+v, %v", stats, err)
		}
	}
}

// BenchmarkPlacement decides again for 1,000 services on 100 nodes, where
// nothing has changed and where all are new.
func BenchmarkPlacement(b *testing.B) {
	nodes := benchNodes()
	var services []egressservice.Service
	for _, s := range snapshots(10000, 1000) {
		services = append(services, egressservice.Decode(s, cluster))
	}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			egressservice.Decide(nodes, services)
		}
	})
	for i, s := range services {
		services[i].Host = egressservice.Decide(nodes, []egressservice.Service{s})[s.Key].Host
	}
	b.Run("steady", func(b *testing.B) {
		for b.Loop() {
			egressservice.Decide(nodes, services)
		}
	})
}
