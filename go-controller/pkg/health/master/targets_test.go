package master

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// prober answers immediately and records who was probed at which address.
type prober struct {
	mu    sync.Mutex
	asked map[string]map[netip.Addr]bool
}

func (p *prober) Probe(_ context.Context, node string, addr netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[node] == nil {
		p.asked[node] = map[netip.Addr]bool{}
	}
	p.asked[node][addr] = true
	return nil
}

func (p *prober) was(node, addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[node][netip.MustParseAddr(addr)]
}

func node(name, subnets string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if subnets != "" {
		n.Annotations = map[string]string{kube.AnnotationNodeSubnets: subnets}
	}
	return n
}

func TestTargetsFollowTheNodes(t *testing.T) {
	cs := fake.NewClientset(node("n1", `{"default":["10.244.1.0/24","fd00:10:244:2::/64"]}`), node("new", ""), node("odd", "{"))
	core := informers.NewSharedInformerFactory(cs, 0)
	p := &prober{asked: map[string]map[netip.Addr]bool{}}
	tracker := health.NewTracker(p, 100*time.Millisecond)
	targets, err := New(core.Core().V1().Nodes(), tracker)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, t, cs, core)
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{targets.Run, tracker.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		core.Shutdown()
	})

	eventually.True(t, "n1 to be asked at both addresses", func() bool {
		return tracker.Healthy("n1") && p.was("n1", "10.244.1.2") && p.was("n1", "fd00:10:244:2::2")
	})
	if tracker.Healthy("new") || tracker.Healthy("odd") {
		t.Error("a node without a subnet is healthy")
	}
	nodes := cs.CoreV1().Nodes()
	if _, err := nodes.Update(ctx, node("new", `{"default":["10.244.7.0/24"]}`), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the new node to be asked", func() bool { return tracker.Healthy("new") && p.was("new", "10.244.7.2") })
	if err := nodes.Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the deleted node to be forgotten", func() bool { return !tracker.Healthy("n1") })
}

// TestNodesAreDecodedOnce: a change of one node does not have the annotations of all nodes decoded again.
func TestNodesAreDecodedOnce(t *testing.T) {
	const nodes = 50
	cs := fake.NewClientset()
	core := informers.NewSharedInformerFactory(cs, 0)
	tracker := health.NewTracker(&prober{asked: map[string]map[netip.Addr]bool{}}, time.Hour)
	targets, err := New(core.Core().V1().Nodes(), tracker)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		n := node(fmt.Sprintf("n%d", i), fmt.Sprintf(`{"default":["10.244.%d.0/24","fd00:10:244:%d::/64"]}`, i, i+1))
		if err := core.Core().V1().Nodes().Informer().GetIndexer().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	reconcile := func() {
		if err := targets.reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	if each := testing.AllocsPerRun(10, reconcile) / nodes; each > 10 {
		t.Errorf("%.1f allocations for each node", each)
	}
}
