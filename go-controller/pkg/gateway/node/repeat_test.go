package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// up brings the node up completely.
func (l *lab) up() *Gateway {
	l.t.Helper()
	l.annotate(kube.AnnotationNodeSubnets, subnets)
	g := l.start(l.db)
	l.mustPass(g)
	l.patchPort()
	l.claim()
	// The client of Open vSwitch sees the port and the claim with a delay.
	eventually.True(l.t, "the node to be ready", func() bool {
		l.mustPass(g)
		return g.Waiting() == ""
	})
	return g
}

// state returns everything that a pass writes, for comparison.
func (l *lab) state() string {
	l.t.Helper()
	var out strings.Builder
	for _, dev := range []string{"eth0", "breth0", topology.ManagementPort} {
		out.WriteString(dev + "\n" + l.attachment(dev))
	}
	for _, cmd := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "list", "table", "netdev", "ovn-kube-mute"}} {
		for line := range strings.Lines(l.ns.Run(cmd[0], cmd[1:]...)) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
				out.WriteString(line)
			}
		}
	}
	out.WriteString(strings.Join(l.vs.Flows("breth0"), "\n"))
	out.WriteString(l.vs.Run("ovs-vsctl", "--columns=name,external_ids,other_config,fail_mode,datapath_type", "list", "bridge"))
	out.WriteString(l.vs.Run("ovs-vsctl", "--columns=external_ids", "list", "Open_vSwitch"))
	n, err := l.node.Core().V1().Nodes().Lister().Get(nodeName)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range []string{kube.AnnotationChassisID, kube.AnnotationL3Gateway, kube.AnnotationManagementMAC,
		kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses} {
		out.WriteString(name + "=" + n.Annotations[name] + "\n")
	}
	return out.String()
}

func (l *lab) same(what, before string) {
	l.t.Helper()
	if after := l.state(); after != before {
		l.t.Errorf("%s: state differs\nbefore:\n%s\nafter:\n%s", what, before, after)
	}
}

// TestRestartWritesNothing restarts the process on a node that is up: nothing
// is written anywhere, and no connection is disturbed.
func TestRestartWritesNothing(t *testing.T) {
	l := newLab(t)
	l.up()
	// The kernel reports when its own link-local addresses are no longer tentative.
	eventually.True(t, "no tentative address", func() bool {
		return l.ns.Run("ip", "-6", "address", "show", "tentative") == ""
	})
	before := l.state()
	events := l.watch()
	cfg := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "next_cfg")
	calls := len(l.kube.Actions())
	l.mustPass(l.start(l.db))
	l.same("restart", before)
	if got := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "next_cfg"); got != cfg {
		t.Errorf("the Open vSwitch database was written: next_cfg %s, before %s", got, cfg)
	}
	if got := l.kube.Actions()[calls:]; len(got) > 0 {
		t.Errorf("the API server was called: %v", got)
	}
	if got := events(); got != "" {
		t.Errorf("the kernel was written:\n%s", got)
	}
}

// watch collects changes of links, addresses and routes until the returned function is called.
func (l *lab) watch() func() string {
	l.t.Helper()
	out := &lines{}
	cmd := exec.Command("ip", "monitor", "link", "address", "route")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// Routes added by the test mark the beginning and the end.
	mark := func(prefix string) {
		eventually.True(l.t, "a mark in ip monitor", func() bool {
			l.ns.Run("ip", "route", "add", prefix, "dev", "lo")
			l.ns.Run("ip", "route", "del", prefix, "dev", "lo")
			return strings.Contains(out.String(), prefix)
		})
	}
	mark("203.0.113.1")
	return func() string {
		mark("203.0.113.2")
		var seen strings.Builder
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, "203.0.113.") {
				seen.WriteString(line)
			}
		}
		return seen.String()
	}
}

// lines is a buffer that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// crashing is an ovs.Client whose nth change of the database succeeds and after
// which the process counts as dead for the database.
type crashing struct {
	ovs.Client
	left int
}

var errCrash = errors.New("crash")

func (c *crashing) do(f func() error) error {
	if c.left <= 0 {
		return errCrash
	}
	if err := f(); err != nil {
		return err
	}
	if c.left--; c.left == 0 {
		return errCrash
	}
	return nil
}

func (c *crashing) EnsureBridge(ctx context.Context, b ovs.Bridge) error {
	return c.do(func() error { return c.Client.EnsureBridge(ctx, b) })
}

func (c *crashing) EnsurePort(ctx context.Context, p ovs.Port) error {
	return c.do(func() error { return c.Client.EnsurePort(ctx, p) })
}

func (c *crashing) SetSystem(ctx context.Context, ids map[string]string) error {
	return c.do(func() error { return c.Client.SetSystem(ctx, ids) })
}

// TestCrashAtEachStep kills the first start after each of its writes to Open
// vSwitch; the next start has the same result as an undisturbed one.
func TestCrashAtEachStep(t *testing.T) {
	undisturbed := newLab(t)
	undisturbed.up()
	want := undisturbed.attachment("breth0") + undisturbed.attachment("eth0") + strings.Join(undisturbed.vs.FlowsByName("breth0"), "\n")
	for n, finished := 1, false; !finished; n++ {
		t.Run("write", func(t *testing.T) {
			l := newLab(t)
			l.annotate(kube.AnnotationNodeSubnets, subnets)
			err := l.pass(l.start(&crashing{Client: l.db, left: n}))
			if finished = err == nil; finished {
				return
			}
			if !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			l.reachable()
			l.up()
			l.reachable()
			if got := l.attachment("breth0") + l.attachment("eth0") + strings.Join(l.vs.FlowsByName("breth0"), "\n"); got != want {
				t.Errorf("after a crash at write %d:\n%s\nwant:\n%s", n, got, want)
			}
		})
		if n > 30 {
			t.Fatal("a start never ends")
		}
	}
}

// TestHalfMoved starts with the states after a crash between two netlink writes,
// and after reboots and accidents.
func TestHalfMoved(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(l *lab)
	}{
		{"an address on both", func(l *lab) { l.ns.Run("ip", "addr", "add", "172.18.0.3/16", "dev", "eth0") }},
		{"one address on the uplink only", func(l *lab) {
			l.ns.Run("ip", "addr", "del", "172.18.0.3/16", "dev", "breth0")
			l.ns.Run("ip", "addr", "add", "172.18.0.3/16", "dev", "eth0")
			l.ns.Run("ip", "route", "replace", "default", "via", "172.18.0.1", "dev", "eth0", "metric", "100")
			l.ns.Run("ip", "route", "replace", "192.0.2.0/24", "via", "172.18.0.1", "dev", "eth0", "src", "172.18.0.3", "mtu", "1300")
			l.ns.Run("ip", "route", "replace", "198.51.100.0/24", "via", "172.18.0.1", "dev", "eth0", "table", "77")
		}},
		{"a reboot with boot scripts", func(l *lab) {
			l.ns.Run("ip", "addr", "flush", "dev", "breth0")
			l.ns.Run("nft", "flush", "ruleset")
			l.ns.Run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0")
			l.hostAddresses("eth0")
		}},
		{"a reboot without", func(l *lab) {
			l.ns.Run("nft", "flush", "ruleset")
			l.ns.Run("ip", "addr", "flush", "dev", "breth0")
		}},
		{"the bridge was down", func(l *lab) { l.ns.Run("ip", "link", "set", "breth0", "down") }},
		{"Open vSwitch made the bridge anew", func(l *lab) {
			l.vs.StopVswitchd()
			for _, dev := range []string{"breth0", topology.ManagementPort, "br-int"} {
				_, _ = l.ns.Try("ip", "link", "del", dev)
			}
			l.vs.StartVswitchd()
		}},
		{"somebody deleted the bridges", func(l *lab) { l.deleteBridges("breth0", "br-int") }},
		{"somebody made the bridge again", func(l *lab) {
			l.deleteBridges("breth0")
			l.vs.Run("ovs-vsctl", "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev")
			l.noticed("breth0", true)
		}},
		{"the database was lost", func(l *lab) { l.vs.LoseDatabase() }},
		{"the database was lost, and start scripts know the identity", func(l *lab) {
			l.vs.LoseDatabase()
			l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1", "external_ids:hostname="+nodeName)
		}},
		{"the database was lost with the machine off", func(l *lab) {
			l.vs.StopVswitchd()
			for _, dev := range []string{"breth0", topology.ManagementPort, "br-int"} {
				_, _ = l.ns.Try("ip", "link", "del", dev)
			}
			l.ns.Run("nft", "flush", "ruleset")
			l.ns.Run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0")
			l.hostAddresses("eth0")
			l.vs.LoseDatabase()
			l.vs.StartVswitchd()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.up()
			host := words(l.attachment("breth0"))
			ids := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids")
			c.breaks(l)
			l.up()
			if got := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids"); got != ids {
				t.Errorf("external_ids are\n%s\nwant\n%s", got, ids)
			}
			if got := words(l.attachment("breth0")); got != host {
				t.Errorf("the host has\n%s\nwant\n%s", got, host)
			}
			if got := l.attachment("eth0"); strings.Contains(got, ".") {
				t.Errorf("the uplink has\n%s", got)
			}
			l.reachable()
		})
	}
}

// TestCrashWhileRestoring deletes the external bridge, and kills the start that recreates it
// after each of its writes to Open vSwitch: nothing of the host's state is lost.
func TestCrashWhileRestoring(t *testing.T) {
	l := newLab(t)
	l.up()
	host := words(l.attachment("breth0"))
	for n, finished := 1, false; !finished; n++ {
		l.deleteBridges("breth0")
		// The second start may find the bridge, with an interface that does not carry the host yet.
		finished = true
		for range 2 {
			if err := l.pass(l.start(&crashing{Client: l.db, left: n})); err != nil && !errors.Is(err, errCrash) {
				t.Fatal(err)
			} else if err != nil {
				finished = false
			}
		}
		l.up()
		if got := words(l.attachment("breth0")); got != host {
			t.Fatalf("after a crash at write %d the host has\n%s\nwant\n%s", n, got, host)
		}
		if n > 30 {
			t.Fatal("a start never ends")
		}
	}
	l.reachable()
}

// meddling is an ovs.Client that calls back before each change of the database.
type meddling struct {
	ovs.Client
	before func()
}

func (m meddling) EnsureBridge(ctx context.Context, b ovs.Bridge) error {
	m.before()
	return m.Client.EnsureBridge(ctx, b)
}

func (m meddling) EnsurePort(ctx context.Context, p ovs.Port) error {
	m.before()
	return m.Client.EnsurePort(ctx, p)
}

// TestBridgeDownInMidPass sets the bridge down at each step of a pass, which removes
// most of its routes.
func TestBridgeDownInMidPass(t *testing.T) {
	l := newLab(t)
	l.up()
	host := words(l.attachment("breth0"))
	for n, finished := 1, false; !finished; n++ {
		left := n
		_ = l.pass(l.start(meddling{l.db, func() {
			if left--; left == 0 {
				l.ns.Run("ip", "link", "set", "breth0", "down")
			}
		}}))
		finished = left > 0
		l.mustPass(l.start(l.db))
		if got := words(l.attachment("breth0")); got != host {
			t.Fatalf("down before change %d, the host has\n%s\nwant\n%s", n, got, host)
		}
		l.reachable()
	}
}

// TestAddressInMidPass gives the uplink an address and a route at each step of a pass, like a boot script or a DHCP
// client: the next pass moves them, too.
func TestAddressInMidPass(t *testing.T) {
	l := newLab(t)
	l.up()
	for n, finished := 1, false; !finished; n++ {
		left, addr, to := n, fmt.Sprintf("172.18.7.%d/32", n), fmt.Sprintf("203.0.113.%d", n)
		l.mustPass(l.start(meddling{l.db, func() {
			if left--; left == 0 {
				l.ns.Run("ip", "addr", "add", addr, "dev", "eth0")
				l.ns.Run("ip", "route", "add", to, "via", "172.18.0.1", "dev", "eth0", "onlink")
			}
		}}))
		if finished = left > 0; finished {
			break
		}
		l.mustPass(l.start(l.db))
		if got := l.attachment("breth0"); !strings.Contains(got, addr) || !strings.Contains(got, to+" ") {
			t.Errorf("%s and the route to %s were added before change %d, and the host has\n%s", addr, to, n, got)
		}
		if got := l.attachment("eth0"); strings.Contains(got, addr) || strings.Contains(got, to+" ") {
			t.Errorf("after change %d the uplink still has\n%s", n, got)
		}
	}
}

// TestIdentityLostInMidPass: a system-id that somebody removes during a pass is not forgotten.
func TestIdentityLostInMidPass(t *testing.T) {
	l := newLab(t)
	l.up()
	identity := func() string {
		ids, err := l.db.System(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ids[idSystem]
	}
	for n, finished := 1, false; !finished; n++ {
		left := n
		_ = l.pass(l.start(meddling{l.db, func() {
			if left--; left == 0 {
				l.vs.Run("ovs-vsctl", "remove", "Open_vSwitch", ".", "external_ids", idSystem)
				eventually.True(t, "the client to notice", func() bool { return identity() == "" })
			}
		}}))
		finished = left > 0
		l.mustPass(l.start(l.db))
		if got := identity(); got != "chassis-1" {
			t.Fatalf("removed before change %d, the identity becomes %q", n, got)
		}
	}
}

// words sorts the words of each line, since the order of addresses does not matter.
func words(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		slices.Sort(w)
		out = append(out, strings.Join(w, " "))
	}
	return strings.Join(out, "\n")
}

// TestConnectionsSurvive keeps a connection open and busy while the host
// moves onto the bridge and back.
func TestConnectionsSurvive(t *testing.T) {
	l := newLab(t)
	var listener net.Listener
	if err := link.Inside("/run/netns/far", func() (err error) {
		listener, err = net.Listen("tcp", "172.18.0.1:9000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	conn, err := net.DialTimeout("tcp", "172.18.0.1:9000", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	longest, stop := time.Duration(0), make(chan struct{})
	talked := make(chan error, 1)
	go func() {
		buf := make([]byte, 1)
		for {
			select {
			case <-stop:
				talked <- nil
				return
			default:
			}
			start := time.Now()
			_ = conn.SetDeadline(start.Add(10 * time.Second))
			if _, err := conn.Write(buf); err != nil {
				talked <- err
				return
			}
			if _, err := io.ReadFull(conn, buf); err != nil {
				talked <- err
				return
			}
			longest = max(longest, time.Since(start))
		}
	}()
	l.up()
	l.reachable()
	if err := (Cleaner{OVS: l.db}).Cleanup(context.Background()); err != nil {
		t.Error(err)
	}
	l.reachable()
	close(stop)
	if err := <-talked; err != nil {
		t.Errorf("the connection broke: %v", err)
	}
	t.Logf("longest silence %v", longest)
	// TCP asks again after 0.2, 0.6, 1.4, 3 and 6.2 seconds, on idle machines.
	if longest > 7*time.Second {
		t.Errorf("the connection was silent for %v", longest)
	}
}

// TestCleanup restores the state of the host before the first start.
func TestCleanup(t *testing.T) {
	l := newLab(t)
	look := func() string {
		return l.attachment("eth0") + l.ns.Run("sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
			"net.ipv4.conf.all.send_redirects", "net.ipv6.conf.eth0.disable_ipv6") +
			strings.Join(rules(l.ns.Run("iptables-save")+l.ns.Run("ip6tables-save")), "\n") +
			l.vs.Run("ovs-vsctl", "list-br")
	}
	before := look()
	file := l.up().StateFile
	for range 2 {
		if err := (Cleaner{OVS: l.db, ControllerIDs: slices.Collect(maps.Keys(l.start(l.db).ControllerIDs)), Node: nodeName, StateFile: file}).Cleanup(context.Background()); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(iptables.Cleanup(context.Background()), route.NewSet().Sweep(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		if after := look(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	}
	eventually.True(t, "the management port to go", func() bool {
		_, err := l.ns.Try("ip", "link", "show", topology.ManagementPort)
		return err != nil
	})
	if got := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids"); strings.Contains(got, "physnet") || !strings.Contains(got, "chassis-1") {
		t.Errorf("external_ids are %s", got)
	}
	l.reachable()
	if _, err := os.Stat(file); err == nil {
		t.Error("the state file is left")
	}
	l.up()
	l.reachable()
	l.deleteBridges("breth0")
	host := l.attachment("eth0")
	if err := (Cleaner{OVS: l.db, Node: nodeName, StateFile: file}).Cleanup(context.Background()); err != nil {
		t.Fatal(err)
	}
	if after := l.attachment("eth0"); !strings.Contains(after, "172.18.0.3/16") || !strings.Contains(after, "default via") {
		t.Errorf("the uplink has\n%s\nbefore\n%s", after, host)
	}
	l.reachable()
}

func rules(save string) []string {
	var out []string
	for line := range strings.Lines(save) {
		if strings.HasPrefix(line, "-A") || strings.Contains(line, "OVN-KUBE") {
			out = append(out, line)
		}
	}
	return out
}

// TestAnotherInterface moves the host back when the configuration names another
// uplink, and rejects an uplink whose MTU is too small without touching the host.
func TestAnotherInterface(t *testing.T) {
	l := newLab(t)
	before := l.attachment("eth0")
	l.up()
	l.ns.Run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "far1", "netns", "far")
	l.ns.Run("ip", "link", "set", "eth1", "up")
	l.ns.Run("ip", "addr", "add", "172.19.0.3/16", "dev", "eth1")
	l.ns.Run("ip", "addr", "add", "fc00:19::3/64", "dev", "eth1", "nodad")
	l.ns.Run("ip", "link", "set", "eth1", "mtu", "1450")
	g := l.start(l.db)
	g.Interface = "eth1"
	if err := l.pass(g); err == nil || !strings.Contains(err.Error(), "MTU of 1450, tunnels for pods with 1400 need 1458") {
		t.Errorf("a small MTU: %v", err)
	}
	if got := l.attachment("eth0"); words(got) != words(before) {
		t.Errorf("the old uplink has\n%s\nwant\n%s", got, before)
	}
	l.reachable()
	l.ns.Run("ip", "link", "set", "eth1", "mtu", "1500")
	l.mustPass(g)
	if got := l.attachment("breth1"); !strings.Contains(got, "172.19.0.3/16") || !strings.Contains(got, "fc00:19::3/64") {
		t.Errorf("the new bridge has\n%s", got)
	}
	if got := l.vs.Run("ovs-vsctl", "list-br"); got != "br-int\nbreth1" {
		t.Errorf("bridges are %s", got)
	}
	l.reachable()
}

// TestMemoryOfAnotherNode: a copy of a machine's disk does not affect another node.
func TestMemoryOfAnotherNode(t *testing.T) {
	l := newLab(t)
	g := l.up()
	if got := recall(g.StateFile, nodeName); got.Bridge != "breth0" || got.System[idSystem] != "chassis-1" {
		t.Errorf("remembered is %+v", got)
	}
	if got := recall(g.StateFile, "n2"); got.Bridge != "" || len(got.System) > 0 {
		t.Errorf("another node remembers %+v", got)
	}
	if err := os.WriteFile(g.StateFile, []byte(`{"node":"n1","bri`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := recall(g.StateFile, nodeName); got.Bridge != "" {
		t.Errorf("a torn file has %+v", got)
	}
}
