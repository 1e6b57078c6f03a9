package node

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	bridgenode "github.com/ovnkube/ovnkube/go-controller/pkg/bridge/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/addr"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	nodeName = "n1"
	nodeMAC  = "02:42:ac:12:00:03"
	subnets  = `{"default":["10.244.1.0/24","fd00:10:244:2::/64"]}`
)

// lab is a host with an uplink to another machine and a real Open vSwitch.
type lab struct {
	t    *testing.T
	ns   *netnstest.NS
	vs   *netnstest.OVS
	db   *ovs.DB
	kube *fake.Clientset
	node informers.SharedInformerFactory
	// zones are the zones that ovn-controller reports to use.
	zones string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, ns: netnstest.New(t, netnstest.PrivateMounts())}
	l.vs = l.ns.OVS()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	l.db = ovs.New(ctx, l.vs.Endpoint())
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-datapath-type=netdev",
		"external_ids:system-id=chassis-1")
	l.wire()
	l.api(ctx, nil)
	return l
}

// api creates an API server with the node, and its informer.
func (l *lab) api(ctx context.Context, annotations map[string]string) {
	l.kube = fakeapi.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "u1", Annotations: annotations},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.18.0.3"}}},
	})
	l.node = informers.NewSharedInformerFactory(l.kube, 0)
	l.node.Core().V1().Nodes().Informer()
	l.node.Start(ctx.Done())
	l.node.WaitForCacheSync(ctx.Done())
}

// wire creates the uplink and the machine at its other end.
func (l *lab) wire() {
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _, _ = l.ns.Try("ip", "netns", "del", "far") })
	l.ip("netns add far", "link add eth0 address "+nodeMAC+" type veth peer name far0 netns far")
	l.farIP("link set lo up", "link set far0 up", "addr add 172.18.0.1/16 dev far0", "addr add fc00:18::1/64 dev far0 nodad")
	l.far("ethtool", "-K", "far0", "tx", "off", "tso", "off", "gso", "off")
	l.ns.Run("ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
	l.hostAddresses("eth0")
}

// hostAddresses does the part of the host's boot scripts.
func (l *lab) hostAddresses(dev string) {
	l.ip("link set "+dev+" up",
		"addr replace 172.18.0.3/16 dev "+dev,
		"addr replace 172.18.9.9/32 dev "+dev,
		"addr replace fc00:18::3/64 dev "+dev+" nodad",
		"route replace default via 172.18.0.1 dev "+dev+" metric 100",
		"route replace 192.0.2.0/24 via 172.18.0.1 dev "+dev+" src 172.18.0.3 mtu 1300",
		"route replace 198.51.100.0/24 via 172.18.0.1 dev "+dev+" table 77",
		"route replace default via fc00:18::1 dev "+dev)
}

// ip carries out commands of ip in one process.
func (l *lab) ip(commands ...string) {
	l.t.Helper()
	l.ns.Input(strings.Join(commands, "\n"), "ip", "-batch", "-")
}

// farIP does so on the other machine.
func (l *lab) farIP(commands ...string) {
	l.t.Helper()
	l.ns.Input(strings.Join(commands, "\n"), "ip", "-n", "far", "-batch", "-")
}

func (l *lab) far(name string, args ...string) string {
	l.t.Helper()
	return l.ns.Run("ip", append([]string{"netns", "exec", "far", name}, args...)...)
}

// start creates a Gateway without memory, like a restart of the process.
func (l *lab) start(db ovs.Client) *Gateway {
	l.t.Helper()
	g, err := l.gateway(db)
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

func (l *lab) gateway(db ovs.Client) (*Gateway, error) {
	chains, err := iptables.New(gateway.Chains(topology.Families))
	if err != nil {
		return nil, err
	}
	open := func(bridge string) bridgenode.Writer { return openflow.New(bridge, l.vs.Dir) }
	return New(Config{
		Node: nodeName, Families: topology.Families, Mode: topology.GatewayLocal, NodePort: true, MTU: 1400,
		ClusterSubnets:    prefixes("10.244.0.0/16", "fd00:10:244::/48"),
		ServiceCIDRs:      prefixes("10.96.0.0/16", "fd00:10:96::/112"),
		MasqueradeSubnets: prefixes("169.254.169.0/29", "fd69::/125"),
		ConntrackZone:     topology.ConntrackZone, EncapPort: 6081, StateFile: filepath.Join(l.vs.Dir, "node.json"),
		ControllerIDs: map[string]string{"ovn-remote": "tcp:172.18.0.1:6642", "ovn-encap-type": "geneve"},
	}, Deps{
		Kube: l.kube, Nodes: l.node.Core().V1().Nodes(), Written: l.node.Core().V1().Nodes(),
		Decide: func(types.UID, map[string]*string) {}, OVS: db,
		Zones:       func(context.Context) (string, error) { return l.zones, nil },
		Flows:       bridgenode.New([]string{gateway.Contributor}, db, open),
		SecondFlows: bridgenode.New([]string{gateway.Contributor}, db, open), Release: l.releaseFlows,
		Chains: chains, Routes: route.NewSet(), Addrs: addr.NewSet(addr.New(nil, topology.ManagementPort)),
		Settings: settings.NewSet(db),
	}), nil
}

func (l *lab) releaseFlows(ctx context.Context, bridge string) error {
	return openflow.New(bridge, l.vs.Dir).Release(ctx)
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// pass reconciles once.
func (l *lab) pass(g *Gateway) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return g.Reconcile(ctx, nodeName)
}

func (l *lab) mustPass(g *Gateway) {
	l.t.Helper()
	if err := l.pass(g); err != nil {
		l.t.Fatal(err)
	}
}

// annotate writes an annotation like the master, and waits for the informer.
func (l *lab) annotate(name, value string) {
	l.t.Helper()
	n, err := l.kube.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	if err := kube.PatchNode(context.Background(), l.kube, n, kube.Metadata{Annotations: map[string]*string{name: &value}}); err != nil {
		l.t.Fatal(err)
	}
	l.waitAnnotation(name, value)
}

func (l *lab) waitAnnotation(name, value string) {
	l.t.Helper()
	eventually.True(l.t, "annotation "+name+"="+value, func() bool {
		n, err := l.node.Core().V1().Nodes().Lister().Get(nodeName)
		return err == nil && n.Annotations[name] == value
	})
}

// patchPort does the part of ovn-controller: it connects the external bridge and
// claims the management port.
func (l *lab) patchPort() { l.patch("breth0") }

func (l *lab) patch(bridge string) {
	l.t.Helper()
	a, b := topology.PatchPort(bridge, nodeName), topology.PatchPeer(bridge, nodeName)
	l.vs.Run("ovs-vsctl", "--may-exist", "add-port", bridge, a, "--", "set", "interface", a, "type=patch", "options:peer="+b,
		"--", "--may-exist", "add-port", "br-int", b, "--", "set", "interface", b, "type=patch", "options:peer="+a)
}

// deleteBridges deletes bridges, and waits until the client of Open vSwitch has noticed.
func (l *lab) deleteBridges(names ...string) {
	l.t.Helper()
	var args []string
	for _, name := range names {
		args = append(args, "--", "del-br", name)
	}
	l.vs.Run("ovs-vsctl", args...)
	for _, name := range names {
		l.noticed(name, false)
	}
}

// noticed waits until the client of Open vSwitch has a bridge, or has it no longer: until then, a pass would find
// what was before.
func (l *lab) noticed(bridge string, exists bool) {
	l.t.Helper()
	eventually.True(l.t, "the client to notice bridge "+bridge, func() bool {
		_, err := l.db.Ports(context.Background(), bridge)
		return exists && err == nil || !exists && errors.Is(err, ovs.ErrNotFound)
	})
}

func (l *lab) claim() {
	l.t.Helper()
	l.vs.Run("ovs-vsctl", "set", "interface", topology.ManagementPort, "external_ids:ovn-installed=true")
}

// reachable checks that the node answers the other machine: a closed port
// refuses, which is an answer.
func (l *lab) reachable() {
	l.t.Helper()
	for _, addr := range []string{"[172.18.0.3]:9", "[fc00:18::3]:9"} {
		eventually.True(l.t, "an answer of "+addr, func() bool {
			err := link.Inside("/run/netns/far", func() error {
				c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond) // TCP would ask again only after a second
				if err == nil {
					_ = c.Close()
				}
				return err
			})
			return errors.Is(err, unix.ECONNREFUSED)
		})
	}
}
