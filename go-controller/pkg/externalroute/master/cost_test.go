package master

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// counted counts how often the rows of each owner are planned.
type counted struct {
	*nbfake.Writer
	mu      sync.Mutex
	planned map[string]int
}

func (c *counted) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	c.mu.Lock()
	for o := range want {
		c.planned[o.Object]++
	}
	c.mu.Unlock()
	return c.Writer.ApplyAll(ctx, want)
}

// take returns the counts and resets them.
func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	planned := c.planned
	c.planned = map[string]int{}
	return planned
}

// TestSteeredPodsOfOthers: when EgressIPs or EgressServices start or stop steering a pod,
// only the rows of its own node are planned again, and only if they depend on it.
func TestSteeredPodsOfOthers(t *testing.T) {
	const nodes = 20
	db := &counted{Writer: fake(), planned: map[string]int{}}
	w := newWorld(t, db, namespace("red"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, policy("p", anyGWs, v1.ExternalNextHops{Static: []v1.StaticHop{{IP: "172.18.0.51"}}}))
	for i := range nodes {
		w.create(inMode(node(i), topology.GatewayShared))
		w.create(pod("red", i, 0))
		w.create(pod("plain", i, 1))
	}
	w.start()
	w.reported("p")
	db.take()

	addr := func(node, j int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", node, j+3)) }
	for i := range nodes {
		w.pods.Set(fmt.Sprintf("prod-%d", i), []netip.Addr{addr(i, 1)})
	}
	before := db.Dump()
	w.pods.Set("staging", []netip.Addr{addr(3, 0)})
	w.eventually("the steered pod's rows to change", func() bool { return db.Dump() != before })
	if got := db.take(); len(got) != 1 || got["n3"] == 0 {
		t.Errorf("planned %v, want n3 only", got)
	}
	w.pods.Set("staging", nil)
	w.eventually("the pod's rows to be as they were", func() bool { return db.Dump() == before })
	if got := db.take(); len(got) != 1 || got["n3"] == 0 {
		t.Errorf("planned %v, want n3 only", got)
	}
}

// TestPodsThatNobodySeeks: the readiness of a pod causes a decision only if a policy looks for gateways
// with its labels, now or before.
func TestPodsThatNobodySeeks(t *testing.T) {
	next := v1.ExternalNextHops{Dynamic: []v1.DynamicHop{{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "gateway"}}}}}
	c := newWorld(t, &counted{Writer: fake(), planned: map[string]int{}}, namespace("red"), node(0), policy("p", anyGWs, next)).start()
	labelled := func(app string, ready bool) *corev1.Pod {
		p := pod("red", 0, 0)
		p.Labels = map[string]string{"app": app}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}}
		if ready {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		return p
	}
	for _, test := range []struct {
		what     string
		old, new *corev1.Pod
		decides  bool
	}{
		{"another pod becomes ready", labelled("web", false), labelled("web", true), false},
		{"a gateway becomes ready", labelled("gateway", false), labelled("gateway", true), true},
		{"a gateway is no longer ready", labelled("gateway", true), labelled("gateway", false), true},
		{"a gateway loses its label", labelled("gateway", true), labelled("web", true), true},
		{"a pod becomes a gateway", labelled("web", true), labelled("gateway", true), true},
	} {
		if got := c.gatewayPodKeys(test.old, test.new); (len(got) > 0) != test.decides {
			t.Errorf("%s: it causes decisions %q, want any: %t", test.what, got, test.decides)
		}
	}
}

func inMode(n *corev1.Node, mode topology.GatewayMode) *corev1.Node {
	known, _ := kube.Node(n)
	known.Gateway.Mode = mode
	n.Annotations[kube.AnnotationL3Gateway] = kube.FormatL3Gateway(known.Gateway)
	return n
}

// TestNodesAreDecodedOnce: a decision does not decode the annotations of all nodes again.
func TestNodesAreDecodedOnce(t *testing.T) {
	const nodes = 50
	w := newWorld(t, fake(), namespace("red"))
	for i := range nodes {
		w.create(node(i))
	}
	c := w.start()
	if _, err := c.snapshot(); err != nil {
		t.Fatal(err)
	}
	each := testing.AllocsPerRun(10, func() { _, _ = c.snapshot() }) / nodes
	if each > 10 {
		t.Errorf("%.1f allocations for each node", each)
	}
}
