package master

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// cluster is an API server and a northbound database that outlive controllers.
type cluster struct {
	t      *testing.T
	cs     *fake.Clientset
	nb     *nbfake.Writer
	writer Writer // nb, or another one set by a test
	events *record.FakeRecorder
	egress Egress // nil: none
	others *noreroute.PodSet
	ctl    *Controller
	uid    int
	pods   corelisters.PodLister // of the running controller
	stop   func()
	faults *fakeapi.Faults // of the API, or nil
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		t: t, cs: fakeapi.NewClientset(), nb: nbfake.New(), events: record.NewFakeRecorder(10000), others: noreroute.NewPodSet(),
	}
	c.writer = c.nb
	fakeapi.Strict(c.cs)
	t.Cleanup(func() {
		if c.stop != nil {
			c.stop()
		}
	})
	return c
}

// start runs a controller; stop ends it and waits until it has returned.
func (c *cluster) start(cfg pod.Config) {
	c.t.Helper()
	factory := kube.LateMirrors(informers.NewSharedInformerFactory(c.cs, fakeapi.NoResync), nil)
	c.pods = factory.Core().V1().Pods().Lister()
	ctl, err := New(Deps{
		Client: c.cs, Pods: factory.Core().V1().Pods(), Nodes: factory.Core().V1().Nodes(),
		Writer: c.writer, Recorder: c.events, Config: cfg, Egress: c.egress, Matched: []Matched{c.others},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.ctl = ctl
	ctx, cancel := context.WithCancel(context.Background())
	c.faults.Start(ctx, c.t, c.cs, factory)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ctl.Run(ctx) // an error means that it was stopped before it started
	}()
	c.stop = func() {
		c.stop = nil
		cancel()
		<-done
		factory.Shutdown()
	}
}

// addNode adds a node with a gateway and the rows of the network feature.
func (c *cluster) addNode(name string, subnets ...string) {
	c.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		kube.AnnotationChassisID:        name,
		kube.AnnotationGatewayLRPIfAddr: kube.FormatGatewayLRPIfAddr(prefixes("100.64.0.2/16", "fd98::2/64")),
		kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{
			Mode: topology.GatewayShared, InterfaceID: "breth0_" + name, MAC: "02:42:ac:12:00:03",
			Addrs: prefixes("172.18.0.3/16", "fc00::3/64"),
		}),
	}}}
	if len(subnets) > 0 {
		n.Annotations[kube.AnnotationNodeSubnets] = kube.FormatNodeSubnets(prefixes(subnets...))
	}
	if _, err := c.cs.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.networkRows(name, true)
}

// networkRows does the part of the network feature: the switch and router of a node.
func (c *cluster) networkRows(node string, there bool) {
	c.t.Helper()
	var rows []nb.Row
	if there {
		rows = []nb.Row{
			{ID: "s", Model: &nbdb.LogicalSwitch{Name: node}},
			{ID: "r", Model: &nbdb.LogicalRouter{Name: topology.GatewayRouter(node)}},
		}
	}
	if _, err := c.nb.Apply(c.t.Context(), nb.Owner{Feature: "network", Object: node}, rows); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) setSubnets(node string, subnets ...string) {
	c.t.Helper()
	value := "null"
	if len(subnets) > 0 {
		value = fmt.Sprintf("%q", kube.FormatNodeSubnets(prefixes(subnets...)))
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, kube.AnnotationNodeSubnets, value)
	if _, err := c.cs.CoreV1().Nodes().Patch(c.t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func prefixes(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// addPod creates a pod in namespace "ns" that is scheduled to node.
func (c *cluster) addPod(name, node string, change ...func(*corev1.Pod)) {
	c.t.Helper()
	c.uid++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(fmt.Sprint("uid-", c.uid)),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9+c.uid), 0)),
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
	for _, f := range change {
		f(p)
	}
	if _, err := c.cs.CoreV1().Pods("ns").Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// having sets the annotation of a pod to previously assigned addresses.
func having(addrs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			kube.AnnotationPodNetworks: kube.FormatPodNetwork(pod.Network(prefixes(addrs...), prefixes("10.244.1.0/24"))),
		}
	}
}

func isRunning(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.9"}} }

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	if err := c.cs.CoreV1().Pods("ns").Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) getPod(name string) *corev1.Pod {
	p, err := c.cs.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func (c *cluster) setPhase(name string, phase corev1.PodPhase) {
	c.t.Helper()
	// The controller may write the annotation in between.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p := c.getPod(name).DeepCopy()
		p.Status.Phase = phase
		_, err := c.cs.CoreV1().Pods("ns").UpdateStatus(c.t.Context(), p, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// port returns the addresses of a pod's port in the database, "-" if there is none.
func (c *cluster) port(name string) string {
	for _, r := range c.nb.Rows(pod.Owner("ns/" + name)) {
		if m, ok := r.Model.(*nbdb.LogicalSwitchPort); ok {
			_, addrs, _ := strings.Cut(m.Addresses[0], " ")
			return addrs
		}
	}
	return "-"
}

func (c *cluster) wait(what string, ok func() bool) {
	c.t.Helper()
	eventually.True(c.t, what, ok, eventually.Dump(c.nb.Dump))
}

func (c *cluster) waitPort(name, want string) {
	c.t.Helper()
	c.wait(fmt.Sprintf("port of %s to be %q", name, want), func() bool { return c.port(name) == want })
}

func (c *cluster) waitEvent(part string) {
	c.t.Helper()
	c.wait("event "+part, func() bool {
		for {
			select {
			case e := <-c.events.Events:
				if strings.Contains(e, part) {
					return true
				}
			default:
				return false
			}
		}
	})
}

// podPatches returns the patches of pods so far.
func (c *cluster) podPatches() (out []string) {
	for _, a := range c.cs.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && a.GetResource().Resource == "pods" {
			out = append(out, p.GetName())
		}
	}
	return out
}
