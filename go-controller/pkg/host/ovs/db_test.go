package ovs_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// setup starts an Open vSwitch and a DB connected to it.
func setup(t *testing.T) (*netnstest.NS, *netnstest.OVS, *ovs.DB) {
	t.Helper()
	ns := netnstest.New(t)
	o := ns.OVS()
	return ns, o, ovs.New(t.Context(), o.Endpoint())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// limited returns a context for calls that must not succeed.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func get(o *netnstest.OVS, args ...string) string {
	return strings.Trim(o.Run("ovs-vsctl", args...), `"`)
}

// TestBridgeAndPorts creates what a node has and reads it back with ovs-vsctl.
func TestBridgeAndPorts(t *testing.T) {
	ns, o, db := setup(t)
	ctx := t.Context()
	ns.Veth("eth0", "wire")
	build := func() {
		t.Helper()
		must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "br-int", DatapathType: "netdev", FailMode: "secure",
			OtherConfig: map[string]string{"disable-in-band": "true"}}))
		must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "breth0", DatapathType: "netdev", FailMode: "standalone",
			MAC: "02:42:ac:12:00:03", ExternalIDs: map[string]string{"bridge-id": "breth0", "bridge-uplink": "eth0"}}))
		must(t, db.EnsurePort(ctx, ovs.Port{Bridge: "breth0", Name: "eth0"}))
		must(t, db.EnsurePort(ctx, ovs.Port{Bridge: "br-int", Name: "ovn-k8s-mp0", Type: "internal", MTU: 1400,
			MAC: "0a:58:0a:f4:01:02", ExternalIDs: map[string]string{ovs.IfaceID: "k8s-node1"},
			PortExternalIDs: map[string]string{"owner": "ovnkube"}}))
		must(t, db.SetSystem(ctx, map[string]string{"ovn-encap-type": "geneve", "ovn-bridge": "br-int"}))
	}
	build()
	must(t, db.Sync(ctx))
	for want, args := range map[string][]string{
		"br-int\nbreth0":    {"list-br"},
		"netdev":            {"get", "bridge", "breth0", "datapath_type"},
		"standalone":        {"get", "bridge", "breth0", "fail_mode"},
		"eth0":              {"br-get-external-id", "breth0", "bridge-uplink"},
		"02:42:ac:12:00:03": {"get", "interface", "breth0", "mac_in_use"},
		"breth0":            {"port-to-br", "eth0"},
		"0a:58:0a:f4:01:02": {"get", "interface", "ovn-k8s-mp0", "mac_in_use"},
		"1400":              {"get", "interface", "ovn-k8s-mp0", "mtu"},
		"geneve":            {"get", "Open_vSwitch", ".", "external_ids:ovn-encap-type"},
	} {
		if got := get(o, args...); got != want {
			t.Errorf("ovs-vsctl %s: %q, want %q", strings.Join(args, " "), got, want)
		}
	}
	if got := ns.Run("ip", "-o", "link", "show", "ovn-k8s-mp0"); !strings.Contains(got, "mtu 1400") {
		t.Errorf("the management port is %s", got)
	}

	// The second time nothing is written.
	before := get(o, "get", "Open_vSwitch", ".", "next_cfg")
	build()
	if after := get(o, "get", "Open_vSwitch", ".", "next_cfg"); after != before {
		t.Errorf("a no-op wrote: next_cfg went from %s to %s", before, after)
	}

	ports, err := db.Ports(ctx, "br-int")
	must(t, err)
	number, err := db.OFPort(ctx, "ovn-k8s-mp0")
	must(t, err)
	if len(ports) != 1 || ports[0].Name != "ovn-k8s-mp0" || ports[0].Type != "internal" || ports[0].MTU != 1400 ||
		ports[0].OFPort != number || ports[0].PortExternalIDs["owner"] != "ovnkube" {
		t.Errorf("ports of br-int: %+v", ports)
	}
	bridges, err := db.Bridges(ctx)
	must(t, err)
	if len(bridges) != 2 || bridges[1].MAC != "02:42:ac:12:00:03" || bridges[1].ExternalIDs["bridge-uplink"] != "eth0" {
		t.Errorf("bridges: %+v", bridges)
	}
}

// TestForeignKeys: keys that are not named are kept, "" deletes a key, a port can move and change.
func TestForeignKeys(t *testing.T) {
	_, o, db := setup(t)
	ctx := t.Context()
	for _, b := range []string{"br0", "br1"} {
		must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: b, DatapathType: "netdev"}))
	}
	p := ovs.Port{Bridge: "br0", Name: "p0", Type: "internal", MTU: 1400, MAC: "0a:58:00:00:00:01",
		ExternalIDs: map[string]string{"ours": "1", "other": "2"}}
	must(t, db.EnsurePort(ctx, p))
	o.Run("ovs-vsctl", "set", "interface", "p0", "external_ids:ovn-installed=true")
	o.Run("ovs-vsctl", "set", "bridge", "br0", "external_ids:foreign=x", "other_config:foreign=y")
	p.Bridge, p.MTU, p.MAC = "br1", 1300, "0a:58:00:00:00:02"
	p.ExternalIDs = map[string]string{"ours": "3", "other": "", "absent": ""}
	must(t, db.EnsurePort(ctx, p))
	must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "br0", FailMode: "secure", MAC: "02:00:00:00:00:09",
		ExternalIDs: map[string]string{"mine": "z"}}))
	must(t, db.SetSystem(ctx, map[string]string{"a": "1", "b": "2"}))
	must(t, db.SetSystem(ctx, map[string]string{"a": "", "b": "3"}))

	if got := get(o, "get", "interface", "p0", "external_ids"); got != `{ours="3", ovn-installed="true"}` {
		t.Errorf("external_ids of the interface: %s", got)
	}
	if got := get(o, "port-to-br", "p0"); got != "br1" {
		t.Errorf("the port is on %s", got)
	}
	if got := get(o, "get", "interface", "p0", "mtu_request", "mac"); got != "1300\n\"0a:58:00:00:00:02" {
		t.Errorf("mtu and mac: %q", got)
	}
	if got := get(o, "get", "bridge", "br0", "external_ids", "other_config", "fail_mode"); got !=
		"{foreign=x, mine=z}\n{foreign=y, hwaddr=\"02:00:00:00:00:09\"}\nsecure" {
		t.Errorf("bridge: %s", got)
	}
	system, err := db.System(ctx)
	must(t, err)
	if _, ok := system["a"]; ok || system["b"] != "3" {
		t.Errorf("external_ids of the system: %v", system)
	}

	must(t, db.DeletePort(ctx, "br0", "p0")) // it is on br1 and stays
	if got := get(o, "list-ports", "br1"); got != "p0" {
		t.Errorf("ports of br1: %s", got)
	}
	must(t, db.DeletePort(ctx, "br1", "p0"))
	must(t, db.DeletePort(ctx, "br1", "p0"))
	must(t, db.DeleteBridge(ctx, "br1"))
	must(t, db.DeleteBridge(ctx, "br1"))
	if got := get(o, "list-br"); got != "br0" {
		t.Errorf("bridges: %s", got)
	}
	if err := db.EnsurePort(ctx, ovs.Port{Bridge: "br1", Name: "p0"}); !errors.Is(err, ovs.ErrNotFound) {
		t.Errorf("a port of a bridge that is gone: %v", err)
	}
	if _, err := db.Ports(ctx, "br1"); !errors.Is(err, ovs.ErrNotFound) {
		t.Errorf("ports of a bridge that is gone: %v", err)
	}
}

// TestWaits: waits end when what they wait for happens, and return why they wait when their context
// ends.
func TestWaits(t *testing.T) {
	_, o, db := setup(t)
	ctx := t.Context()
	must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "br0", DatapathType: "netdev"}))

	_, err := db.OFPort(limited(t), "p0")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a port that is not there: %v", err)
	}
	must(t, db.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: "nodev0"}))
	must(t, db.Sync(ctx))
	if _, err = db.OFPort(limited(t), "nodev0"); err == nil || !strings.Contains(err.Error(), "nodev0") {
		t.Errorf("a port without a device: %v", err)
	}
	ports, err := db.Ports(ctx, "br0")
	must(t, err)
	if len(ports) != 1 || ports[0].Error == "" {
		t.Errorf("a port without a device has no error: %+v", ports)
	}

	installed := make(chan error, 1)
	go func() { installed <- db.WaitInstalled(ctx, "p0", "ns_pod") }()
	must(t, db.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: "p0", Type: "internal",
		ExternalIDs: map[string]string{ovs.IfaceID: "ns_pod"}}))
	if number, err := db.OFPort(ctx, "p0"); err != nil || number <= 0 {
		t.Errorf("number %d, %v", number, err)
	}
	if err := db.WaitInstalled(limited(t), "p0", "ns_pod"); err == nil || !strings.Contains(err.Error(), ovs.Installed) {
		t.Errorf("before the flows are in: %v", err)
	}
	o.Run("ovs-vsctl", "set", "interface", "p0", "external_ids:ovn-installed=true")
	must(t, <-installed)
	if err := db.WaitInstalled(limited(t), "p0", "ns_other"); err == nil || !strings.Contains(err.Error(), "ns_pod") {
		t.Errorf("claimed for another port: %v", err)
	}

	o.StopVswitchd()
	if err := db.Sync(limited(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Sync without ovs-vswitchd: %v", err)
	}
	synced := make(chan error, 1)
	go func() { synced <- db.Sync(ctx) }()
	o.StartVswitchd()
	must(t, <-synced)
}

// TestAbandoned: whether or not an abandoned transaction was carried out, the next reader or writer
// sees its outcome.
func TestAbandoned(t *testing.T) {
	_, o, db := setup(t)
	ctx := t.Context()
	must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "br0", DatapathType: "netdev"}))
	late := ovs.Port{Bridge: "br0", Name: "late", Type: "internal"}
	for range 3 {
		o.Freeze()
		if err := db.EnsurePort(limited(t), late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that does not answer: %v", err)
		}
		ports := make(chan []ovs.Port, 1)
		go func() {
			defer close(ports)
			if all, err := db.Ports(ctx, "br0"); err == nil {
				ports <- all
			}
		}()
		deleted := make(chan error, 1)
		go func() { deleted <- db.DeletePort(ctx, "br0", "late") }()
		if _, err := db.Ports(limited(t), "br0"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is not known which ports there are, and was told with %v", err)
		}
		o.Thaw()
		must(t, <-deleted)
		if _, ok := <-ports; !ok {
			t.Error("the ports are not told")
		}
		if got := get(o, "list-ports", "br0"); got != "" {
			t.Fatalf("left: %s", got)
		}
	}
	must(t, db.EnsurePort(ctx, late))
	if got := get(o, "list-ports", "br0"); got != "late" {
		t.Errorf("ports are %q", got)
	}
}

// TestLacks: only capabilities that a datapath denies are lacking.
func TestLacks(t *testing.T) {
	_, o, db := setup(t)
	must(t, db.EnsureBridge(t.Context(), ovs.Bridge{Name: "br0", DatapathType: "netdev"}))
	must(t, db.Sync(t.Context()))
	lacks := func(want bool) {
		t.Helper()
		have, err := db.Lacks(t.Context(), "check_pkt_len")
		if err != nil || have != want {
			t.Errorf("lacks: %v (%v), want %v", have, err, want)
		}
	}
	lacks(false)
	o.Run("ovs-vsctl", "--id=@d", "create", "datapath", "datapath_version=0", "--", "set", "open_vswitch", ".", "datapaths:netdev=@d")
	must(t, db.Sync(t.Context()))
	lacks(false)
	id := get(o, "--bare", "--columns=_uuid", "list", "datapath")
	again := make(chan struct{}, 10)
	db.OnFlowsInstalled(func() { again <- struct{}{} })
	o.Run("ovs-vsctl", "set", "datapath", id, "capabilities:check_pkt_len=false", "--", "set", "bridge", "br0", "external_ids:ovn-nb-cfg=1")
	<-again // the replica has it
	lacks(true)
}

// TestInForce: progress of ovn-controller is reported, and nothing else about a bridge.
func TestInForce(t *testing.T) {
	_, o, db := setup(t)
	must(t, db.EnsureBridge(t.Context(), ovs.Bridge{Name: "br0", DatapathType: "netdev"}))
	told := make(chan struct{}, 10)
	db.OnFlowsInstalled(func() { told <- struct{}{} })
	o.Run("ovs-vsctl", "set", "bridge", "br0", "external_ids:other=1")
	o.Run("ovs-vsctl", "set", "bridge", "br0", "external_ids:ovn-nb-cfg=7", "external_ids:ovn-nb-cfg-ts=1")
	<-told
	o.Run("ovs-vsctl", "set", "bridge", "br0", "external_ids:ovn-nb-cfg-ts=2")
	o.Run("ovs-vsctl", "set", "bridge", "br0", "external_ids:ovn-nb-cfg=8")
	<-told
	if n := len(told); n != 0 {
		t.Errorf("told %d times too often", n)
	}
}

// TestUndone: what others take away of that which was written is reported, once, and neither our own writes nor what
// others write for themselves.
func TestUndone(t *testing.T) {
	_, o, db := setup(t)
	ctx := t.Context()
	told := make(chan string, 100)
	db.OnSystem(func() { told <- "system" })
	bridge := func(key string) ovs.Bridge {
		return ovs.Bridge{Name: "br0", DatapathType: "netdev", FailMode: "secure", MAC: "02:00:00:00:00:09", Tag: ovs.NoTag,
			ExternalIDs: map[string]string{"mine": key, "ct-zone-pod": "7"}}
	}
	write := func(key string) {
		t.Helper()
		must(t, db.EnsureBridge(ctx, bridge(key)))
		must(t, db.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: "p0", Type: "internal", Trunks: []int{4095}, PortExternalIDs: map[string]string{"mine": key}}))
		must(t, db.SetSystem(ctx, map[string]string{"ovn-remote": key, "other": ""}))
		must(t, db.SetTLS(ctx, ovs.TLS{PrivateKey: "/k" + key, Certificate: "/c", CACert: "/ca"}))
	}
	foreign := func(n string) {
		t.Helper()
		o.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:theirs="+n, "external_ids:system-id="+n, "other_config:ovn-chassis-idx-"+n+"=1",
			"--", "set", "bridge", "br0", "external_ids:ct-zone-lr=4"+n, "external_ids:ovn-nb-cfg="+n,
			"--", "remove", "bridge", "br0", "external_ids", "ct-zone-pod",
			"--", "set", "port", "p0", "external_ids:theirs="+n)
	}
	write("1")
	write("2")
	must(t, db.Sync(ctx))
	db.OnInterface(func(name string) { told <- name })
	for _, c := range []struct {
		want string
		by   []string
	}{
		{"system", []string{"remove", "Open_vSwitch", ".", "external_ids", "ovn-remote"}},
		{"system", []string{"set", "Open_vSwitch", ".", "external_ids:ovn-remote=3"}},
		{"system", []string{"set", "Open_vSwitch", ".", "external_ids:other=3"}},
		{"system", []string{"remove", "Open_vSwitch", ".", "external_ids", "system-id"}},
		{"system", []string{"del-ssl"}},
		{"system", []string{"set-ssl", "/k3", "/c", "/ca"}},
		{"system", []string{"set", "SSL", ".", "private_key=/k3"}},
		{"br0", []string{"remove", "bridge", "br0", "external_ids", "mine"}},
		{"br0", []string{"remove", "bridge", "br0", "other_config", "hwaddr"}},
		{"br0", []string{"set", "bridge", "br0", "fail_mode=standalone"}},
		{"br0", []string{"set", "port", "br0", "tag=7"}},
		{"p0", []string{"clear", "port", "p0", "trunks"}},
		{"p0", []string{"remove", "port", "p0", "external_ids", "mine"}},
	} {
		o.Run("ovs-vsctl", c.by...)
		if got := eventually.Receive(t, "word of "+strings.Join(c.by, " "), told); got != c.want {
			t.Errorf("%v: told of %s, want %s", c.by, got, c.want)
		}
		write("2")
		foreign("1")
		foreign("2")
		must(t, db.Sync(ctx))
		if n := len(told); n != 0 {
			t.Errorf("%v: told %d times too often: %s", c.by, n, <-told)
		}
	}
}

// TestReconnect: callers wait while ovsdb-server is down, and go on with the content that it has
// afterwards.
func TestReconnect(t *testing.T) {
	_, o, db := setup(t)
	ctx := t.Context()
	again := make(chan struct{}, 10)
	db.OnReconnect(func() { again <- struct{}{} })
	var mu sync.Mutex
	seen := map[string]bool{}
	db.OnInterface(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		seen[name] = true
	})
	must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "br0", DatapathType: "netdev"}))

	for range 3 {
		o.StopServer()
		eventually.True(t, "the loss to be noticed", func() bool {
			_, err := db.System(limited(t))
			return err != nil
		})
		done := make(chan error, 1)
		go func() { done <- db.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: "p0", Type: "internal"}) }()
		o.StartServer()
		must(t, <-done)
		<-again
		ports, err := db.Ports(ctx, "br0")
		must(t, err)
		if len(ports) != 1 {
			t.Errorf("ports after a restart: %+v", ports)
		}
		must(t, db.DeletePort(ctx, "br0", "p0"))
	}
	mu.Lock()
	names := slices.Sorted(maps.Keys(seen))
	mu.Unlock()
	if !slices.Equal(names, []string{"br0", "p0"}) {
		t.Errorf("told of %v", names)
	}
}

// TestConcurrent: pods are added and deleted at the same time.
func TestConcurrent(t *testing.T) {
	_, o, db := setup(t)
	ctx := t.Context()
	must(t, db.EnsureBridge(ctx, ovs.Bridge{Name: "br0", DatapathType: "netdev"}))
	var wg sync.WaitGroup
	const pods = 20
	for i := range pods {
		wg.Go(func() {
			name := "pod" + string(rune('a'+i))
			for range 3 {
				if err := db.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: name, Type: "internal"}); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					if err := db.DeletePort(ctx, "br0", name); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := len(strings.Fields(get(o, "list-ports", "br0"))); n != pods/2 {
		t.Errorf("%d ports, want %d", n, pods/2)
	}
}

// TestIncompleteReplica: the library cannot add a bridge to the replica, because a newer schema has an index on a
// column that it does not know. Nobody goes on with a replica that lacks it.
func TestIncompleteReplica(t *testing.T) {
	_, o, db := setup(t)
	_, err := db.System(t.Context())
	must(t, err)
	var schema map[string]any
	must(t, json.Unmarshal([]byte(o.Run("ovsdb-client", "get-schema", o.Endpoint())), &schema))
	schema["version"] = "99.0.0"
	bridge := schema["tables"].(map[string]any)["Bridge"].(map[string]any)
	bridge["columns"].(map[string]any)["newer"] = map[string]any{"type": "string"}
	bridge["indexes"] = append(bridge["indexes"].([]any), []string{"newer"})
	text, err := json.Marshal(schema)
	must(t, err)
	newer := filepath.Join(t.TempDir(), "schema")
	must(t, os.WriteFile(newer, text, 0o600))
	again := make(chan struct{}, 10)
	db.OnReconnect(func() { again <- struct{}{} })
	o.Run("ovsdb-client", "convert", o.Endpoint(), newer)
	eventually.Receive(t, "a connection to the converted database", again)
	o.Run("ovs-vsctl", "--no-wait", "add-br", "br0")
	eventually.True(t, "a replica without the bridge to be given up", func() bool {
		_, err := db.System(limited(t))
		return err != nil
	})
}
