package app

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/adopt"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// reference writes the northbound database of another implementation as documented, for a
// dual-stack cluster of two nodes in shared gateway mode.
type reference struct {
	*ovsdbtest.Server
	t *testing.T
}

// nbctl runs a command whose words are separated by semicolons.
func (r reference) nbctl(format string, args ...any) string {
	return strings.TrimSpace(r.Nbctl(strings.Split(fmt.Sprintf(format, args...), ";")...))
}

func (r reference) cluster() {
	r.nbctl("lr-add;ovn_cluster_router;--;set;Logical_Router;ovn_cluster_router;external_ids:k8s-cluster-router=yes;options:always_learn_from_arp_request=false")
	r.nbctl("ls-add;join")
	r.nbctl("lrp-add;ovn_cluster_router;rtoj-ovn_cluster_router;0a:58:64:40:00:01;100.64.0.1/16;fd98::1/64")
	r.routerPort("join", "jtor-ovn_cluster_router", "rtoj-ovn_cluster_router")
	for _, g := range []string{"clusterLBGroup", "clusterSwitchLBGroup", "clusterRouterLBGroup"} {
		r.nbctl("create;Load_Balancer_Group;name=%s", g)
	}
	for i, family := range []string{"4", "6"} {
		cluster, join := []string{"10.244.0.0/16", "fd00:10:244::/48"}[i], []string{"100.64.0.0/16", "fd98::/64"}[i]
		for _, dst := range []string{cluster, join} {
			r.nbctl("lr-policy-add;ovn_cluster_router;102;ip%[1]s.src == %[2]s && ip%[1]s.dst == %[3]s;allow", family, cluster, dst)
		}
		for _, set := range []string{"a4548040316634674295", "a13607449821398607916", "a14918748166599097711"} {
			r.nbctl("create;Address_Set;name=%s_%s", set, family)
		}
		r.nbctl("lr-policy-add;ovn_cluster_router;102;(ip%[1]s.src == $a4548040316634674295_%[1]s || ip%[1]s.src == $a13607449821398607916_%[1]s) && "+
			"ip%[1]s.dst == $a14918748166599097711_%[1]s;allow;pkt_mark=1008", family)
	}
}

func (r reference) routerPort(on, name, peer string) {
	r.nbctl("lsp-add;%s;%[2]s;--;lsp-set-type;%[2]s;router;--;lsp-set-addresses;%[2]s;router;--;lsp-set-options;%[2]s;router-port=%[3]s", on, name, peer)
}

func (r reference) node(i int, n string) {
	r.nbctl("ls-add;%[1]s;--;set;Logical_Switch;%[1]s;other_config:subnet=10.244.%[2]d.0/24;other_config:ipv6_prefix=\"fd00:10:244:%[3]d::\"", n, i, i+1)
	r.nbctl("lrp-add;ovn_cluster_router;rtos-%[1]s;0a:58:0a:f4:%02[2]x:01;10.244.%[2]d.1/24;fd00:10:244:%[3]d::1/64", n, i, i+1)
	r.nbctl("lrp-set-gateway-chassis;rtos-%[1]s;chassis-%[1]s;1", n)
	r.routerPort(n, "stor-"+n, "rtos-"+n)
	r.nbctl("lsp-add;%[1]s;k8s-%[1]s;--;lsp-set-addresses;k8s-%[1]s;0a:58:0a:f4:%02[2]x:02 10.244.%[2]d.2 fd00:10:244:%[3]d::2", n, i, i+1)
	r.nbctl("lr-add;GR_%[1]s;--;set;Logical_Router;GR_%[1]s;options:chassis=chassis-%[1]s;options:always_learn_from_arp_request=false;options:dynamic_neigh_routers=true;"+
		"options:lb_force_snat_ip=router_ip;options:snat-ct-zone=0;external_ids:physical_ip=172.18.0.%[2]d", n, i+3)
	r.nbctl("lrp-add;GR_%[1]s;rtoj-GR_%[1]s;0a:58:64:40:00:%02[2]x;100.64.0.%[2]d/16;fd98::%[2]d/64", n, i+3)
	r.routerPort("join", "jtor-GR_"+n, "rtoj-GR_"+n)
	r.nbctl("lrp-add;GR_%[1]s;rtoe-GR_%[1]s;02:42:ac:12:00:%02[2]x;172.18.0.%[2]d/16;fc00:f853:ccd:e793::%[2]d/64;--;set;Logical_Router_Port;rtoe-GR_%[1]s;"+
		"external_ids:gateway-physical-ip=yes", n, i+3)
	r.nbctl("ls-add;ext_%[1]s;--;lsp-add;ext_%[1]s;breth0_%[1]s;--;lsp-set-type;breth0_%[1]s;localnet;--;lsp-set-addresses;breth0_%[1]s;unknown;--;"+
		"lsp-set-options;breth0_%[1]s;network_name=physnet", n)
	r.nbctl("lsp-add;ext_%[1]s;etor-GR_%[1]s;--;lsp-set-type;etor-GR_%[1]s;router;--;lsp-set-addresses;etor-GR_%[1]s;02:42:ac:12:00:%02[2]x;--;"+
		"lsp-set-options;etor-GR_%[1]s;router-port=rtoe-GR_%[1]s;nat-addresses=router;exclude-lb-vips-from-garp=true", n, i+3)
	for f := range topology.Families {
		cluster, subnet := []string{"10.244.0.0/16", "fd00:10:244::/48"}[f], []string{fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1)}[f]
		join, router := []string{fmt.Sprintf("100.64.0.%d", i+3), fmt.Sprintf("fd98::%d", i+3)}[f], []string{"100.64.0.1", "fd98::1"}[f]
		host := []string{fmt.Sprintf("172.18.0.%d", i+3), fmt.Sprintf("fc00:f853:ccd:e793::%d", i+3)}[f]
		hop, all := []string{"172.18.0.1", "fc00:f853:ccd:e793::1"}[f], []string{"0.0.0.0/0", "::/0"}[f]
		r.nbctl("lr-route-add;ovn_cluster_router;%s;%[1]s", join)
		r.nbctl("--policy=src-ip;lr-route-add;ovn_cluster_router;%s;%s", subnet, join)
		r.nbctl("lr-route-add;GR_%s;%s;%s", n, cluster, router)
		r.nbctl("lr-route-add;GR_%[1]s;%s;%s;rtoe-GR_%[1]s", n, all, hop)
		r.nbctl("lr-nat-add;GR_%s;snat;%s;%s", n, host, cluster)
		r.nbctl("lr-policy-add;ovn_cluster_router;1004;inport == \"rtos-%[1]s\" && ip%[2]d.dst == %[3]s /* %[1]s */;reroute;%[4]s",
			n, topology.Families[f], host, topology.ManagementAddr(netip.MustParsePrefix(subnet)))
	}
	r.secondUplink(i, n)
	r.nbctl("create;Chassis_Template_Var;chassis=chassis-%s;variables:NODEIP_IPv4_0=172.18.0.%d", n, i+3)
}

// secondUplink connects a node to the network that is only for external gateways.
func (r reference) secondUplink(i int, n string) {
	r.nbctl("lrp-add;GR_%[1]s;exgw-rtoe-GR_%[1]s;02:42:c0:a8:32:%02[2]x;192.168.50.%[2]d/24;fd00:50::%[2]d/64", n, i+3)
	r.nbctl("ls-add;exgw-ext_%[1]s;--;lsp-add;exgw-ext_%[1]s;breth1_%[1]s;--;lsp-set-type;breth1_%[1]s;localnet;--;lsp-set-addresses;breth1_%[1]s;unknown;--;"+
		"lsp-set-options;breth1_%[1]s;network_name=exgatewayphysnet", n)
	r.nbctl("lsp-add;exgw-ext_%[1]s;exgw-etor-GR_%[1]s;--;lsp-set-type;exgw-etor-GR_%[1]s;router;--;lsp-set-addresses;exgw-etor-GR_%[1]s;02:42:c0:a8:32:%02[2]x;--;"+
		"lsp-set-options;exgw-etor-GR_%[1]s;router-port=exgw-rtoe-GR_%[1]s", n, i+3)
}

// pod writes the port of a pod, whose UID is its name.
func (r reference) pod(n, namespace, name string, subnet, number int) {
	addresses := fmt.Sprintf("0a:58:0a:f4:%02x:%02x 10.244.%d.%d fd00:10:244:%d::%x", subnet, number, subnet, number, subnet+1, number)
	r.nbctl("lsp-add;%[1]s;%[2]s_%[3]s;--;lsp-set-addresses;%[2]s_%[3]s;%[4]s;--;lsp-set-port-security;%[2]s_%[3]s;%[4]s;--;"+
		"set;Logical_Switch_Port;%[2]s_%[3]s;external_ids:namespace=%[2]s;external_ids:pod=true;options:requested-chassis=%[1]s;options:iface-id-ver=%[3]s", n, namespace, name, addresses)
}

// features writes an EgressIP of pod a, an EgressService of pod b, external gateways of pod c on both
// uplinks, and the EgressIP of a pod that no longer exists.
func (r reference) features() {
	for _, a := range []string{"10.244.0.3", "10.244.0.99"} {
		r.nbctl("lr-policy-add;ovn_cluster_router;100;ip4.src == %s;reroute;100.64.0.3,100.64.0.4", a)
		for i, n := range []string{"ovn-worker", "ovn-worker2"} {
			r.nbctl("--id=@n;create;NAT;type=snat;external_ip=172.18.0.%d;logical_ip=%s;logical_port=k8s-%[3]s;external_ids:name=prod;--;add;Logical_Router;GR_%[3]s;nat;@n",
				33+11*i, a, n)
		}
		r.nbctl("set;Logical_Router_Policy;%s;external_ids:name=prod", r.uuid("Logical_Router_Policy", "match=\"ip4.src == "+a+"\""))
	}
	r.nbctl("lr-policy-add;ovn_cluster_router;101;ip4.src == 10.244.1.4;reroute;10.244.0.2")
	r.nbctl("set;Logical_Router_Policy;%s;external_ids:EgressSVC=default/web;external_ids:k8s.ovn.org/owner-controller=another", r.uuid("Logical_Router_Policy", "priority=101"))
	r.nbctl("--policy=src-ip;--ecmp-symmetric-reply;--bfd;lr-route-add;GR_ovn-worker2;10.244.1.5/32;172.18.0.51;rtoe-GR_ovn-worker2")
	r.nbctl("--policy=src-ip;--ecmp-symmetric-reply;--bfd;lr-route-add;GR_ovn-worker2;fd00:10:244:2::5/128;fd00:50::51;exgw-rtoe-GR_ovn-worker2")
	r.nbctl("--policy=src-ip;--ecmp-symmetric-reply;lr-route-add;GR_ovn-worker2;10.244.1.5/32;192.168.50.51;exgw-rtoe-GR_ovn-worker2")
}

func (r reference) services() {
	r.nbctl("lb-add;Service_default/web_TCP_cluster;10.96.0.10:80;10.244.1.4:8080;tcp")
	r.nbctl("add;Load_Balancer_Group;%s;load_balancer;%s", r.uuid("Load_Balancer_Group", "name=clusterLBGroup"), r.uuid("Load_Balancer", "name=Service_default/web_TCP_cluster"))
	r.nbctl("lb-add;Service_default/web_TCP_node_switch_merged;172.18.0.200:80;10.244.1.4:8080;tcp")
	r.nbctl("ls-lb-add;ovn-worker;Service_default/web_TCP_node_switch_merged;--;ls-lb-add;ovn-worker2;Service_default/web_TCP_node_switch_merged")
}

// others writes rows that are not understood.
func (r reference) others() {
	r.nbctl("create;Address_Set;name=a123_v4;addresses=10.244.0.3")
	r.nbctl("pg-add;a456;default_a;default_b")
	r.nbctl("acl-add;a456;to-lport;1001;outport == @a456 && ip4.src == $a123_v4;allow-related")
	r.nbctl("acl-add;ovn-worker;to-lport;1001;ip4.src == 10.244.0.2;allow-related")
	r.nbctl("lr-policy-add;ovn_cluster_router;100;ip4.src == 10.244.0.77;drop")
	r.nbctl("lr-policy-add;ovn_cluster_router;102;ip4.src == 192.0.2.0/24 && ip4.dst == 10.244.0.0/16;allow")
	r.nbctl("lr-route-add;GR_ovn-worker;192.0.2.0/24;172.18.0.9")
	r.nbctl("lr-nat-add;GR_ovn-worker;dnat_and_snat;172.18.0.91;10.244.0.3")
	r.nbctl("lb-add;mine;192.0.2.1:80;192.0.2.2:80")
	r.nbctl("ls-add;mine;--;lsp-add;mine;vm")
	r.nbctl("qos-add;ovn-worker;to-lport;1;ip4;rate=1000")
}

// uuid returns the UUID of the only row of a table that matches a condition.
func (r reference) uuid(table, condition string) string {
	r.t.Helper()
	uuid := r.nbctl("--bare;--columns=_uuid;find;%s;%s", table, condition)
	if strings.Contains(uuid, "\n") || uuid == "" {
		r.t.Fatalf("rows of %s with %s: %q", table, condition, uuid)
	}
	return uuid
}

func newReference(t *testing.T) reference {
	r := reference{ovsdbtest.StartNB(t, ovsdbtest.WithTCP()), t}
	r.cluster()
	for i, n := range []string{"ovn-worker", "ovn-worker2"} {
		r.node(i, n)
	}
	r.pod("ovn-worker", "default", "a", 0, 3)
	r.pod("ovn-worker2", "default", "b", 1, 4)
	r.pod("ovn-worker2", "default", "c", 1, 5)
	r.pod("ovn-worker2", "default", "gone", 1, 6)
	r.features()
	r.services()
	r.others()
	return r
}

func (r reference) config() config.Config {
	r.t.Helper()
	cfg, _, err := config.Load(config.Sources{Flags: map[string]string{
		"cluster-subnets": "10.244.0.0/16/24,fd00:10:244::/48/64", "k8s-service-cidrs": "10.96.0.0/16,fd00:10:96::/112",
		"nb-address": r.Address(), "enable-multi-external-gateway": "true",
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

func (r reference) adopt(act bool) string {
	r.t.Helper()
	var out bytes.Buffer
	if err := Adopt(r.t.Context(), r.config(), act, &out); err != nil {
		r.t.Fatal(err)
	}
	return out.String()
}

// TestAdopt: the rows that another implementation writes according to the documents are listed, and
// nothing is changed before that is requested. Adopted rows keep their UUIDs when desired rows are
// first written, rows that are no longer wanted are deleted, and foreign rows stay.
func TestAdopt(t *testing.T) {
	r := newReference(t)
	before, rows := r.Dump(), r.rows()
	golden.Check(t, "adopt", r.adopt(false))
	if after := r.Dump(); after != before {
		t.Errorf("listing changes the database:\n%s", after)
	}
	listing := adopt.List(adopt.Config{MultiExternalGateway: true}, rows)
	r.adopt(true)
	for _, kept := range rows {
		if !slices.ContainsFunc(r.rows(), func(now nb.Stored) bool { return marked(kept, now) }) {
			t.Errorf("to be marked changes more than external_ids: %v", kept)
		}
	}
	if again := r.adopt(true); !strings.Contains(again, "Rows that are understood: 0\n") {
		t.Errorf("once more: %s", again)
	}

	r.master(t)
	now := map[string]nb.Stored{}
	for _, row := range r.rows() {
		now[row.UUID] = row
	}
	for _, u := range listing.Understood {
		_, there := now[u.Row.UUID]
		if want := !u.Replaced && !goes[adopt.Name(u.Row)]; there != want {
			t.Errorf("%s %s: there is %v, want %v", u.Row.Table, adopt.Name(u.Row), there, want)
		}
	}
	for _, l := range listing.Left {
		if !reflect.DeepEqual(now[l.Row.UUID], l.Row) {
			t.Errorf("%s %s was %v and is %v", l.Row.Table, adopt.Name(l.Row), l.Row, now[l.Row.UUID])
		}
	}
	records := r.Records()
	r.master(t)
	if n := r.Records() - records; n != 0 {
		t.Errorf("a second start writes %d transactions", n)
	}
	r.alike()
}

// alike checks that our own rows are recognized if nothing marks them as ours. Rows of features
// that the documents do not mention are not recognized.
func (r reference) alike() {
	r.t.Helper()
	rows, ids := r.rows(), map[string]string{}
	for i := range rows {
		if own := rows[i].Maps["external_ids"]; own["k8s.ovn.org/owner-controller"] != "" {
			rows[i].Owner, ids[rows[i].UUID] = nil, own["k8s.ovn.org/owner-type"]+"/"+own["k8s.ovn.org/name"]+": "+own["k8s.ovn.org/id"]
		}
	}
	understood := map[string]int{}
	for _, u := range adopt.List(adopt.Config{MultiExternalGateway: true}, rows).Understood {
		id := u.Mark.Owner.String() + ": " + u.Mark.ID
		if u.Mark.Parent != (nb.Parent{}) {
			id += "@" + u.Mark.Parent.Name
			if u.Mark.Table == "Load_Balancer" {
				id += "@" + u.Mark.Parent.Table
			}
		}
		if u.Replaced {
			continue
		}
		if understood[u.Mark.Owner.Feature]++; id != ids[u.Row.UUID] {
			r.t.Errorf("%s %s is %s, and understood as %s", u.Row.Table, adopt.Name(u.Row), ids[u.Row.UUID], id)
		}
	}
	want := map[string]int{"egressip": 3, "egressservice": 1, "externalroute": 5, "network": 64, "noreroute": 4, "pod": 3, "service": 1, "service-nodes": 2}
	if !maps.Equal(understood, want) {
		r.t.Errorf("understood are %v, want %v", understood, want)
	}
}

// goes are the rows that are not wanted in the cluster of the test, or not in this form.
var goes = map[string]bool{
	"default_gone":                    true,
	"100 ip4.src == 10.244.0.99":      true,
	"snat 10.244.0.99 172.18.0.33":    true,
	"snat 10.244.0.99 172.18.0.44":    true,
	"Service_default/web_TCP_cluster": true, // ours is in another group
}

// marked reports whether a row is unchanged except for the keys of external_ids that identify
// owners.
func marked(before, after nb.Stored) bool {
	ids := maps.Clone(after.Maps["external_ids"])
	maps.DeleteFunc(ids, func(key, _ string) bool { return strings.HasPrefix(key, "k8s.ovn.org/") })
	had := maps.Clone(before.Maps["external_ids"])
	maps.DeleteFunc(had, func(key, _ string) bool { return strings.HasPrefix(key, "k8s.ovn.org/") })
	before.Maps, after.Maps = maps.Clone(before.Maps), maps.Clone(after.Maps)
	delete(before.Maps, "external_ids")
	delete(after.Maps, "external_ids")
	before.Owner, after.Owner = nil, nil
	return reflect.DeepEqual(before, after) && maps.Equal(had, ids)
}

func (r reference) dial() *ovsdb.Client {
	r.t.Helper()
	client, err := ovsdb.Connect(r.t.Context(), ovsdb.Config{Address: r.Socket()})
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

func (r reference) rows() []nb.Stored {
	r.t.Helper()
	client := r.dial()
	defer client.Close()
	rows, err := client.Stored(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// master writes what a master wants in this cluster: nodes from its recalled state, the pods a, b
// and c from their ports.
func (r reference) master(t *testing.T) {
	t.Helper()
	client := r.dial()
	defer client.Close()
	w := ovsdb.NewWriter(client)
	apply := func(o nb.Owner, rows []nb.Row) {
		t.Helper()
		if _, err := w.Apply(t.Context(), o, rows); err != nil {
			t.Error(err)
		}
	}
	cluster, join := prefixesOf("10.244.0.0/16", "fd00:10:244::/48"), prefixesOf("100.64.0.0/16", "fd98::/64")
	base := network.Config{JoinSubnets: join, ClusterSubnets: []network.ClusterSubnet{{CIDR: cluster[0], HostPrefixLen: 24}, {CIDR: cluster[1], HostPrefixLen: 64}}}
	assigned, nodes := map[string]network.Assignment{}, map[string]topology.Node{}
	for _, name := range nb.Objects(w, network.Feature) {
		if name == "" {
			continue
		}
		n := network.Recall(name, w.Rows(network.Owner(name)))
		if missing := network.Missing(n); missing != "" {
			t.Errorf("of node %s the rows do not say %s", name, missing)
		}
		nodes[name], assigned[name] = n, network.Assignment{Subnets: n.Subnets, Join: n.Join}
	}
	apply(network.Owner(""), network.ClusterRows(base, assigned))
	for name, n := range nodes {
		apply(network.Owner(name), network.NodeRows(base, n))
		apply(service.NodeOwner(name), service.NodeRows(n, service.Config{}))
	}
	for key, on := range map[string]string{"default/a": "ovn-worker", "default/b": "ovn-worker2", "default/c": "ovn-worker2", "default/gone": ""} {
		given, ok := pod.AddressesIn(w.Rows(pod.Owner(key)))
		if on == "" {
			apply(pod.Owner(key), nil)
			continue
		}
		name := strings.TrimPrefix(key, "default/")
		of, known := given.Network(nodes[on].Subnets)
		if !ok || !known || given.UID != name {
			t.Errorf("of pod %s the port says %+v", key, given)
		}
		apply(pod.Owner(key), pod.Rows(pod.Config{}, pod.Pod{Namespace: "default", Name: name, UID: name, Network: of}, nodes[on]))
	}
	// Rows that steer traffic are unchanged.
	for _, key := range nb.Objects(w, egressip.Feature) {
		if rows := w.Rows(egressip.Owner(key)); key == "default/a" {
			apply(egressip.Owner(key), egressip.StateOf(rows).Rows())
		} else {
			apply(egressip.Owner(key), nil)
		}
	}
	now := egressservice.SteeringOf(w.Rows(egressservice.Owner("default/web")))
	if hop := now[netip.MustParseAddr("10.244.1.4")]; len(now) != 1 || hop.String() != "10.244.0.2" {
		t.Errorf("the EgressService is steered: %v", now)
	}
	hops := map[string][]externalroute.Hop{"default": {
		{Addr: netip.MustParseAddr("172.18.0.51"), BFD: true}, {Addr: netip.MustParseAddr("192.168.50.51")}, {Addr: netip.MustParseAddr("fd00:50::51"), BFD: true},
	}}
	for name, n := range nodes {
		s := externalroute.NodeSnapshot{Node: n}
		if name == "ovn-worker2" {
			s.Pods = []externalroute.Pod{{Key: "default/c", Namespace: "default", Addrs: addrsOf("10.244.1.5", "fd00:10:244:2::5")}}
		}
		apply(externalroute.Owner(name), externalroute.NodeRows(externalroute.Config{Cluster: cluster, Join: join}, externalroute.Plan{Hops: hops}, s))
	}
	inside := noreroute.Network{Cluster: cluster, Join: join}
	for _, s := range []noreroute.Set{noreroute.EgressIPPods, noreroute.EgressServicePods, noreroute.NodeIPs} {
		apply(s.Owner(), noreroute.SetRows(inside, s, nil))
	}
	apply(noreroute.PolicyOwner, noreroute.PolicyRows(inside))
	web := service.Service{Key: "default/web", Namespace: "default", Name: "web", ClusterIPs: addrsOf("10.96.0.10"), Ports: []service.Port{{
		Protocol: "tcp", Port: 80, Candidates: []service.Endpoint{{To: netip.MustParseAddrPort("10.244.1.4:8080"), Pod: true, Ready: true}},
	}}}
	apply(service.Owner(web.Key), service.MasterRows(web, service.Config{}, nil))
}
