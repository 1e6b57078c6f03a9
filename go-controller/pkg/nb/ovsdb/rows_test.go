package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// row makes a row without references.
func row(id string, parentTable, parentName string, m model.Model) nb.Row {
	return nb.Row{ID: id, Parent: nb.Parent{Table: parentTable, Name: parentName}, Model: m}
}

func onRouter(router, id string, m model.Model) nb.Row {
	return row(id, nbdb.LogicalRouterTable, router, m)
}

func onSwitch(sw, id string, m model.Model) nb.Row {
	return row(id, nbdb.LogicalSwitchTable, sw, m)
}

// nodeRows returns rows of every kind that a node has, three levels deep.
func nodeRows(node string) []nb.Row {
	gr, port := "GR_"+node, "rtoj-GR_"+node
	output := "rtoe-" + gr
	return []nb.Row{
		{ID: node, Model: &nbdb.LogicalSwitch{Name: node, OtherConfig: map[string]string{"subnet": "10.244.1.0/24"}},
			Refs: []nb.Ref{{Column: "load_balancer_group", Table: nbdb.LoadBalancerGroupTable, Name: "clusterLBGroup"}}},
		row(port+"-chassis", nbdb.LogicalRouterPortTable, port, &nbdb.GatewayChassis{Name: port + "-chassis", ChassisName: "c1", Priority: 1}),
		onSwitch(node, "stor", &nbdb.LogicalSwitchPort{Name: "stor-" + node, Type: "router", Addresses: []string{"router"}}),
		onRouter(gr, port, &nbdb.LogicalRouterPort{Name: port, MAC: "0a:58:64:40:00:02", Networks: []string{"100.64.0.2/16", "fd98::2/64"}}),
		onRouter(gr, output, &nbdb.LogicalRouterPort{Name: output, MAC: "0a:58:64:40:00:03", Networks: []string{"172.18.0.3/16"}}),
		onRouter(gr, "default", &nbdb.LogicalRouterStaticRoute{IPPrefix: "0.0.0.0/0", Nexthop: "172.18.0.1", OutputPort: &output}),
		onRouter(gr, "snat", &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.3", LogicalIP: "10.244.0.0/16"}),
		{ID: gr, Model: &nbdb.LogicalRouter{Name: gr, Options: map[string]string{"chassis": "c1"}, ExternalIDs: map[string]string{"physical_ip": "172.18.0.3"}}},
		{ID: "mac", Model: &nbdb.StaticMACBinding{LogicalPort: port, IP: "100.64.0.1", MAC: "0a:58:64:40:00:01"}},
	}
}

func clusterRows() []nb.Row {
	return []nb.Row{
		router("ovn_cluster_router"),
		{ID: "clusterLBGroup", Model: &nbdb.LoadBalancerGroup{Name: "clusterLBGroup"}},
	}
}

func TestNodeComesAndGoesAsAWhole(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, clusterRows()...)
	before, records := s.Dump(), s.Records()
	n1 := nb.Owner{Feature: "network", Object: "n1"}
	stats := apply(t, w, n1, nodeRows("n1")...)
	if want := (nb.Stats{Inserted: 9}); stats != want {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	if n := s.Records() - records; n != 1 {
		t.Errorf("node took %d transactions, want 1", n)
	}
	if got := s.Nbctl("get", "Logical_Switch", "n1", "load_balancer_group"); strings.TrimSpace(got) == "[]" {
		t.Error("switch is in no load balancer group")
	}
	if got := s.Nbctl("--bare", "--columns=gateway_chassis", "list", "Logical_Router_Port", "rtoj-GR_n1"); strings.TrimSpace(got) == "" {
		t.Error("router port has no gateway chassis")
	}
	if stats := apply(t, w, n1, nodeRows("n1")...); !stats.Zero() {
		t.Errorf("no-op wrote %+v", stats)
	}
	if stats := apply(t, w, n1); stats.Deleted != 9 {
		t.Errorf("stats %+v, want 9 deleted", stats)
	}
	if n := s.Records() - records; n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
	if after := s.Dump(); after != before {
		t.Errorf("left over:\n%s\nwant:\n%s", after, before)
	}
}

func TestRowMovesWithItsParent(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	o := nb.Owner{Feature: "network", Object: "n1"}
	nat := func(parent string) nb.Row {
		return onRouter(parent, "snat", &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.3", LogicalIP: "10.244.0.0/16"})
	}
	apply(t, w, o, router("a"), router("b"), nat("a"))
	if stats, want := apply(t, w, o, router("a"), router("b"), nat("b")), (nb.Stats{Inserted: 1, Deleted: 1}); stats != want {
		t.Errorf("move: %+v, want %+v", stats, want)
	}
	if a, b := s.Nbctl("lr-nat-list", "a"), s.Nbctl("lr-nat-list", "b"); strings.Contains(a, "snat") || !strings.Contains(b, "snat") {
		t.Errorf("NAT is not where it should be: a:\n%sb:\n%s", a, b)
	}
	// The same name with another ID is another router: its children move to it.
	reborn := router("b")
	reborn.ID = "b2"
	apply(t, w, o, router("a"), reborn, nat("b"))
	if b := s.Nbctl("lr-nat-list", "b"); !strings.Contains(b, "snat") {
		t.Errorf("NAT was lost with the old router:\n%s", b)
	}
	if stats := apply(t, w, o, router("a"), reborn, nat("b")); !stats.Zero() {
		t.Errorf("no-op wrote %+v", stats)
	}
}

func TestReferences(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, router("gr"))
	bfdOwner, routeOwner := nb.Owner{Feature: "bfd", Object: "n1"}, nb.Owner{Feature: "route", Object: "ns"}
	bfd := func(hop string) nb.Row {
		return nb.Row{ID: hop, Model: &nbdb.BFD{LogicalPort: "rtoe-gr", DstIP: hop}}
	}
	route := func(hop string) nb.Row {
		r := onRouter("gr", "10.244.1.5", &nbdb.LogicalRouterStaticRoute{IPPrefix: "10.244.1.5/32", Nexthop: hop})
		r.Refs = []nb.Ref{{Column: "bfd", Table: nbdb.BFDTable, Name: "rtoe-gr/" + hop}}
		return r
	}
	if err := applyError(t, w, routeOwner, route("fc00::9")); !errors.Is(err, nb.ErrNoParent) {
		t.Errorf("without the BFD row: %v, want ErrNoParent", err)
	}
	apply(t, w, bfdOwner, bfd("fc00::9"), bfd("172.18.0.9"))
	apply(t, w, routeOwner, route("fc00::9"))
	target := func() string {
		uuid := strings.TrimSpace(s.Nbctl("--bare", "--columns=bfd", "list", "Logical_Router_Static_Route"))
		if uuid == "" {
			return ""
		}
		return strings.TrimSpace(s.Nbctl("--bare", "--columns=dst_ip", "list", "BFD", uuid))
	}
	if got := target(); got != "fc00::9" {
		t.Errorf("route is watched by %q", got)
	}
	if stats := apply(t, w, routeOwner, route("fc00::9")); !stats.Zero() {
		t.Errorf("no-op wrote %+v", stats)
	}
	apply(t, w, routeOwner, route("172.18.0.9"))
	if got := target(); got != "172.18.0.9" {
		t.Errorf("route is watched by %q", got)
	}
	plain := route("172.18.0.9")
	plain.Refs = nil
	apply(t, w, routeOwner, plain)
	if got := target(); got != "" {
		t.Errorf("route is still watched by %q", got)
	}
}

func TestLoadBalancerJoinsItsGroup(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	o := nb.Owner{Feature: "service", Object: "ns/svc"}
	lb := func(table, parent string) nb.Row {
		return row("tcp", table, parent, &nbdb.LoadBalancer{Name: "ns/svc_TCP", Vips: map[string]string{"10.96.0.1:80": "10.244.0.5:80"}})
	}
	members := func(table, name string) int {
		return len(strings.Fields(s.Nbctl("--bare", "--columns=load_balancer", "list", table, name)))
	}
	apply(t, w, network, append(clusterRows(), nb.Row{ID: "join", Model: &nbdb.LogicalSwitch{Name: "join"}})...)
	apply(t, w, o, lb(nbdb.LoadBalancerGroupTable, "clusterLBGroup"))
	if stats := apply(t, w, o, lb(nbdb.LoadBalancerGroupTable, "clusterLBGroup")); !stats.Zero() {
		t.Errorf("no-op wrote %+v", stats)
	}
	if n := members("Load_Balancer_Group", "clusterLBGroup"); n != 1 {
		t.Errorf("group has %d members", n)
	}
	s.Nbctl("clear", "Load_Balancer_Group", "clusterLBGroup", "load_balancer")
	eventually.Succeeds(t, "the writer to see the empty group", func() error {
		if stats := apply(t, w, o, lb(nbdb.LoadBalancerGroupTable, "clusterLBGroup")); stats.Updated == 0 && members("Load_Balancer_Group", "clusterLBGroup") == 0 {
			return errors.New("still empty")
		}
		return nil
	})
	if n := members("Load_Balancer_Group", "clusterLBGroup"); n != 1 {
		t.Errorf("group has %d members after it was emptied by hand", n)
	}
	apply(t, w, o, lb(nbdb.LogicalSwitchTable, "join"))
	if g, sw := members("Load_Balancer_Group", "clusterLBGroup"), members("Logical_Switch", "join"); g != 0 || sw != 1 {
		t.Errorf("after the move: group %d, switch %d", g, sw)
	}
	apply(t, w, o)
	if sw := members("Logical_Switch", "join"); sw != 0 {
		t.Errorf("switch has %d load balancers left", sw)
	}
}

func TestExternalIDs(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	with := func(ids map[string]string) nb.Row {
		return nb.Row{ID: "r", Model: &nbdb.LogicalRouter{Name: "r", ExternalIDs: ids}}
	}
	ids := func() string { return strings.TrimSpace(s.Nbctl("get", "Logical_Router", "r", "external_ids")) }
	const own = `"k8s.ovn.org/id"=r, "k8s.ovn.org/name"="", "k8s.ovn.org/owner-controller"=ovnkube, "k8s.ovn.org/owner-type"=network`
	apply(t, w, network, with(map[string]string{"physical_ip": "1.2.3.4", "physical_ips": "1.2.3.4,::1"}))
	if got, want := ids(), `{`+own+`, physical_ip="1.2.3.4", physical_ips="1.2.3.4,::1"}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.Nbctl("set", "Logical_Router", "r", `external_ids:neutron\:name=x`, "external_ids:note=mine")
	eventually.Succeeds(t, "the note to be swept", func() error {
		apply(t, w, network, with(map[string]string{"physical_ip": "1.2.3.5"}))
		if got, want := ids(), `{`+own+`, "neutron:name"=x, physical_ip="1.2.3.5"}`; got != want {
			return fmt.Errorf("got  %s\nwant %s", got, want)
		}
		return nil
	})
	if err := applyError(t, w, network, with(map[string]string{"k8s.ovn.org/id": "forged"})); !strings.Contains(err.Error(), "k8s.ovn.org/id") {
		t.Errorf("planned id: %v", err)
	}
}

func TestColumnsOfOVNStay(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	port := onSwitch("sw", "p", &nbdb.LogicalSwitchPort{Name: "p", Addresses: []string{"dynamic"}})
	rows := []nb.Row{{ID: "sw", Model: &nbdb.LogicalSwitch{Name: "sw"}}, port}
	apply(t, w, network, rows...)
	s.Nbctl("set", "Logical_Switch_Port", "p", "up=true", "tag=7", "dynamic_addresses=x", "enabled=false")
	eventually.Succeeds(t, "enabled to be put back", func() error {
		apply(t, w, network, rows...)
		if got := strings.Join(strings.Fields(s.Nbctl("get", "Logical_Switch_Port", "p", "up", "tag", "dynamic_addresses", "enabled")), " "); got != `true 7 x []` {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
}

func TestForeignRowsAreLeftAlone(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	s.Nbctl("lr-add", "theirs", "--", "lr-policy-add", "theirs", "101", "ip4", "allow",
		"--", "create", "Address_Set", "name=set", "external_ids:k8s.ovn.org/owner-controller=default-network-controller",
		"external_ids:k8s.ovn.org/owner-type=egressservice", "external_ids:k8s.ovn.org/name=ns/svc", "external_ids:k8s.ovn.org/id=set")
	before := s.Dump()
	ours := []nb.Row{
		{ID: "ours", Model: &nbdb.AddressSet{Name: "ours", Addresses: []string{"10.0.0.1"}}},
		onRouter("theirs", "p", &nbdb.LogicalRouterPolicy{Priority: 101, Match: "ip6", Action: "allow"}),
	}
	eventually.Succeeds(t, "the foreign router to show up", func() error {
		_, err := w.Apply(context.Background(), svc, ours)
		return err
	})
	if list := s.Nbctl("lr-policy-list", "theirs"); strings.Count(list, "101") != 2 {
		t.Errorf("want their policy and ours:\n%s", list)
	}
	for _, clash := range []nb.Row{
		{ID: "set", Model: &nbdb.AddressSet{Name: "set"}},
		router("theirs"),
	} {
		err := applyError(t, w, svc, clash)
		if !errors.Is(err, nb.ErrConflict) || !strings.Contains(err.Error(), "not ours") {
			t.Errorf("clash: %v, want ErrConflict that says whose it is", err)
		}
	}
	apply(t, w, svc)
	if after := s.Dump(); after != before {
		t.Errorf("foreign rows changed:\n%s\nwere:\n%s", after, before)
	}
	other := nb.Owner{Feature: "other", Object: "o"}
	apply(t, w, svc, ours[0])
	err := applyError(t, w, other, nb.Row{ID: "x", Model: &nbdb.AddressSet{Name: "ours"}})
	if !errors.Is(err, nb.ErrConflict) || !strings.Contains(err.Error(), svc.String()) {
		t.Errorf("clash: %v, want ErrConflict that names %s", err, svc)
	}
}

func TestInvalidRows(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, router("ovn_cluster_router"))
	before := s.Dump()
	p := policy("10.244.0.5", "10.244.1.2")
	noID, noParent, wrongParent, badRef, badValue := p, p, p, p, p
	noID.ID, noParent.Parent, wrongParent.Parent = "", nb.Parent{}, nb.Parent{Table: nbdb.LogicalSwitchTable, Name: "x"}
	badRef.Refs = []nb.Ref{{Column: "nexthop", Table: nbdb.BFDTable, Name: "x"}}
	badValue.Model = &nbdb.LogicalRouterPolicy{Priority: 99999, Action: "allow"}
	for name, rows := range map[string][]nb.Row{
		"twice": {p, p}, "no id": {noID}, "no parent": {noParent}, "wrong parent": {wrongParent}, "wrong reference": {badRef},
		"no model": {{ID: "x"}}, "unknown table": {{ID: "x", Model: &nbdb.DNS{}}}, "refused by the server": {p, badValue},
		"identity of another owner": {{ID: "g", Model: &nbdb.LoadBalancerGroup{Name: "clusterLBGroup"}}},
	} {
		if err := applyError(t, w, svc, rows...); !strings.Contains(err.Error(), svc.String()) {
			t.Errorf("%s: %v does not name the owner", name, err)
		}
	}
	if after := s.Dump(); after != before {
		t.Errorf("refused rows were written:\n%s", after)
	}
}

// TestOneOwnersErrorIsNotAnothers lets many keys apply at once so that they share
// transactions, some of them with rows that the server rejects.
func TestOneOwnersErrorIsNotAnothers(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, router("ovn_cluster_router"))
	const n = 60
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			p := policy(fmt.Sprintf("10.244.0.%d", i), "10.244.1.2")
			if i%7 == 0 {
				p.Model.(*nbdb.LogicalRouterPolicy).Priority = 99999
			}
			_, err := w.Apply(context.Background(), nb.Owner{Feature: "egressservice", Object: fmt.Sprint(i)}, []nb.Row{p})
			if (err != nil) != (i%7 == 0) {
				t.Errorf("owner %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if got, want := strings.Count(s.Nbctl("lr-policy-list", "ovn_cluster_router"), " 101 "), n-(n+6)/7; got != want {
		t.Errorf("%d policies, want %d", got, want)
	}
}

// TestAwaited: adding, changing or deleting a UDP load balancer or a policy of an EgressIP, adding or changing a translation of an EgressIP or a policy of an EgressService that reroutes,
// and deleting a route by which OVN answers connections through the gateway they came from, increments nb_cfg in the same transaction.
func TestAwaited(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	s.Nbctl("init")
	s.Nbctl("lr-add", "gr")
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	balancer := func(protocol, to string) nb.Row {
		return nb.Row{ID: "lb", Model: &nbdb.LoadBalancer{Name: "lb", Protocol: &protocol, Vips: map[string]string{"10.96.0.9:80": to}}}
	}
	route := func(hop string, options map[string]string) nb.Row {
		return onRouter("gr", hop, &nbdb.LogicalRouterStaticRoute{IPPrefix: "10.244.0.3/32", Nexthop: hop, Options: options})
	}
	policy := func(priority int, action string) nb.Row {
		p := &nbdb.LogicalRouterPolicy{Priority: priority, Match: "ip4.src == 10.244.0.3", Action: action}
		if action == nbdb.LogicalRouterPolicyActionReroute {
			p.Nexthops = []string{"100.64.0.3"}
		}
		return onRouter("gr", "p", p)
	}
	nat := func(to, egressIP string) nb.Row {
		row := &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: to, LogicalIP: "10.244.0.3"}
		if egressIP != "" {
			row.ExternalIDs = map[string]string{"name": egressIP}
		}
		return onRouter("gr", "n", row)
	}
	symmetric := map[string]string{"ecmp_symmetric_reply": "true"}
	for _, c := range []struct {
		what string
		rows []nb.Row
		step int
	}{
		{"new", []nb.Row{balancer("udp", "10.244.0.3:80")}, 1},
		{"the same", []nb.Row{balancer("udp", "10.244.0.3:80")}, 0},
		{"other endpoints", []nb.Row{balancer("udp", "10.244.0.4:80")}, 1},
		{"gone", nil, 1},
		{"by TCP", []nb.Row{balancer("tcp", "10.244.0.3:80")}, 0},
		{"by TCP, other endpoints", []nb.Row{balancer("tcp", "10.244.0.4:80")}, 0},
		{"gateways", []nb.Row{route("172.18.0.51", symmetric), route("172.18.0.52", symmetric)}, 0},
		{"a gateway that is gone", []nb.Row{route("172.18.0.52", symmetric)}, 1},
		{"a usual route", []nb.Row{route("172.18.0.52", symmetric), route("172.18.0.1", nil)}, 0},
		{"a usual route that is gone", []nb.Row{route("172.18.0.52", symmetric)}, 0},
		{"all gateways gone", nil, 1},
		{"a policy", []nb.Row{policy(topology.PriorityEgressIP, "drop")}, 1},
		{"a policy that changes", []nb.Row{policy(topology.PriorityEgressIP, "allow")}, 1},
		{"a policy that is gone", nil, 1},
		{"a policy of an EgressService that drops", []nb.Row{policy(topology.PriorityEgressService, "drop")}, 0},
		{"that reroutes", []nb.Row{policy(topology.PriorityEgressService, "reroute")}, 1},
		{"that drops again", []nb.Row{policy(topology.PriorityEgressService, "drop")}, 0},
		{"one that is gone", nil, 0},
		{"a new one that reroutes", []nb.Row{policy(topology.PriorityEgressService, "reroute")}, 1},
		{"which is gone, too", nil, 0},
		{"another policy", []nb.Row{policy(topology.PriorityNoPod, "drop")}, 0},
		{"a translation", []nb.Row{nat("172.18.0.33", "prod")}, 1},
		{"a translation that changes", []nb.Row{nat("172.18.0.34", "prod")}, 1},
		{"a translation that is gone", nil, 0},
		{"a node's translation", []nb.Row{nat("172.18.0.3", "")}, 0},
	} {
		cfg := func() string { return strings.TrimSpace(s.Nbctl("get", "nb_global", ".", "nb_cfg")) }
		before, records := cfg(), s.Records()
		stats := apply(t, w, svc, c.rows...)
		if stepped := cfg() != before; stepped != (c.step == 1) {
			t.Errorf("%s: nb_cfg was %s and is %s", c.what, before, cfg())
		}
		if n := s.Records() - records; n > 1 || n == 0 && !stats.Zero() {
			t.Errorf("%s: %d transactions", c.what, n)
		}
	}
}

func TestSetGlobal(t *testing.T) {
	s := ovsdbtest.StartBlankNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	ctx := context.Background()
	set := func(name string, options map[string]string) {
		t.Helper()
		if err := w.SetGlobal(ctx, name, options, map[string]string{"theirs": "default", "d": "3"}); err != nil {
			t.Fatal(err)
		}
	}
	set("global", map[string]string{"a": "1"})
	s.Nbctl("set", "NB_Global", ".", "options:theirs=x")
	set("global", map[string]string{"a": "2", "b": "1"})
	records := s.Records()
	set("global", map[string]string{"a": "2", "b": "1", "c": ""})
	if n := s.Records() - records; n != 0 {
		t.Errorf("no-op took %d transactions", n)
	}
	set("", map[string]string{"b": ""})
	if got := strings.Join(strings.Fields(s.Nbctl("get", "NB_Global", ".", "name", "options")), " "); got != `global {a="2", d="3", theirs=x}` {
		t.Errorf("NB_Global is %s", got)
	}
}

func TestBump(t *testing.T) {
	s := ovsdbtest.StartBlankNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	if n, err := w.Bump(t.Context(), 0); err == nil {
		t.Errorf("raised to %d, though there is no row", n)
	}
	s.Nbctl("init")
	for want := 1; want <= 2; want++ {
		if n, err := w.Bump(t.Context(), 0); err != nil || n != want {
			t.Errorf("raised to %d, %v, want %d", n, err, want)
		}
	}
	for beyond, want := range []int{3, 4, 5} {
		if n, err := w.Bump(t.Context(), beyond); err != nil || n != want {
			t.Errorf("beyond %d: raised to %d, %v, want %d", beyond, n, err, want)
		}
	}
	if n, err := w.Bump(t.Context(), 5000); err != nil || n != 5001 {
		t.Errorf("beyond 5000: raised to %d, %v", n, err)
	}
}
