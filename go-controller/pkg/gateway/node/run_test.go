package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// childDir names the directory of Open vSwitch to the child process.
const childDir = "GATEWAY_TEST_OVS_DIR"

// TestMain makes the test binary a node process if requested: Run
// uses its own goroutines, so all threads must be in the test's network
// namespace.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if outside, err = os.Readlink("/proc/self/ns/net"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// testTLS are the TLS files of a child.
var testTLS = ovs.TLS{PrivateKey: "/k", Certificate: "/c", CACert: "/ca"}

// outside is the network namespace of the machine.
var outside string

// child runs a Gateway until its standard input ends and prints the annotations
// of its node after each change, as JSON, and "ready".
func child(dir string) error {
	mine, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	if outside := os.Getenv("GATEWAY_TEST_OUTSIDE"); mine == outside || outside == "" {
		return fmt.Errorf("refusing to run in the network namespace %s of the machine", mine)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &lab{vs: &netnstest.OVS{Dir: dir}, db: ovs.New(ctx, "unix:"+dir+"/db.sock")}
	l.api(ctx, map[string]string{kube.AnnotationNodeSubnets: subnets})
	out := json.NewEncoder(os.Stdout)
	_, err = l.node.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) { _ = out.Encode(obj.(*corev1.Node).Annotations) },
	})
	if err != nil {
		return err
	}
	g, err := l.gateway(l.db)
	if err != nil {
		return err
	}
	g.TLS = testTLS
	ended := make(chan error, 2)
	go func() { ended <- g.Run(ctx) }()
	go func() { ended <- g.Flows.Run(ctx) }()
	go func() {
		<-g.Ready()
		fmt.Println("ready")
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// process is a running child.
type process struct {
	mu          sync.Mutex
	ready       bool
	annotations map[string]string
}

func (p *process) get(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.annotations[name]
}

func (p *process) isReady() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

func (p *process) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == "ready" {
		p.ready = true
	} else {
		_ = json.Unmarshal([]byte(text), &p.annotations)
	}
}

// run starts a child, which ends with the test.
func (l *lab) run() *process {
	l.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+l.vs.Dir, "GATEWAY_TEST_OUTSIDE="+outside)
	var log lines
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	p, read := &process{}, make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.line(s.Text())
		}
	}()
	l.t.Cleanup(func() {
		_ = stdin.Close()
		<-read
		if err := cmd.Wait(); err != nil || l.t.Failed() {
			l.t.Errorf("the node process: %v\n%s", err, log.String())
		}
	})
	return p
}

// TestRun checks how a node process reacts to changes of its host.
func TestRun(t *testing.T) {
	l := newLab(t)
	p := l.run()
	eventually.True(t, "the management port", func() bool {
		_, err := l.vs.Try("ovs-vsctl", "get", "interface", topology.ManagementPort, "ofport")
		return err == nil
	})
	if p.isReady() {
		t.Error("ready before ovn-controller did anything")
	}
	l.patchPort()
	l.claim()
	eventually.True(t, "the node to be ready", p.isReady)
	l.reachable()
	want := l.carried()

	l.ns.Veth("eth9", "eth9peer")
	l.ns.Run("ip", "addr", "add", "10.99.0.1/24", "dev", "eth9")
	eventually.True(t, "the new address in the annotation", func() bool {
		return strings.Contains(p.get(kube.AnnotationHostAddresses), "10.99.0.1/24")
	})
	l.ns.Run("ip", "link", "del", "eth9")
	eventually.True(t, "the address to leave the annotation", func() bool {
		return !strings.Contains(p.get(kube.AnnotationHostAddresses), "10.99.0.1/24")
	})

	restored := func(what string) {
		t.Helper()
		last := ""
		defer func() {
			if t.Failed() {
				t.Logf("after %s:\n%s\nwant:\n%s", what, last, want)
			}
		}()
		eventually.True(t, "the node to be restored after "+what, func() bool {
			last = l.carried()
			return last == want
		})
		l.reachable()
	}
	l.ns.Run("ip", "route", "del", "10.244.0.0/16")
	l.ns.Run("ip", "addr", "del", "10.244.1.2/24", "dev", topology.ManagementPort)
	restored("losing an address and routes")
	l.ns.Run("ip", "addr", "add", "172.18.0.3/16", "dev", "eth0")
	restored("a DHCP client setting the uplink's address again")
	l.ns.Run("ip", "link", "set", "breth0", "down")
	restored("the bridge being down")
	l.vs.StopVswitchd()
	l.vs.StartVswitchd()
	l.claim()
	restored("a restart of ovs-vswitchd")
	l.vs.StopServer()
	l.vs.StartServer()
	l.ns.Run("ip", "link", "set", topology.ManagementPort, "down")
	restored("a restart of ovsdb-server")
	l.vs.Run("ovs-vsctl", "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	l.vs.Run("ovs-vsctl", "del-port", topology.ManagementPort)
	eventually.True(t, "the management port to come back", func() bool {
		_, err := l.vs.Try("ovs-vsctl", "get", "interface", topology.ManagementPort, "ofport")
		return err == nil
	})
	restored("losing the management port")
	// Whether this parameter of the recreated bridge is recorded is undetermined: the kernel
	// sets it for a new interface, and it is removed with the bridge.
	const ofBridge = `\"net/ipv6/conf/breth0/accept_ra\":\"1\",`
	ids := func() string {
		return strings.ReplaceAll(l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids"), ofBridge, "")
	}
	if !strings.Contains(ids(), "physnet:breth0") {
		t.Errorf("external_ids are %s", ids())
	}
	before := ids()
	for what, lose := range map[string]func(){
		"the external bridge":    func() { l.vs.Run("ovs-vsctl", "del-br", "breth0") },
		"the integration bridge": func() { l.vs.Run("ovs-vsctl", "del-br", "br-int") },
		"the database":           l.vs.LoseDatabase,
	} {
		lose()
		restored("losing " + what)
		eventually.True(t, "external_ids after losing "+what, func() bool { return ids() == before })
		l.patchPort()
		l.claim()
	}
}

// TestUndoneByOthers: what others remove from the database of Open vSwitch comes back on a node where nothing else happens.
func TestUndoneByOthers(t *testing.T) {
	l := newLab(t)
	p := l.run()
	eventually.True(t, "the management port", func() bool {
		_, err := l.vs.Try("ovs-vsctl", "get", "interface", topology.ManagementPort, "ofport")
		return err == nil
	})
	l.patchPort()
	l.claim()
	eventually.True(t, "the node to be ready", p.isReady)
	patch := topology.PatchPort("breth0", nodeName)
	look := func() string {
		return l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids") + l.vs.Run("ovs-vsctl", "get-ssl") +
			l.vs.Run("ovs-vsctl", "get", "port", patch, "trunks") + l.vs.Run("ovs-vsctl", "get", "bridge", "breth0", "external_ids")
	}
	before := look()
	for _, undo := range [][]string{
		{"remove", "Open_vSwitch", ".", "external_ids", idRemote},
		{"remove", "Open_vSwitch", ".", "external_ids", idSystem},
		{"remove", "Open_vSwitch", ".", "external_ids", idEncapIP},
		{"remove", "Open_vSwitch", ".", "external_ids", idMappings},
		{"set", "Open_vSwitch", ".", "external_ids:ovn-encap-type=vxlan"},
		{"del-ssl"},
		{"clear", "port", patch, "trunks"},
		{"remove", "bridge", "breth0", "external_ids", idBridgeUplink},
	} {
		l.vs.Run("ovs-vsctl", undo...)
		eventually.True(t, strings.Join(undo, " ")+" to be undone", func() bool { return look() == before }, eventually.Dump(look))
	}
}

// TestMappingInMidPass: what an administrator maps to a bridge during a pass stays mapped, and what is unmapped stays
// unmapped.
func TestMappingInMidPass(t *testing.T) {
	l := newLab(t)
	l.up()
	mapping := func() string {
		ids, err := l.db.System(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ids[idMappings]
	}
	for n, finished := 1, false; !finished; n++ {
		left, want := n, "physnet:breth0"
		if !strings.Contains(mapping(), "foo") {
			want += ",foo:br-foo"
		}
		l.mustPass(l.start(meddling{l.db, func() {
			if left--; left == 0 {
				l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", `external_ids:ovn-bridge-mappings="`+want+`"`)
				eventually.True(t, "the client to notice", func() bool { return mapping() == want })
			}
		}}))
		if finished = left > 0; finished {
			break
		}
		l.mustPass(l.start(l.db))
		if got := mapping(); got != want {
			t.Errorf("set to %s before change %d, the mapping becomes %s", want, n, got)
		}
	}
}

// TestMappingsOfLostDatabase: mappings of others come back with a lost database, also if the first pass fails, unless somebody has
// mapped the network meanwhile.
func TestMappingsOfLostDatabase(t *testing.T) {
	l := newLab(t)
	g := l.up()
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", `external_ids:ovn-bridge-mappings="physnet:breth0,foo:br-foo,bar:br-bar"`)
	mapping := func() string {
		ids, _ := l.db.System(t.Context())
		return ids[idMappings]
	}
	eventually.True(t, "the client to notice", func() bool { return strings.Contains(mapping(), "foo") })
	l.mustPass(g)
	l.vs.LoseDatabase()
	eventually.True(t, "the client to notice", func() bool {
		ids, err := l.db.System(t.Context())
		return err == nil && ids[idSystem] == ""
	})
	if err := l.pass(l.start(&crashing{Client: l.db, left: 2})); !errors.Is(err, errCrash) {
		t.Fatalf("the first pass: %v", err)
	}
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", `external_ids:ovn-bridge-mappings="bar:other"`)
	eventually.True(t, "the client to notice", func() bool { return mapping() == "bar:other" })
	l.up()
	if got, want := mapping(), "physnet:breth0,bar:other,foo:br-foo"; got != want {
		t.Errorf("mapped %s, want %s", got, want)
	}
}

// carried returns the host's state, in an order-independent form.
func (l *lab) carried() string {
	var out []string
	for _, dev := range []string{"eth0", "breth0", topology.ManagementPort} {
		for _, args := range [][]string{{"-br", "addr", "show", "dev", dev, "scope", "global"}, {"route", "show", "table", "all", "dev", dev}, {"-6", "route", "show", "table", "all", "dev", dev}} {
			text, err := l.ns.Try("ip", args...)
			if err != nil {
				return err.Error()
			}
			// A tap that was reopened shows UP instead of UNKNOWN.
			out = append(out, dev, words(keep(strings.ReplaceAll(text, "UNKNOWN", "UP"))))
		}
	}
	return strings.Join(out, "\n")
}
