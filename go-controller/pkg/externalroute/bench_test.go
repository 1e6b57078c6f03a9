package externalroute

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// benchNodes is how many nodes the pods are spread over.
const benchNodes = 10

// load is namespaces with a policy each.
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

// raw writes the routes, sessions, policies and sets, external_ids and all, as
// one transaction that is ready to be sent.
func raw(b *testing.B, rows map[string][]nb.Row) time.Duration {
	b.Helper()
	s := routers(b)
	params, refs, bfds := []any{"OVN_Northbound"}, map[nb.Parent][]any{}, map[string]any{}
	insert := func(node string, row nb.Row, table string, columns map[string]any) []any {
		name := []any{"named-uuid", fmt.Sprintf("r%d", len(params))}
		columns["external_ids"] = []any{"map", [][]string{{"k8s.ovn.org/owner-controller", "ovnkube"},
			{"k8s.ovn.org/owner-type", Feature}, {"k8s.ovn.org/name", node}, {"k8s.ovn.org/id", row.ID + "@" + row.Parent.Name}}}
		params = append(params, map[string]any{"op": "insert", "table": table, "uuid-name": name[1], "row": columns})
		if row.Parent != (nb.Parent{}) {
			refs[row.Parent] = append(refs[row.Parent], name)
		}
		return name
	}
	for _, pass := range []bool{true, false} { // what is referred to goes first
		for node, list := range rows {
			for _, row := range list {
				switch m := row.Model.(type) {
				case *nbdb.BFD:
					if pass {
						bfds[m.LogicalPort+"/"+m.DstIP] = insert(node, row, nbdb.BFDTable, map[string]any{"logical_port": m.LogicalPort, "dst_ip": m.DstIP})
					}
				case *nbdb.AddressSet:
					if pass {
						insert(node, row, nbdb.AddressSetTable, map[string]any{"name": m.Name, "addresses": []any{"set", m.Addresses}})
					}
				case *nbdb.LogicalRouterPolicy:
					if pass {
						insert(node, row, nbdb.LogicalRouterPolicyTable, map[string]any{"priority": m.Priority, "match": m.Match,
							"action": m.Action, "nexthops": m.Nexthops[0]})
					}
				case *nbdb.LogicalRouterStaticRoute:
					if !pass {
						insert(node, row, nbdb.LogicalRouterStaticRouteTable, map[string]any{"ip_prefix": m.IPPrefix, "nexthop": m.Nexthop,
							"policy": *m.Policy, "output_port": *m.OutputPort, "options": []any{"map", [][]string{{"ecmp_symmetric_reply", "true"}}},
							"bfd": bfds[row.Refs[0].Name]})
					}
				}
			}
		}
	}
	for parent, set := range refs {
		column := "static_routes"
		if parent.Name == topology.ClusterRouter {
			column = "policies"
		}
		params = append(params, map[string]any{"op": "mutate", "table": parent.Table, "where": []any{[]any{"name", "==", parent.Name}},
			"mutations": []any{[]any{column, "insert", []any{"set", set}}}})
	}
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
		Error  any `json:"error"`
		Result []struct {
			Error, Details string
		} `json:"result"`
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start)
	for _, r := range reply.Result {
		if r.Error != "" {
			b.Fatal(r.Error, r.Details)
		}
	}
	return took
}

// ours plans and writes the same rows through the writer, all nodes at once.
func ours(b *testing.B, s state) (planning, total time.Duration) {
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
	var group errgroup.Group
	for node, list := range rows {
		group.Go(func() error {
			_, err := w.Apply(ctx, Owner(node), list)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return planning, time.Since(start)
}

// BenchmarkExternalGateways compares planning and writing with one raw bulk
// insert of the same rows.
func BenchmarkExternalGateways(b *testing.B) {
	for _, c := range []struct{ namespaces, pods, hops int }{{50, 20, 2}, {35, 60, 4}} {
		b.Run(fmt.Sprintf("%dx%dpods-x%dhops", c.namespaces, c.pods, c.hops), func(b *testing.B) {
			s := load(c.namespaces, c.pods, c.hops)
			var bulk, planning, total time.Duration
			for range b.N {
				bulk += raw(b, s.plan())
				p, all := ours(b, s)
				planning, total = planning+p, total+all
			}
			b.ReportMetric(float64(bulk.Milliseconds())/float64(b.N), "raw-ms")
			b.ReportMetric(float64(planning.Milliseconds())/float64(b.N), "plan-ms")
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ours-ms")
			b.ReportMetric(float64(total)/float64(bulk), "ratio")
		})
	}
}
