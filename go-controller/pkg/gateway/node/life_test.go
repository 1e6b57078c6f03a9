package node

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// told waits until an annotation of the node contains has, and no longer contains lost.
func (l *lab) told(name, has, lost string) {
	l.t.Helper()
	text := func() string {
		n, err := l.node.Core().V1().Nodes().Lister().Get(nodeName)
		if err != nil {
			l.t.Fatal(err)
		}
		return n.Annotations[name]
	}
	eventually.True(l.t, "annotation "+name+" with "+has, func() bool {
		return strings.Contains(text(), has) && (lost == "" || !strings.Contains(text(), lost))
	}, eventually.Dump(text))
}

// renumbered fails unless the new address replaces the previous one everywhere.
func (l *lab) renumbered(g *Gateway, now, before string) {
	l.t.Helper()
	if got := l.attachment("breth0"); !strings.Contains(got, now+"/16") || strings.Contains(got, before+"/16") {
		l.t.Errorf("the bridge has\n%s", got)
	}
	for _, name := range []string{kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses, kube.AnnotationL3Gateway} {
		l.told(name, now+"/16", before+"/16")
	}
	if got := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"); got != `"`+now+`"` {
		l.t.Errorf("tunnels end at %s", got)
	}
	for _, route := range []string{"default via 172.18.0.1", "192.0.2.0/24 via 172.18.0.1"} {
		if got := l.attachment("breth0"); !strings.Contains(got, route) {
			l.t.Errorf("the bridge has no route %q:\n%s", route, got)
		}
	}
	before = l.state()
	l.mustPass(l.start(l.db))
	l.same("a restart", before)
}

// TestRenumberedByDHCP: a DHCP client that gets another address puts it on the
// uplink, where it had the previous one. The previous one no longer belongs to the node; addresses
// of others stay.
func TestRenumberedByDHCP(t *testing.T) {
	l := newLab(t)
	lease := func(address string) {
		l.ns.Run("ip", "addr", "add", address, "dev", "eth0", "valid_lft", "3600", "preferred_lft", "1800")
		l.ns.Run("ip", "route", "replace", "default", "via", "172.18.0.1", "dev", "eth0", "metric", "100")
	}
	l.ns.Run("ip", "addr", "del", "172.18.0.3/16", "dev", "eth0")
	lease("172.18.0.3/16")
	l.ns.Run("ip", "route", "replace", "192.0.2.0/24", "via", "172.18.0.1", "dev", "eth0")
	g := l.up()
	lease("172.18.0.3/16") // a renewal
	l.mustPass(g)
	if got := l.attachment("breth0"); !strings.Contains(got, "172.18.0.3/16") || !strings.Contains(got, "172.18.9.9/32") {
		t.Errorf("after a renewal the bridge has\n%s", got)
	}
	lease("172.18.0.7/16")
	l.mustPass(l.start(l.db)) // also if the process was not running at that moment
	l.mustPass(g)
	l.renumbered(g, "172.18.0.7", "172.18.0.3")
	if got := l.attachment("breth0"); !strings.Contains(got, "172.18.9.9/32") || !strings.Contains(got, "fc00:18::3/64") {
		t.Errorf("addresses that are no leases went:\n%s", got)
	}
	l.ns.Run("ip", "addr", "add", "172.18.0.8/16", "dev", "eth0") // an additional one, added manually
	l.mustPass(g)
	if got := l.attachment("breth0"); !strings.Contains(got, "172.18.0.7/16") || !strings.Contains(got, "172.18.0.8/16") {
		t.Errorf("with another address the bridge has\n%s", got)
	}
}

// TestRenumberedByHand: an administrator gives the bridge another address.
func TestRenumberedByHand(t *testing.T) {
	l := newLab(t)
	g := l.up()
	l.ns.Run("ip", "addr", "add", "172.18.0.7/16", "dev", "breth0")
	l.ns.Run("sysctl", "-q", "net.ipv4.conf.all.promote_secondaries=1")
	l.ns.Run("ip", "addr", "del", "172.18.0.3/16", "dev", "breth0")
	l.ns.Run("ip", "route", "replace", "default", "via", "172.18.0.1", "dev", "breth0", "metric", "100")
	l.ns.Run("ip", "route", "replace", "192.0.2.0/24", "via", "172.18.0.1", "dev", "breth0")
	l.mustPass(g)
	l.renumbered(g, "172.18.0.7", "172.18.0.3")
}

// TestRenamedUplink: the kernel, or a udev rule, gives the uplink another name after a boot.
// It is recognized by its MAC address.
func TestRenamedUplink(t *testing.T) {
	l := newLab(t)
	g := l.up()
	before := l.attachment("breth0")
	l.ns.Run("ip", "link", "set", "eth0", "down")
	l.ns.Run("ip", "link", "set", "eth0", "name", "ens3")
	for range 2 { // also in later passes
		l.mustPass(l.start(l.db))
		l.reachable()
	}
	if got := l.attachment("breth0"); words(got) != words(before) {
		t.Errorf("the bridge has\n%s\nbefore:\n%s", got, before)
	}
	if got := strings.Fields(l.vs.Run("ovs-vsctl", "list-ports", "breth0")); len(got) != 2 || got[0] != "ens3" {
		t.Errorf("ports of the bridge are %v", got)
	}
	if got := recall(g.StateFile, nodeName); got.Record.Uplink != "ens3" {
		t.Errorf("remembered is %+v", got)
	}
}

// TestReplacedUplink: a replacement network card with another name must be configured. The error
// says so, as does the node once it has been failing for long enough, also after a restart, until the
// name is configured. The host continues as far as possible.
func TestReplacedUplink(t *testing.T) {
	l := newLab(t)
	g := l.up()
	const mac = "02:42:ac:12:00:99"
	replace := func(name string) {
		l.ns.Run("ip", "link", "del", "eth0")
		l.ns.Run("ip", "link", "add", name, "address", mac, "type", "veth", "peer", "name", "far0", "netns", "far")
		l.far("ip", "link", "set", "far0", "up")
		l.far("ip", "addr", "add", "172.18.0.1/16", "dev", "far0")
		l.far("ip", "addr", "add", "fc00:18::1/64", "dev", "far0", "nodad")
		l.far("ethtool", "-K", "far0", "tx", "off", "tso", "off", "gso", "off")
		l.ns.Run("ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off")
	}
	replace("ens4")
	err := l.pass(g)
	if want := "uplink eth0 of bridge breth0 does not exist, and no interface has its MAC address " + nodeMAC + ": give the one that replaces it as --gateway-interface"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if got := g.Waiting(); got != "the external bridge" {
		t.Errorf("the node waits for %q", got)
	}
	if got := l.attachment("breth0"); !strings.Contains(got, "172.18.0.3/16") {
		t.Errorf("the bridge has\n%s", got)
	}
	if got := l.failure(); got != "" {
		t.Errorf("after one failed pass the node reports %q", got)
	}
	g.reportAfter = 0
	if err := l.pass(g); err == nil {
		t.Error("another pass did not fail")
	}
	l.told(kube.AnnotationNetworkFailure, "the external bridge: find the uplink: uplink eth0 of bridge breth0 does not exist", "\n")
	g = l.start(l.db)
	if err := l.pass(g); err == nil || l.failure() == "" {
		t.Errorf("after a restart the node reports %q, error %v", l.failure(), err)
	}
	g = l.start(l.db)
	g.Interface = "ens4"
	l.hostAddresses("ens4")
	l.mustPass(g)
	l.reachable()
	l.told(kube.AnnotationNetworkFailure, "", "uplink")
	if got := l.vs.Run("ovs-vsctl", "list-br"); got != "br-int\nbrens4" {
		t.Errorf("bridges are %s", got)
	}
}

// failure returns what the node reports to the API server.
func (l *lab) failure() string {
	l.t.Helper()
	n, err := l.kube.CoreV1().Nodes().Get(l.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return kube.NetworkFailure(n)
}

// TestHostname: whatever the current and former hostnames of the host, pods find its
// chassis: their ports request it by the name of the node.
func TestHostname(t *testing.T) {
	l := newLab(t)
	g := l.up()
	name := func() string { return l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:hostname") }
	if got := name(); got != nodeName {
		t.Errorf("the chassis' host is %s", got)
	}
	heard := func(id, value string) {
		t.Helper()
		eventually.True(t, "the gateway to hear that "+id+" is "+value, func() bool {
			ids, err := g.OVS.System(t.Context())
			return err == nil && ids[id] == value
		})
	}
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:hostname=renamed.example.com")
	heard("hostname", "renamed.example.com")
	l.mustPass(g)
	if got := name(); got != nodeName {
		t.Errorf("after another name was set the chassis' host is %s", got)
	}
	// A chassis whose name is the name of the node is found by that.
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:hostname=renamed.example.com", "external_ids:system-id="+nodeName)
	heard("system-id", nodeName)
	l.mustPass(g)
	if got := name(); got != `"renamed.example.com"` && got != "renamed.example.com" {
		t.Errorf("the host of a chassis with the node's name is %s", got)
	}
}

// TestSettingsUnset: a setting that the configuration no longer has is removed, as are the TLS files with which the previous
// one connected.
func TestSettingsUnset(t *testing.T) {
	l := newLab(t)
	start := func(cfg config.Config, tls ovs.TLS) string {
		t.Helper()
		g := l.start(l.db)
		g.ControllerIDs, g.TLS = cfg.OVNControllerIDs(), tls
		l.mustPass(g)
		return l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids") + l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "ssl")
	}
	limited := config.Config{Default: config.Default{LFlowCacheLimit: 1000, LFlowCacheLimitKB: 2000}}
	if got := start(limited, testTLS); !strings.Contains(got, `ovn-limit-lflow-cache="1000"`) ||
		!strings.Contains(got, `ovn-memlimit-lflow-cache-kb="2000"`) || strings.Contains(got, "[]") {
		t.Errorf("with limits the database has %s", got)
	}
	if got := start(config.Config{}, ovs.TLS{}); strings.Contains(got, "limit-lflow") || !strings.Contains(got, "[]") {
		t.Errorf("without limits the database has %s", got)
	}
}

// TestEncapIPElsewhere: a tunnel endpoint that the host does not have is refused, and used once the host has it, on whatever link.
func TestEncapIPElsewhere(t *testing.T) {
	for _, addr := range []string{"203.0.113.7", "fc00:99::7"} {
		l := newLab(t)
		before := l.attachment("eth0")
		g := l.start(l.db)
		g.EncapIP, g.reportAfter = netip.MustParseAddr(addr), 0
		want := "--encap-ip " + addr + ": no interface of the host has this address"
		for range 2 {
			if err := l.pass(g); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		l.told(kube.AnnotationNetworkFailure, want, "\n")
		if got := l.attachment("eth0"); got != before {
			t.Errorf("the uplink has\n%s\nbefore\n%s", got, before)
		}
		endpoint := func() string {
			return strings.Trim(l.vs.Run("ovs-vsctl", "--if-exists", "get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"), `"`)
		}
		if got := endpoint(); got != "" {
			t.Errorf("tunnels end at %s", got)
		}
		l.ns.Run("ip", "addr", "add", addr, "dev", "lo")
		l.mustPass(g)
		if got := endpoint(); got != addr {
			t.Errorf("tunnels end at %s, want %s", got, addr)
		}
		l.told(kube.AnnotationNetworkFailure, "", "encap-ip")

		// A host that is attached keeps its addresses even if the endpoint and the bridge are lost at once.
		l.ns.Run("ip", "addr", "del", addr, "dev", "lo")
		l.deleteBridges("breth0")
		if err := l.pass(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		state := func(of string) string { return of[strings.Index(of, " 172."):] } // without the link
		if got := l.attachment("breth0"); state(got) != state(before) {
			t.Errorf("the bridge has\n%s\nthe uplink had\n%s", got, before)
		}
	}
}

// TestSharedAfterLocal: what only local gateway mode needs goes when the cluster gets shared mode, and comes back with
// local mode.
func TestSharedAfterLocal(t *testing.T) {
	l := newLab(t)
	l.up()
	for _, mode := range []topology.GatewayMode{topology.GatewayLocal, topology.GatewayShared, topology.GatewayLocal} {
		g := l.start(l.db)
		g.Egress, g.Mode = true, mode
		l.mustPass(g)
		if got := l.ns.Run("nft", "list", "ruleset"); strings.Contains(got, "ovn-kube-accept") != (mode == topology.GatewayLocal) {
			t.Errorf("in mode %s:\n%s", mode, got)
		}
	}
}

// TestCleanupAfterRename: the clean-up finds an uplink that was renamed while the node was stopped, also if the database is
// lost as well. Without it, the bridge keeps the host's addresses until another interface has them.
func TestCleanupAfterRename(t *testing.T) {
	for what, lose := range map[string]func(*lab){"the name": func(*lab) {}, "the database": func(l *lab) { l.vs.LoseDatabase() }} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			before := strings.ReplaceAll(l.attachment("eth0"), "eth0", "ens3")
			file := l.up().StateFile
			l.rename("eth0", "ens3")
			lose(l)
			if err := (Cleaner{OVS: l.db, Node: nodeName, StateFile: file}).Cleanup(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := l.attachment("ens3"); words(got) != words(before) {
				t.Errorf("the uplink has\n%s\nbefore\n%s", got, before)
			}
			if got := l.vs.Run("ovs-vsctl", "list-br"); got != "" {
				t.Errorf("bridges are %s", got)
			}
			l.reachable()
		})
	}
}

// rename gives a link another name, as an administrator does.
func (l *lab) rename(from, to string) {
	l.t.Helper()
	l.ns.Run("ip", "link", "set", from, "down")
	l.ns.Run("ip", "link", "set", from, "name", to)
	l.ns.Run("ip", "link", "set", to, "up")
}

// TestCleanupWithoutUplink: an uplink that cannot be found does not take the host's addresses with it.
func TestCleanupWithoutUplink(t *testing.T) {
	l := newLab(t)
	uplink := l.attachment("eth0")
	file := l.up().StateFile
	before := l.attachment("breth0")
	l.rename("eth0", "ens3")
	l.ns.Run("ip", "link", "set", "ens3", "address", "02:42:ac:12:00:99")
	cleaner := Cleaner{OVS: l.db, Node: nodeName, StateFile: file}
	for range 2 {
		err := cleaner.Cleanup(t.Context())
		if want := "uplink eth0 of bridge breth0 does not exist, and no interface has its MAC address " + nodeMAC; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if got := l.attachment("breth0"); words(got) != words(before) {
			t.Errorf("the bridge has\n%s\nbefore\n%s", got, before)
		}
	}
	// What the error tells the administrator to do ends it.
	l.rename("ens3", "eth0")
	if err := cleaner.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.attachment("eth0"); words(got) != words(uplink) {
		t.Errorf("the uplink has\n%s\nbefore\n%s", got, uplink)
	}
	l.reachable()
}

// TestConfiguredAfterRename: a node whose configuration names the uplink's new name moves the host off the bridge
// with the previous one.
func TestConfiguredAfterRename(t *testing.T) {
	l := newLab(t)
	l.up()
	before := strings.ReplaceAll(l.attachment("breth0"), "breth0", "brens3")
	l.rename("eth0", "ens3")
	g := l.start(l.db)
	g.Interface = "ens3"
	l.mustPass(g)
	if got := l.attachment("brens3"); words(got) != words(before) {
		t.Errorf("the host has\n%s\nbefore\n%s", got, before)
	}
	if got := l.vs.Run("ovs-vsctl", "list-br"); got != "br-int\nbrens3" {
		t.Errorf("bridges are %s", got)
	}
	if got := l.ns.Run("nft", "list", "table", "netdev", "ovn-kube-mute"); strings.Contains(got, "chain eth0") {
		t.Errorf("the uplink is still muted by its previous name:\n%s", got)
	}
	l.reachable()
}
