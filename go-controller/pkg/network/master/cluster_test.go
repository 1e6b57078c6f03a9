package master

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nodeinfo"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// settle is how long a changed value of a node's own annotation has to persist.
const settle = 50 * time.Millisecond

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func config(cidr4 string) network.Config {
	return network.Config{
		ClusterSubnets: []network.ClusterSubnet{
			{CIDR: pfx(cidr4), HostPrefixLen: 24}, {CIDR: pfx("fd00:10:244::/48"), HostPrefixLen: 64},
		},
		JoinSubnets: []netip.Prefix{pfx("100.64.0.0/16"), pfx("fd98::/64")},
	}
}

// cluster is an API server and a northbound database that outlive controllers.
type cluster struct {
	t      *testing.T
	cs     *fake.Clientset
	nb     *nbfake.Writer
	events *record.FakeRecorder
	uid    int
	global atomic.Int32
	stop   func()
	faults *fakeapi.Faults // of the API, or nil
	// chassis deletes a chassis; it may be nil.
	chassis func(ctx context.Context, gone func(name, hostname string) bool) error
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, cs: fakeapi.NewClientset(), nb: nbfake.New(), events: record.NewFakeRecorder(1000)}
	fakeapi.Strict(c.cs)
	t.Cleanup(func() {
		if c.stop != nil {
			c.stop()
		}
	})
	return c
}

// start runs a controller; stop stops it and waits until it has returned.
func (c *cluster) start(cfg network.Config) *Controller {
	c.t.Helper()
	factory := kube.NewInformers(c.cs)
	view := c.view(factory, cfg)
	ctl, err := New(Deps{
		Client: c.cs, Nodes: view, Written: view.Written(), Decide: view.Decide, Writer: c.nb, Recorder: c.events, Config: cfg,
		SetGlobal:     func(context.Context, string, map[string]string, map[string]string) error { c.global.Add(1); return nil },
		DeleteChassis: c.chassis, Refusal: view.Refusal,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	view.OnRefusal(ctl.Look)
	ctx, cancel := context.WithCancel(context.Background())
	c.faults.Start(ctx, c.t, c.cs, factory)
	done := make(chan struct{})
	go func() { _ = view.Run(ctx) }()
	go func() {
		defer close(done)
		_ = ctl.Run(ctx) // an error means that it was stopped before it had started
	}()
	c.stop = func() {
		c.stop = nil
		cancel()
		<-done
		factory.Shutdown()
	}
	return ctl
}

// view returns the view of nodes that the master's controllers use.
func (c *cluster) view(factory informers.SharedInformerFactory, cfg network.Config) *nodeinfo.View {
	c.t.Helper()
	limits := nodeinfo.Cluster{Join: cfg.JoinSubnets, NodeBits: map[topology.Family]int{}}
	for _, s := range cfg.ClusterSubnets {
		limits.Cluster = append(limits.Cluster, s.CIDR)
		limits.NodeBits[topology.FamilyOf(s.CIDR.Addr())] = s.HostPrefixLen
	}
	v, err := nodeinfo.New(nodeinfo.Deps{
		Nodes: factory.Core().V1().Nodes(), Cluster: limits, Owns: nodeinfo.ByMaster(),
		Settle: func(string) time.Duration { return settle },
		Recall: func(node string) map[string]string {
			return kube.FormatNode(network.Recall(node, c.nb.Rows(network.Owner(node))))
		},
		Refused: func(n *corev1.Node, err error) {
			c.events.Event(n, corev1.EventTypeWarning, network.ReasonRefused, err.Error())
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// addNode creates a node with all of its own annotations; change may remove some.
func (c *cluster) addNode(name string, host int, change ...func(*corev1.Node)) {
	c.t.Helper()
	c.uid++
	addrs := []netip.Prefix{pfx(fmt.Sprintf("172.18.0.%d/16", host)), pfx(fmt.Sprintf("fc00::%x/64", host))}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprint("uid-", c.uid)),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9+c.uid), 0)),
		Annotations: map[string]string{
			kube.AnnotationChassisID:     "chassis-" + name,
			kube.AnnotationManagementMAC: fmt.Sprintf("0a:58:00:00:01:%02x", host),
			kube.AnnotationPrimaryIfAddr: kube.FormatPrimaryIfAddr(addrs),
			kube.AnnotationHostAddresses: kube.FormatHostAddresses(addrs),
			kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{
				Mode: topology.GatewayShared, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:42:ac:12:00:%02x", host),
				Addrs: addrs, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("fc00::1")},
			}),
		},
	}}
	for _, f := range change {
		f(n)
	}
	if _, err := c.cs.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

func (c *cluster) deleteNode(name string) {
	c.t.Helper()
	if err := c.cs.CoreV1().Nodes().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) nodes() []corev1.Node {
	c.t.Helper()
	list, err := c.cs.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// status returns what a node was assigned, and its condition.
func (c *cluster) status(name string) string {
	c.t.Helper()
	for _, n := range c.nodes() {
		if n.Name == name {
			node, _ := kube.Node(&n)
			have, _ := condition(&n)
			return fmt.Sprint(node.Subnets, " ", node.Join, " ", have.Status, " ", have.Reason)
		}
	}
	return "gone"
}

func (c *cluster) wait(what string, ok func() bool) {
	c.t.Helper()
	eventually.True(c.t, what, ok, eventually.Dump(func() string { return "nodes:\n" + c.describe() + "\nrows:\n" + c.nb.Dump() }))
}

func (c *cluster) describe() string {
	var out []string
	for _, n := range c.nodes() {
		out = append(out, n.Name+" "+c.status(n.Name))
	}
	return strings.Join(out, "\n")
}

func (c *cluster) waitStatus(name, want string) {
	c.t.Helper()
	c.wait(name+" to be "+want, func() bool { return c.status(name) == want })
}

// fresh returns what a controller that starts now with an empty database would write: a
// pure function of the nodes.
func (c *cluster) fresh(cfg network.Config) string {
	c.t.Helper()
	w := nbfake.New()
	nodes := c.nodes()
	assigned := map[string]network.Assignment{}
	for i := range nodes {
		node, err := kube.Node(&nodes[i])
		if err != nil {
			c.t.Fatal(err)
		}
		assigned[node.Name] = network.Assignment{Subnets: node.Subnets, Join: node.Join}
	}
	apply := func(object string, rows []nb.Row) {
		if _, err := w.Apply(context.Background(), network.Owner(object), rows); err != nil {
			c.t.Fatal(err)
		}
	}
	apply("", network.ClusterRows(cfg, assigned))
	for i := range nodes {
		node, _ := kube.Node(&nodes[i])
		apply(node.Name, network.NodeRows(cfg, node))
	}
	return w.Dump()
}

// waitFresh waits until every node is assigned everything and the database is as after a
// fresh start.
func (c *cluster) waitFresh(cfg network.Config) {
	c.t.Helper()
	c.wait("the rows of a fresh start", func() bool {
		for _, n := range c.nodes() {
			if _, ok := n.Annotations[kube.AnnotationNodeSubnets]; !ok {
				return false
			}
		}
		return c.nb.Dump() == c.fresh(cfg)
	})
}

// patches counts the requests that wrote to a node.
func (c *cluster) patches(node string) int {
	n := 0
	for _, a := range c.cs.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == node {
			n++
		}
	}
	return n
}

func (c *cluster) drainEvents() (events []string) {
	for {
		select {
		case e := <-c.events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}
