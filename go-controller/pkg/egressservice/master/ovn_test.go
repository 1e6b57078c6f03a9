package master

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	noreroutemaster "github.com/ovnkube/ovnkube/go-controller/pkg/noreroute/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/nbshow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// lab is a world with a real database, ovn-northd behind it, and the part
// of the base network that a pod's packets need.
type lab struct {
	*world
	ovn *ovntrace.OVN
}

var labNodes = []string{"ovn-worker", "ovn-worker2", "ovn-control-plane"}

// labPods are the pods of the walk-through, by node, and one that is not an endpoint.
var labPods = map[string]struct {
	node, host int
	addrs      [2]string
}{
	"endpoint-0": {0, 5, [2]string{"10.244.0.5", "fd00:10:244:1::5"}},
	"endpoint-2": {2, 7, [2]string{"10.244.2.7", "fd00:10:244:3::7"}},
	"other":      {0, 6, [2]string{"10.244.0.6", "fd00:10:244:1::6"}},
}

func newLab(t *testing.T) *lab {
	l := &lab{world: newWorld(t, demoObjects()...), ovn: ovntrace.Start(t)}
	for i, name := range labNodes {
		l.changeNode(name, setPrimary(i))
	}
	l.topology()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Bound)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: l.ovn.NB.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l.db = ovsdb.NewWriter(client)
	return l
}

// topology creates router, switches, management ports and pods as in local gateway
// mode: pods leave through the management port of their own node.
func (l *lab) topology() {
	cmds := []string{"lr-add", topology.ClusterRouter}
	add := func(args ...string) { cmds = append(append(cmds, "--"), args...) }
	for i, name := range labNodes {
		v4, v6 := fmt.Sprintf("10.244.%d", i), fmt.Sprintf("fd00:10:244:%d::", i+1)
		rtos, stor, mgmt := topology.RouterToSwitch(name), topology.SwitchToRouter(name), topology.ManagementLSP(name)
		add("ls-add", name)
		add("lrp-add", topology.ClusterRouter, rtos, mac(i, 1), v4+".1/24", v6+"1/64")
		add("lsp-add", name, stor)
		add("lsp-set-type", stor, "router")
		add("lsp-set-addresses", stor, "router")
		add("lsp-set-options", stor, "router-port="+rtos)
		add("lsp-add", name, mgmt)
		add("lsp-set-addresses", mgmt, mac(i, 2)+" "+v4+".2 "+v6+"2")
		add("--policy=src-ip", "lr-route-add", topology.ClusterRouter, v4+".0/24", v4+".2")
		add("--policy=src-ip", "lr-route-add", topology.ClusterRouter, v6+"/64", v6+"2")
	}
	for name, p := range labPods {
		add("lsp-add", labNodes[p.node], name)
		add("lsp-set-addresses", name, mac(p.node, p.host)+" "+strings.Join(p.addrs[:], " "))
	}
	l.ovn.NB.Nbctl(cmds...)
}

func mac(node, host int) string { return fmt.Sprintf("0a:58:0a:f4:%02x:%02x", node, host) }

// outputs matches the end of a trace.
var outputs = regexp.MustCompile(`output to "([^"]+)", type ""`)

// send returns the port at which a pod's packet to dst leaves, and whether it is
// marked as pod-to-node traffic.
func (l *lab) send(pod, dst string) string {
	l.t.Helper()
	p, to := labPods[pod], netip.MustParseAddr(dst)
	family := topology.FamilyOf(to)
	src := p.addrs[slices.Index(topology.Families, family)]
	trace := l.ovn.Trace(labNodes[p.node], fmt.Sprintf(
		"inport == %q && eth.src == %s && eth.dst == %s && %[4]s.src == %s && %[4]s.dst == %[6]s && ip.ttl == 64",
		pod, mac(p.node, p.host), mac(p.node, 1), family.Match(), src, dst))
	var ports []string
	for _, m := range outputs.FindAllStringSubmatch(trace, -1) {
		ports = append(ports, m[1])
	}
	if len(ports) == 0 {
		l.t.Logf("%s to %s:\n%s", pod, dst, trace)
	}
	if strings.Contains(trace, "pkt.mark = 1008") {
		ports = append(ports, "marked")
	}
	return strings.Join(ports, " ")
}

// expect checks the destinations of packets; host is the node that serves, "" if there is none.
func (l *lab) expect(host string) {
	l.t.Helper()
	out := func(own string) string {
		if host == "" {
			return topology.ManagementLSP(own)
		}
		return topology.ManagementLSP(host)
	}
	marked := ""
	if host != "" {
		marked = " marked"
	}
	for _, c := range []struct{ pod, to, want string }{
		{"endpoint-0", "172.19.0.5", out("ovn-worker")},
		{"endpoint-2", "172.19.0.5", out("ovn-control-plane")},
		{"endpoint-0", "2001:db8::5", out("ovn-worker")},
		{"endpoint-2", "2001:db8::5", out("ovn-control-plane")},
		{"other", "172.19.0.5", "k8s-ovn-worker"},
		{"other", "2001:db8::5", "k8s-ovn-worker"},
		// East-west traffic is not affected.
		{"endpoint-0", "10.244.2.7", "endpoint-2"},
		{"endpoint-0", "fd00:10:244:3::7", "endpoint-2"},
		{"endpoint-2", "10.244.0.6", "other"},
		// Nor is traffic to nodes, which is marked.
		{"endpoint-0", "172.18.0.2", "k8s-ovn-worker" + marked},
		{"endpoint-2", "fc00:f853:ccd:e793::2", "k8s-ovn-control-plane" + marked},
		{"other", "172.18.0.2", "k8s-ovn-worker"},
	} {
		if got := l.send(c.pod, c.to); got != c.want {
			l.t.Errorf("served by %q: %s to %s came out of %q, want %q", host, c.pod, c.to, got, c.want)
		}
	}
}

// TestPacketsOnOVN traces packets in OVN before, during and after the
// walk-through, and compares the policies with those in the golden files.
func TestPacketsOnOVN(t *testing.T) {
	l := newLab(t)
	eg := demoObjects()[0]
	l.remove(eg)
	l.start()
	l.noReroute()
	l.expect("")
	before := l.ovn.NB.Nbctl("lr-policy-list", topology.ClusterRouter)
	if want := nbshow.PolicyList(noreroute.PolicyRows(labNetwork)); before != want {
		t.Errorf("lr-policy-list printed\n%sthe goldens would print\n%s", before, want)
	}

	l.create(eg)
	first := l.onOVN(t, "")
	l.expect(first)
	// As shown by nbctl: the planner tests print what users see.
	services, err := l.master.reader.Objects()
	if err != nil || len(services) != 1 {
		t.Fatalf("%v, %v", services, err)
	}
	s, _, err := l.master.reader.Decode(services[0])
	if err != nil {
		t.Fatal(err)
	}
	d, _ := l.master.decision(demo)
	want := nbshow.PolicyList(append(noreroute.PolicyRows(labNetwork), egressservice.MasterRows(s, d)...))
	if got := l.ovn.NB.Nbctl("lr-policy-list", topology.ClusterRouter); got != want {
		t.Errorf("lr-policy-list printed\n%sthe goldens would print\n%s", got, want)
	}
	if got := l.ovn.NB.Nbctl("--bare", "--columns=match", "find", "Logical_Router_Policy", `external_ids:EgressSVC="default/demo-svc"`); strings.Count(got, ".src ==") != 4 {
		t.Errorf("policies found by external_ids EgressSVC:\n%s", got)
	}

	l.health.Set(first, place.Dead)
	second := l.onOVN(t, first)
	l.expect(second)

	l.remove(eg)
	l.eventually("the policies to go", func() bool { return len(l.db.Owners(egressservice.Feature)) == 0 })
	l.eventually("the pods to go", func() bool {
		return l.ovn.NB.Nbctl("--bare", "--columns=addresses", "find", "Address_Set", "name="+noreroute.EgressServicePods.Name(topology.IPv4)) == "\n"
	})
	l.expect("")
	if got := l.ovn.NB.Nbctl("lr-policy-list", topology.ClusterRouter); got != before {
		t.Errorf("after deletion\n%sbefore creation\n%s", got, before)
	}
}

var labNetwork = noreroute.Network{Cluster: cluster,
	Join: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")}}

// noReroute runs the controller of the shared policies on the same database.
func (l *lab) noReroute() {
	l.t.Helper()
	core := informers.NewSharedInformerFactory(l.kube, 0)
	addresses, err := reservedsnapshot.New(reserved.Ranges{}, reservedsnapshot.Informers{Nodes: core.Core().V1().Nodes(),
		EndpointSlices: core.Discovery().V1().EndpointSlices()})
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := noreroutemaster.New(noreroutemaster.Deps{Addresses: addresses, Writer: l.db,
		Network: labNetwork, EgressServicePods: l.pods})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	core.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			l.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
	})
	eventually.Receive(l.t, "the policies of the start", c.Attempted())
}

// onOVN waits until a node other than not serves the demo in the database, and
// its pods are published.
func (l *lab) onOVN(t *testing.T, not string) string {
	t.Helper()
	var status string
	l.eventually("a host in the database", func() bool {
		status, _, _ = l.hosts(demo)
		if status == "" || status == not {
			return false
		}
		hop, _, _ := strings.Cut(hopsOf[status], " ")
		got := l.ovn.NB.Nbctl("--bare", "--columns=match", "find", "Logical_Router_Policy", "priority=101", "nexthops="+hop)
		pods := l.ovn.NB.Nbctl("--bare", "--columns=addresses", "find", "Address_Set", "name="+noreroute.EgressServicePods.Name(topology.IPv6))
		return strings.Count(got, "ip4.src") == 2 && strings.Contains(pods, "fd00:10:244:3::7")
	})
	return status
}

// TestOwnersSeedAfterRestart: rows of an EgressService that was deleted while no master
// ran are found in the real database and removed.
func TestOwnersSeedAfterRestart(t *testing.T) {
	l := newLab(t)
	const stale = "10.244.0.9"
	s := egressservice.Service{Key: "default/gone", Namespace: "default", Name: "gone",
		Endpoints: []egressservice.Endpoint{{Addr: netip.MustParseAddr(stale)}}}
	rows := egressservice.MasterRows(s, egressservice.Decision{Host: "x", NextHops: []netip.Addr{netip.MustParseAddr("10.244.0.2")}})
	if _, err := l.db.Apply(t.Context(), egressservice.Owner(s.Key), rows); err != nil || len(rows) != 1 {
		t.Fatal(err)
	}
	l.start()
	l.eventually("the policies of the others alone", func() bool {
		got := l.ovn.NB.Nbctl("lr-policy-list", topology.ClusterRouter)
		return !strings.Contains(got, stale) && strings.Count(got, "reroute") == 4
	})
}
