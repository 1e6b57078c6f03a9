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
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// snapshots returns services with endpoints/services endpoints each.
func snapshots(endpoints, services int) []egressservice.Snapshot {
	out := make([]egressservice.Snapshot, 0, services)
	for i := range services {
		name := fmt.Sprintf("svc-%d", i)
		var pods []string
		for j := range endpoints / services {
			n := i*endpoints/services + j
			pods = append(pods, fmt.Sprintf("10.244.%d.%d", n>>8&0xff, n&0xff))
		}
		out = append(out, egressservice.Snapshot{Egress: egress(name), Service: service(name, fmt.Sprintf("5.5.%d.%d", i>>8, i&0xff)),
			Pod:    func(netip.Addr) (string, bool) { return "node-0", true },
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

// plan does all planning, from objects to rows.
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

// database returns a fresh database with the cluster router.
func database(b *testing.B) (*ovsdb.Writer, *ovsdbtest.Server, func()) {
	b.Helper()
	s := ovsdbtest.StartNB(b)
	s.Nbctl("lr-add", topology.ClusterRouter)
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Bound)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket()})
	if err != nil {
		b.Fatal(err)
	}
	return ovsdb.NewWriter(client), s, func() {
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

// BenchmarkConverge plans and writes all endpoints from nothing, and compares this
// with the same rows in one raw transaction, on a server without and with a client
// that monitors: x-raw is the ratio of the best round to the best raw round without a monitor.
func BenchmarkConverge(b *testing.B) {
	for _, c := range []struct{ endpoints, services int }{{1000, 1}, {1000, 100}, {10000, 1}, {10000, 1000}} {
		b.Run(fmt.Sprintf("endpoints=%d/services=%d", c.endpoints, c.services), func(b *testing.B) {
			snaps, nodes := snapshots(c.endpoints, c.services), benchNodes()
			planned, ours, raw, monitored := time.Hour, time.Hour, time.Hour, time.Hour
			for range b.N {
				w, s, stop := database(b)
				start := time.Now()
				rows := plan(snaps, nodes)
				planned = min(planned, time.Since(start))
				write(b, w, rows)
				ours = min(ours, time.Since(start))
				n := 0
				for o := range rows {
					n += len(rows[o])
				}
				if n != c.endpoints || len(w.Owners(egressservice.Feature)) != c.services {
					b.Fatalf("%d rows of %d owners", n, len(w.Owners(egressservice.Feature)))
				}
				raw, monitored = min(raw, s.Bulk(false)), min(monitored, s.Bulk(true))
				stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(planned.Seconds()*1000, "plan-ms")
			b.ReportMetric(raw.Seconds()*1000, "raw-ms")
			b.ReportMetric(monitored.Seconds()*1000, "monitored-ms")
			b.ReportMetric(ours.Seconds()*1000, "all-ms")
			b.ReportMetric(float64(ours)/float64(raw), "x-raw")
		})
	}
}

// BenchmarkEndpointChange adds or removes one endpoint of ten while there
// are 1,000 services: it takes one transaction, regardless of the others.
func BenchmarkEndpointChange(b *testing.B) {
	snaps, nodes := snapshots(10000, 1000), benchNodes()
	w, _, stop := database(b)
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

// watched counts the transactions that change policies, and the policies deleted
// or inserted in them.
type watched struct {
	conn                         net.Conn
	decoder                      *json.Decoder
	transactions, updated, other int
}

func watch(b *testing.B, socket string) *watched {
	b.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(socket, "unix:"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	w := &watched{conn: conn, decoder: json.NewDecoder(conn)}
	const request = `{"method":"monitor","id":1,"params":["OVN_Northbound",null,{"Logical_Router_Policy":{"columns":["nexthops"]}}]}`
	if _, err := conn.Write([]byte(request)); err != nil {
		b.Fatal(err)
	}
	var reply struct{ Error any }
	if err := w.decoder.Decode(&reply); err != nil || reply.Error != nil {
		b.Fatal(reply.Error, err)
	}
	return w
}

// until reads until the given number of policies has changed.
func (w *watched) until(b *testing.B, touched int) {
	b.Helper()
	for w.updated+w.other < touched {
		var m struct {
			Method string
			Params []json.RawMessage
		}
		if err := w.decoder.Decode(&m); err != nil {
			b.Error(err)
			return
		}
		if m.Method != "update" {
			continue
		}
		var tables map[string]map[string]struct{ Old, New any }
		if err := json.Unmarshal(m.Params[1], &tables); err != nil {
			b.Error(err)
			return
		}
		w.transactions++
		for _, row := range tables[nbdb.LogicalRouterPolicyTable] {
			if row.Old != nil && row.New != nil {
				w.updated++
			} else {
				w.other++
			}
		}
	}
}

// BenchmarkFailover moves the 250 services of a node, out of 1,000, with 10 endpoints
// each: every policy is updated in place, and none is ever missing.
func BenchmarkFailover(b *testing.B) {
	const moved, each = 250, 10
	snaps, nodes := snapshots(1000*each, 1000), benchNodes()
	s := ovsdbtest.StartNB(b)
	s.Nbctl("lr-add", topology.ClusterRouter)
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Bound)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket()})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	w := ovsdb.NewWriter(client)
	write(b, w, plan(snaps, nodes))
	hosts := []egressservice.Decision{{Host: "a", NextHops: nodes[0].ManagementAddrs()}, {Host: "b", NextHops: nodes[1].ManagementAddrs()}}
	to := func(d egressservice.Decision) map[nb.Owner][]nb.Row {
		rows := map[nb.Owner][]nb.Row{}
		for _, snap := range snaps[:moved] {
			s := egressservice.Decode(snap, cluster)
			rows[egressservice.Owner(s.Key)] = egressservice.MasterRows(s, d)
		}
		return rows
	}
	write(b, w, to(hosts[1]))
	seen := watch(b, s.Socket())
	n := 0
	for i := 0; b.Loop(); i++ {
		n++
		// The server sends a lagging reader only the combined changes.
		read := make(chan struct{})
		go func() {
			defer close(read)
			seen.until(b, n*moved*each)
		}()
		write(b, w, to(hosts[i%2]))
		<-read
	}
	b.StopTimer()
	if seen.other > 0 {
		b.Errorf("%d policies were deleted or made anew", seen.other)
	}
	b.ReportMetric(float64(seen.transactions)/float64(n), "transactions")
	b.ReportMetric(float64(seen.updated)/float64(n), "updated")
}

// BenchmarkPlacement repeats the decisions for 1,000 services on 100 nodes, with
// no changes and with only new services.
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
