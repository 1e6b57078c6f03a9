package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestKernel: every rule reads back from the kernel as it was planned.
func TestKernel(t *testing.T) {
	ns := netnstest.New(t)
	chains := append(service.Chains(topology.Families), mgmt(topology.IPv4), mgmt(topology.IPv6))
	w, err := iptables.New(chains)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range scenarios() {
		for _, mode := range modes {
			want := service.NodeStateOf(c.decode(t), config, node(1, mode)).Rules
			if err := w.Apply(t.Context(), service.Feature, want); err != nil {
				t.Fatalf("%s-%s: %v", name, mode, err)
			}
			for _, chain := range chains {
				if got := rulesIn(ns, chain.ChainKey); got != lines(chain.Name, want[chain.ChainKey]) {
					t.Errorf("%s-%s: the kernel has\n%s\nplanned is\n%s", name, mode, got, lines(chain.Name, want[chain.ChainKey]))
				}
			}
		}
	}
}

func lines(chain string, rules []host.Rule) string {
	var out strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&out, "-A %s %s\n", chain, r)
	}
	return out.String()
}

func rulesIn(ns *netnstest.NS, key host.ChainKey) string {
	command := map[topology.Family]string{topology.IPv4: "iptables-save", topology.IPv6: "ip6tables-save"}[key.Family]
	var out strings.Builder
	for line := range strings.Lines(ns.Run(command, "-t", key.Table)) {
		if strings.HasPrefix(line, "-A "+key.Name+" ") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// world is a control plane with the cluster's switches and routers.
type world struct {
	*ovntrace.OVN
	t      *testing.T
	writer *ovsdb.Writer
}

func newWorld(t *testing.T, mode topology.GatewayMode) *world {
	w := &world{OVN: ovntrace.Start(t), t: t}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: w.NB.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w.writer = ovsdb.NewWriter(client)
	groups := []nb.Row{{ID: topology.ClusterRouter, Model: &nbdb.LogicalRouter{Name: topology.ClusterRouter}}}
	for _, g := range []string{topology.ClusterLBGroup, topology.ClusterSwitchLBGroup, topology.ClusterRouterLBGroup} {
		groups = append(groups, nb.Row{ID: g, Model: &nbdb.LoadBalancerGroup{Name: g}})
	}
	w.apply(nb.Owner{Feature: "network"}, groups)
	ref := func(name string) nb.Ref {
		return nb.Ref{Column: "load_balancer_group", Table: nbdb.LoadBalancerGroupTable, Name: name}
	}
	for _, n := range cluster(mode) {
		w.Chassis(n.Chassis, "172.18.0.9"+n.Name[1:])
		w.apply(nb.Owner{Feature: "network", Object: n.Name}, []nb.Row{
			{ID: n.Name, Refs: []nb.Ref{ref(topology.ClusterLBGroup), ref(topology.ClusterSwitchLBGroup)}, Model: &nbdb.LogicalSwitch{Name: n.Name}},
			{ID: "p-" + n.Name, Parent: nb.Parent{Table: nbdb.LogicalSwitchTable, Name: n.Name}, Model: &nbdb.LogicalSwitchPort{
				Name: "p-" + n.Name, Addresses: []string{"0a:58:00:00:00:01 10.244.9.9"},
			}},
			{
				ID: topology.GatewayRouter(n.Name), Refs: []nb.Ref{ref(topology.ClusterLBGroup), ref(topology.ClusterRouterLBGroup)},
				Model: &nbdb.LogicalRouter{Name: topology.GatewayRouter(n.Name), Options: map[string]string{"chassis": n.Chassis, "lb_force_snat_ip": "router_ip"}},
			},
		})
		w.apply(service.NodeOwner(n.Name), service.NodeRows(n, config))
	}
	w.apply(service.NodeOwner(""), service.ClusterRows(config))
	return w
}

func (w *world) apply(o nb.Owner, rows []nb.Row) nb.Stats {
	w.t.Helper()
	stats, err := w.writer.Apply(w.t.Context(), o, rows)
	if err != nil {
		w.t.Fatal(err)
	}
	return stats
}

// TestDatabase: every row reads back as it was planned, so that nothing is written again,
// and changing one kind of Service into another takes one transaction.
func TestDatabase(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode)
			for name, c := range scenarios() {
				rows := service.MasterRows(c.decode(t), config, facts(cluster(mode)))
				before := w.NB.RecordsOf(nbdb.LoadBalancerTable) // northd reports its progress in NB_Global
				w.apply(service.Owner("ns/svc"), rows)
				if n := w.NB.RecordsOf(nbdb.LoadBalancerTable) - before; n > 1 {
					t.Errorf("%s: %d transactions", name, n)
				}
				if stats := w.apply(service.Owner("ns/svc"), rows); !stats.Zero() {
					t.Errorf("%s: written again: %+v", name, stats)
				}
			}
			for _, n := range cluster(mode) {
				if stats := w.apply(service.NodeOwner(n.Name), service.NodeRows(n, config)); !stats.Zero() {
					t.Errorf("rows of node %s: written again: %+v", n.Name, stats)
				}
				w.apply(service.NodeOwner(n.Name), nil)
			}
			for _, table := range []string{nbdb.ForwardingGroupTable, nbdb.StaticMACBindingTable} {
				if left := strings.TrimSpace(w.NB.Nbctl("--bare", "--columns=_uuid", "list", table)); left != "" {
					t.Errorf("left behind in %s: %s", table, left)
				}
			}
			w.apply(service.Owner("ns/svc"), nil)
			if left := w.NB.Nbctl("--bare", "--columns=name", "find", "load_balancer", "name!=Service_local"); strings.TrimSpace(left) != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestTrace asks OVN where packets of a pod go.
func TestTrace(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	by := func(protocol, node, to string, port int) string {
		return w.Trace(node, fmt.Sprintf(`inport == "p-%s" && eth.src == 0a:58:00:00:00:01 && eth.dst == 0a:58:00:00:00:02 && `+
			`ip4.src == 10.244.9.9 && ip4.dst == %s && ip.ttl == 64 && %s.dst == %d`, node, to, protocol, port), "--detailed", "--ct=new", "--ct=new")
	}
	trace := func(node, to string, port int) string { return by("tcp", node, to, port) }
	set := func(name string) {
		w.apply(service.Owner("ns/svc"), service.MasterRows(scenarios()[name].decode(t), config, facts(cluster(topology.GatewayShared))))
	}
	const refusal = "tcp_reset"
	set("load-balancer")
	for _, to := range []string{"10.96.0.9", "5.5.5.5", "203.0.113.9"} {
		if got := trace("n3", to, 80); !strings.Contains(got, "backends=10.244.1.3:8080,10.244.2.3:8080") {
			t.Errorf("to %s:\n%s", to, got)
		}
	}
	set("protocols")
	for protocol, port := range map[string]int{"tcp": 53, "udp": 53, "sctp": 99} {
		to := map[string]string{"tcp": "10.244.1.3:1054", "udp": "10.244.1.3:1053", "sctp": "10.244.1.3:1055"}[protocol]
		if got := by(protocol, "n3", "10.96.0.9", port); !strings.Contains(got, "backends="+to) {
			t.Errorf("by %s:\n%s", protocol, got)
		}
	}
	set("no-endpoints")
	if got := trace("n1", "10.96.0.9", 80); !strings.Contains(got, refusal) {
		t.Errorf("without endpoints:\n%s", got)
	}
	set("internal-local")
	if got := trace("n1", "10.96.0.9", 80); !strings.Contains(got, "backends=10.244.1.3:8080)") {
		t.Errorf("on a node with an endpoint:\n%s", got)
	}
	for node, port := range map[string]int{"n3": 80, "n1": 81} {
		if got := trace(node, "10.96.0.9", port); !strings.Contains(got, refusal) {
			t.Errorf("on %s, port %d:\n%s", node, port, got)
		}
	}
	if got := trace("n1", "169.254.169.3", 30080); !strings.Contains(got, refusal) {
		t.Errorf("to local endpoints that are not there:\n%s", got)
	}
}
