package nodeinfo

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// api is an API server with a view of its nodes.
type api struct {
	t    *testing.T
	cs   *fake.Clientset
	view *View

	mu      sync.Mutex
	refused []string
	seen    map[string]int // events of the view, by node
}

func newAPI(t *testing.T, owns []string, nodes ...*corev1.Node) *api {
	a := &api{t: t, cs: fakeapi.NewClientset(), seen: map[string]int{}}
	for _, n := range nodes {
		if _, err := a.cs.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	factory := kube.NewInformers(a.cs)
	var err error
	a.view, err = New(Deps{
		Nodes: factory.Core().V1().Nodes(), Cluster: cluster, Owns: owns,
		Settle: func(string) time.Duration { return 100 * time.Millisecond },
		Refused: func(n *corev1.Node, err error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.refused = append(a.refused, n.Name+": "+err.Error())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	count := func(obj any) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen[obj.(*corev1.Node).Name]++
	}
	h, err := a.view.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: count, UpdateFunc: func(_, n any) { count(n) }, DeleteFunc: count,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, t, a.cs, factory)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.view.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	a.until("the view to be there", h.HasSynced)
	return a
}

func (a *api) until(what string, ok func() bool) {
	a.t.Helper()
	eventually.True(a.t, what, ok)
}

func (a *api) write(node, annotation, value string) {
	a.t.Helper()
	n, err := a.cs.CoreV1().Nodes().Get(a.t.Context(), node, metav1.GetOptions{})
	if err == nil {
		err = kube.PatchNode(a.t.Context(), a.cs, n, kube.Metadata{Annotations: map[string]*string{annotation: &value}})
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// shown returns an annotation as readers see it.
func (a *api) shown(node, annotation string) string {
	n, err := a.view.Lister().Get(node)
	if err != nil {
		return "gone"
	}
	return n.Annotations[annotation]
}

// TestView: the view publishes values of others after a while, own values once decided, and never refused ones,
// which are reported once.
func TestView(t *testing.T) {
	a := newAPI(t, ByMaster(), object(1, kube.FormatNode(node(1))), object(2, kube.FormatNode(node(2))))
	good := kube.FormatNode(node(1))
	a.write("n1", kube.AnnotationNodeSubnets, `{"default":["10.244.77.0/32"]}`)
	a.until("the refusal", func() bool { return a.told() == 1 })
	// Other changes of the node are published together with the effective annotations.
	a.write("n1", "other", "x")
	a.until("another annotation", func() bool { return a.shown("n1", "other") == "x" })
	if got := a.shown("n1", kube.AnnotationNodeSubnets); got != good[kube.AnnotationNodeSubnets] || a.told() != 1 {
		t.Errorf("subnets are %s, refused %q", got, a.refused)
	}
	next := `{"default":["10.244.88.0/24"]}`
	a.write("n1", kube.AnnotationNodeSubnets, next)
	a.until("the second refusal", func() bool { return a.told() == 2 })
	a.view.Decide("uid1", map[string]*string{kube.AnnotationNodeSubnets: &next})
	a.until("the decided subnets", func() bool { return a.shown("n1", kube.AnnotationNodeSubnets) == next })
	moved := strings.Replace(good[kube.AnnotationL3Gateway], "172.18.0.250", "172.18.0.251", 1)
	a.write("n1", kube.AnnotationL3Gateway, moved)
	a.until("another next hop, after a while", func() bool { return a.shown("n1", kube.AnnotationL3Gateway) == moved })
	if n, err := a.view.Lister().Get("n2"); err != nil || !maps.Equal(n.Annotations, kube.FormatNode(node(2))) || a.events("n2") != 1 {
		t.Errorf("the other node is %v, with %d events: %v", n.Annotations, a.events("n2"), err)
	}
	if err := a.cs.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.until("the node to go", func() bool { return a.shown("n1", "") == "gone" })
}

func (a *api) told() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.refused)
}

// TestDecidedBeforeItIsKnown: a decision about a node that the view has not seen yet is not lost.
func TestDecidedBeforeItIsKnown(t *testing.T) {
	r := newResolver(cluster, ByNode(), Settle)
	next := kube.FormatNode(node(1))[kube.AnnotationChassisID]
	r.decide("uid1", map[string]*string{kube.AnnotationChassisID: &next})
	o := object(1, map[string]string{kube.AnnotationChassisID: "before"})
	r.add(o, nil)
	r.resolve(start, true)
	o.Annotations = map[string]string{kube.AnnotationChassisID: next}
	r.write(o)
	r.resolve(start, false)
	if got := r.states["n1"].effective[kube.AnnotationChassisID]; got != next {
		t.Errorf("chassis %q is in force", got)
	}
}

func (a *api) events(node string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[node]
}

// TestRefusalsThatLast: an invalid value that a node writes about itself is reported once it has been there for as
// long as a valid one needs to take effect, and no longer after the node writes another one.
func TestRefusalsThatLast(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newResolver(cluster, ByMaster(), Settle)
	a, b := object(1, kube.FormatNode(node(1))), object(2, kube.FormatNode(node(2)))
	r.add(a, nil)
	r.add(b, nil)
	r.resolve(start, true)
	own := b.Annotations[kube.AnnotationChassisID]
	b.Annotations[kube.AnnotationChassisID] = a.Annotations[kube.AnnotationChassisID]
	b.Annotations[kube.AnnotationNodeSubnets] = a.Annotations[kube.AnnotationNodeSubnets]
	r.write(b)
	for _, step := range []struct{ after, rest time.Duration }{
		{0, settleAgent}, {settleAgent - 1, 1}, {settleAgent, settleMaster - settleAgent}, {settleMaster, 0},
	} {
		before := r.refusals()
		if rest := r.resolve(start.Add(step.after), false); rest != step.rest {
			t.Errorf("after %s: the next look is in %s, want %s", step.after, rest, step.rest)
		}
		err, changed := r.refusal("n2", ByNode()), lasting(before, r.refusals())
		if want := step.after >= settleAgent; (err != nil) != want || want && !strings.Contains(err.Error(), "node n1") {
			t.Errorf("after %s: refused %v", step.after, err)
		}
		// The refusal of the subnets lasts later than that of the chassis.
		if want := step.after >= settleAgent; (len(changed) > 0) != want {
			t.Errorf("after %s: changed %v", step.after, changed)
		}
	}
	b.Annotations[kube.AnnotationChassisID] = own
	r.write(b)
	before := r.refusals()
	r.resolve(start.Add(settleMaster+1), false)
	if err, changed := r.refusal("n2", ByNode()), lasting(before, r.refusals()); err != nil || len(changed) != 1 {
		t.Errorf("refused %v, changed %v, though the node has its own again", err, changed)
	}
}
