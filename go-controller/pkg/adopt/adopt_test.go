package adopt

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// row makes a row from "parent name" and columns "name=value", for maps "column:key=value".
func row(table, parent string, columns ...string) nb.Stored {
	r := nb.Stored{Table: table, Sets: map[string][]string{}, Maps: map[string]map[string]string{}}
	if parent != "" {
		r.Parents = []nb.Parent{{Table: parents[table], Name: parent}}
	}
	for _, c := range columns {
		column, value, _ := strings.Cut(c, "=")
		if column, key, ok := strings.Cut(column, ":"); ok {
			if r.Maps[column] == nil {
				r.Maps[column] = map[string]string{}
			}
			r.Maps[column][key] = value
			continue
		}
		r.Sets[column] = append(r.Sets[column], value)
	}
	return r
}

var parents = map[string]string{
	nbdb.LogicalRouterPortTable: nbdb.LogicalRouterTable, nbdb.LogicalSwitchPortTable: nbdb.LogicalSwitchTable,
	nbdb.LogicalRouterStaticRouteTable: nbdb.LogicalRouterTable, nbdb.LogicalRouterPolicyTable: nbdb.LogicalRouterTable,
	nbdb.NATTable: nbdb.LogicalRouterTable, nbdb.GatewayChassisTable: nbdb.LogicalRouterPortTable, nbdb.LoadBalancerTable: nbdb.LoadBalancerGroupTable,
}

// cluster is a cluster with a node n and a pod ns/p.
func cluster(more ...nb.Stored) []nb.Stored {
	rows := append([]nb.Stored{
		row(nbdb.LogicalRouterTable, "", "name=ovn_cluster_router"),
		row(nbdb.LogicalRouterPortTable, topology.ClusterRouter, "name=rtoj-ovn_cluster_router", "networks=100.64.0.1/16"),
		row(nbdb.LogicalRouterPortTable, topology.ClusterRouter, "name=rtos-n", "networks=10.244.1.1/24", "networks=fd00:10:244:2::1/64"),
		row(nbdb.LogicalSwitchTable, "", "name=n"),
		row(nbdb.LogicalRouterTable, "", "name=GR_n", "options:chassis=c"),
		row(nbdb.LogicalRouterPortTable, "GR_n", "name=rtoj-GR_n", "networks=100.64.0.4/16"),
		row(nbdb.LogicalRouterPortTable, "GR_n", "name=rtoe-GR_n", "networks=172.18.0.3/16"),
		row(nbdb.LogicalSwitchPortTable, "n", "name=ns_p", "addresses=0a:58:0a:f4:01:03 10.244.1.3 fd00:10:244:2::3", "external_ids:namespace=ns", "external_ids:pod=true"),
	}, more...)
	for i := range rows {
		rows[i].UUID = string(rune('A' + i))
	}
	return rows
}

const (
	policy = nbdb.LogicalRouterPolicyTable
	route  = nbdb.LogicalRouterStaticRouteTable
	port   = nbdb.LogicalSwitchPortTable
	nat    = nbdb.NATTable
)

func TestUnderstood(t *testing.T) {
	router := topology.ClusterRouter
	for _, tc := range []struct {
		row  nb.Stored
		want string // "feature/object: id", without the id if replaced; empty if left alone
	}{
		{row(nbdb.LogicalSwitchTable, "", "name=join"), "network/: join"},
		{row(nbdb.LogicalSwitchTable, "", "name=ext_n"), "network/n: ext_n"},
		{row(nbdb.LogicalSwitchTable, "", "name=ext_other"), ""},
		{row(nbdb.LogicalSwitchTable, "", "name=exgw-ext_n"), "network/n: exgw-ext_n"},
		{row(nbdb.LogicalSwitchTable, "", "name=exgw-ext_other"), ""},
		{row(nbdb.LogicalRouterPortTable, "GR_n", "name=exgw-rtoe-GR_n", "networks=192.168.50.3/24"), "network/n: exgw-rtoe-GR_n"},
		{row(nbdb.LogicalSwitchTable, "", "name=other"), ""},
		{row(nbdb.LogicalRouterTable, "", "name=GR_other"), ""},
		{row(port, "n", "name=k8s-n"), "network/n: k8s-n"},
		{row(port, "ext_n", "name=breth0_n", "type=localnet"), "network/n: breth0_n"},
		{row(port, "other", "name=breth0_n", "type=localnet"), ""},
		{row(port, "exgw-ext_n", "name=breth1_n", "type=localnet"), "network/n: breth1_n"},
		{row(port, "exgw-ext_n", "name=exgw-etor-GR_n", "type=router"), "network/n: exgw-etor-GR_n"},
		{row(port, "exgw-ext_n", "name=vm"), ""},
		{row(port, "n", "name=ns_q", "external_ids:namespace=ns", "external_ids:pod=true"), "pod/ns/q: ns_q"},
		{row(port, "n", "name=vm"), ""},
		{row(port, "n", "name=ns_q", "external_ids:namespace=ns"), ""},
		{row(port, "n", "name=q", "external_ids:namespace=ns", "external_ids:pod=true"), ""},
		{row(port, "other", "name=ns_q", "external_ids:namespace=ns", "external_ids:pod=true"), ""},
		{row(nbdb.GatewayChassisTable, "rtos-n", "name=rtos-n-c"), "network/n: rtos-n-c"},
		{row(nbdb.GatewayChassisTable, "mine", "name=mine-c"), ""},

		{row(route, router, "ip_prefix=100.64.0.4/32", "nexthop=100.64.0.4"), "network/n: 100.64.0.4 via 100.64.0.4"},
		{row(route, router, "ip_prefix=100.64.0.9", "nexthop=100.64.0.9"), ""},
		{row(route, router, "ip_prefix=10.244.1.0/24", "nexthop=10.244.1.2", "policy=src-ip"), "network/n: src-ip 10.244.1.0/24 via 10.244.1.2"},
		{row(route, router, "ip_prefix=10.244.1.0/24", "nexthop=192.0.2.1"), ""},
		{row(route, router, "ip_prefix=10.244.9.0/24", "nexthop=100.64.0.9", "policy=src-ip"), ""},
		{row(route, router, "ip_prefix=10.244.1.0/24", "nexthop=discard", "policy=src-ip"), ""},
		{row(route, "GR_n", "ip_prefix=0.0.0.0/0", "nexthop=172.18.0.1", "output_port=rtoe-GR_n"), "network/n: 0.0.0.0/0 via 172.18.0.1"},
		{row(route, "GR_n", "ip_prefix=0.0.0.0/0", "nexthop=172.18.0.1"), ""},
		{row(route, "GR_n", "ip_prefix=10.244.0.0/16", "nexthop=100.64.0.1"), "network/n: 10.244.0.0/16 via 100.64.0.1"},
		{row(route, "GR_n", "ip_prefix=192.0.2.0/24", "nexthop=100.64.0.1"), ""},
		{row(route, "GR_n", "ip_prefix=10.244.1.3/32", "nexthop=172.18.0.9", "policy=src-ip", "output_port=rtoe-GR_n"), "externalroute/n: 10.244.1.3 via 172.18.0.9"},
		{row(route, "GR_n", "ip_prefix=192.0.2.0/24", "nexthop=172.18.0.9", "output_port=rtoe-GR_n"), ""},
		{row(route, "GR_n", "ip_prefix=10.244.1.3/32", "nexthop=192.168.50.9", "policy=src-ip", "output_port=exgw-rtoe-GR_n"), "externalroute/n: 10.244.1.3 via 192.168.50.9"},
		{row(route, "GR_n", "ip_prefix=fd00:10:244:2::3/128", "nexthop=fd00:50::9", "policy=src-ip", "output_port=exgw-rtoe-GR_n"), "externalroute/n: fd00:10:244:2::3 via fd00:50::9"},
		{row(route, "GR_n", "ip_prefix=0.0.0.0/0", "nexthop=192.168.50.1", "output_port=exgw-rtoe-GR_n"), ""}, // that uplink is for gateways only
		{row(route, "mine", "ip_prefix=0.0.0.0/0", "nexthop=172.18.0.1", "output_port=rtoe-GR_n"), ""},

		{row(policy, router, "priority=1004", `match=inport == "rtos-n" && ip4.dst == 172.18.0.3 /* n */`), "network/n: 172.18.0.3"},
		{row(policy, router, "priority=1004", `match=inport == "rtos-other" && ip4.dst == 172.18.0.3 /* n */`), ""},
		{row(policy, router, "priority=1004", `match=ip4.dst == 172.18.0.3`), ""},
		{row(policy, router, "priority=501", `match=inport == "rtos-n" && ip6.src == $a1 && ip6.dst != fd00:10:244::/48`), "externalroute/n: hybrid ip6"},
		{row(policy, router, "priority=102", `match=ip4.src == 10.244.0.0/16 && ip4.dst == 100.64.0.0/16`),
			"noreroute/policies: ip4.src == 10.244.0.0/16 && ip4.dst == 100.64.0.0/16"},
		{row(policy, router, "priority=102", `match=ip4.src == 192.0.2.0/24 && ip4.dst == 100.64.0.0/16`), ""},
		{row(policy, router, "priority=102", `match=(ip4.src == $a1 || ip4.src == $a2) && ip4.dst == $a3`), "noreroute/policies"},
		{row(policy, router, "priority=102", `match=ip4`), ""},
		{row(policy, router, "priority=101", "match=ip4.src == 10.244.1.3", "external_ids:EgressSVC=ns/s"), "egressservice/ns/s: 10.244.1.3"},
		{row(policy, router, "priority=101", "match=ip4.src == 10.244.1.3"), ""},
		{row(policy, router, "priority=100", "match=ip6.src == fd00:10:244:2::3", "external_ids:name=prod"), "egressip/ns/p: fd00:10:244:2::3"},
		{row(policy, router, "priority=100", "match=ip4.src == 10.244.1.9", "external_ids:name=prod"), "egressip/gone_/10.244.1.9: 10.244.1.9"},
		{row(policy, router, "priority=100", "match=ip4.src == 10.244.1.3"), ""},
		{row(policy, router, "priority=100", "match=ip4", "external_ids:name=prod"), ""},
		{row(policy, router, "priority=7", "match=ip4.src == 10.244.1.3", "external_ids:name=prod"), ""},
		{row(policy, "GR_n", "priority=100", "match=ip4.src == 10.244.1.3", "external_ids:name=prod"), ""},

		{row(nat, "GR_n", "type=snat", "external_ip=172.18.0.3", "logical_ip=10.244.0.0/16"), "network/n: 10.244.0.0/16"},
		{row(nat, "GR_n", "type=snat", "external_ip=172.18.0.3", "logical_ip=10.244.1.3"), "pod/ns/p: 10.244.1.3"},
		{row(nat, "GR_n", "type=snat", "external_ip=172.18.0.3", "logical_ip=192.0.2.0/24"), ""},
		{row(nat, "GR_n", "type=snat", "external_ip=172.18.0.9", "logical_ip=10.244.0.0/16"), ""},
		{row(nat, "GR_n", "type=dnat_and_snat", "external_ip=172.18.0.3", "logical_ip=10.244.1.3"), ""},
		{row(nat, "GR_n", "type=snat", "external_ip=172.18.0.9", "logical_ip=10.244.1.3", "logical_port=k8s-n", "external_ids:name=prod"), "egressip/ns/p: 10.244.1.3@n"},
		{row(nat, "GR_n", "type=snat", "external_ip=172.18.0.3", "logical_ip=10.244.1.3", "logical_port=k8s-n"), ""},
		{row(nat, "mine", "type=snat", "external_ip=172.18.0.3", "logical_ip=10.244.0.0/16"), ""},

		{row(nbdb.BFDTable, "", "logical_port=rtoe-GR_n", "dst_ip=172.18.0.9"), "externalroute/n: 172.18.0.9"},
		{row(nbdb.BFDTable, "", "logical_port=exgw-rtoe-GR_n", "dst_ip=192.168.50.9"), "externalroute/n: 192.168.50.9"},
		{row(nbdb.BFDTable, "", "logical_port=exgw-rtoe-GR_other", "dst_ip=192.168.50.9"), ""},
		{row(nbdb.BFDTable, "", "logical_port=mine", "dst_ip=172.18.0.9"), ""},
		{row(nbdb.LoadBalancerTable, "clusterLBGroup", "name=Service_ns/s_TCP_cluster"), "service/ns/s: TCP cluster"},
		{row(nbdb.LoadBalancerTable, "", "name=Service_ns/s_TCP_cluster"), "service/ns/s"},
		{row(nbdb.LoadBalancerTable, "clusterLBGroup", "name=Service_ns"), ""},
		{row(nbdb.LoadBalancerTable, "clusterLBGroup", "name=mine"), ""},
		{row(nbdb.ChassisTemplateVarTable, "", "chassis=c"), "service-nodes/n: c"},
		{row(nbdb.ChassisTemplateVarTable, "", "chassis=mine"), ""},
		{row(nbdb.ACLTable, "", "priority=1001", "match=ip4"), ""},
	} {
		t.Run(tc.row.Table+" "+Name(tc.row), func(t *testing.T) {
			rows := cluster(tc.row)
			got := ""
			l := List(Config{}, rows)
			for _, u := range l.Understood {
				if u.Row.UUID != rows[len(rows)-1].UUID {
					continue
				}
				got = u.Mark.Owner.String()
				if !u.Replaced {
					got += ": " + u.Mark.ID
				}
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
			if n := len(l.Understood) + len(l.Left) + l.Ours; n != len(rows) {
				t.Errorf("%d of %d rows are listed", n, len(rows))
			}
		})
	}
}

// TestTranslationsOfPods: which feature translates single pods depends on the configuration.
func TestTranslationsOfPods(t *testing.T) {
	rows := cluster(row(nat, "GR_n", "type=snat", "external_ip=172.18.0.3", "logical_ip=10.244.1.3"))
	for _, u := range List(Config{MultiExternalGateway: true}, rows).Understood {
		if u.Row.Table == nat && u.Mark.Owner.String() != "externalroute/n" {
			t.Errorf("the owner is %s", u.Mark.Owner)
		}
	}
}

// TestAddressSets: a set has the owner of the rows that refer to it, if all of them are understood.
func TestAddressSets(t *testing.T) {
	match := "match=(ip4.src == $a1 || ip4.src == $a2) && ip4.dst == $a3"
	set := func(name string) nb.Stored { return row(nbdb.AddressSetTable, "", "name="+name) }
	l := List(Config{}, cluster(
		row(policy, topology.ClusterRouter, "priority=102", match), set("a1"), set("a2"), set("a3"), set("a4"),
		row(nbdb.ACLTable, "", "match=ip4.src == $a2"),
	))
	var taken, left []string
	for _, u := range l.Understood {
		if u.Row.Table == nbdb.AddressSetTable {
			taken = append(taken, Name(u.Row))
			if !u.Replaced || u.Mark.ID == "" {
				t.Errorf("set %s is marked as %+v", Name(u.Row), u.Mark)
			}
		}
	}
	for _, r := range l.Left {
		if r.Row.Table == nbdb.AddressSetTable {
			left = append(left, Name(r.Row))
		}
	}
	if strings.Join(taken, " ") != "a1 a3" || strings.Join(left, " ") != "a2 a4" {
		t.Errorf("understood %v, left %v", taken, left)
	}
}

// TestOurs: rows that are ours are counted, and not marked again.
func TestOurs(t *testing.T) {
	rows := cluster()
	rows[0].Owner = &nb.Owner{Feature: "network"}
	l := List(Config{}, rows)
	if l.Ours != 1 || len(l.Understood) != len(rows)-1 {
		t.Errorf("%d are ours, %d understood, of %d", l.Ours, len(l.Understood), len(rows))
	}
}

func TestEmpty(t *testing.T) {
	var out bytes.Buffer
	List(Config{}, nil).Text(&out)
	if want := "Rows of ovnkube: 0\nRows that are understood: 0\nRows that are not understood, and stay as they are: 0\n"; out.String() != want {
		t.Errorf("got:\n%s", out.String())
	}
}
