package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// neighbour creates another node that may or may not hold addresses.
func (w *world) neighbour(change func(*corev1.Node)) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other, Labels: map[string]string{kube.LabelEgressAssignable: ""}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if change != nil {
		change(n)
	}
	if _, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) asks() bool {
	w.t.Helper()
	n, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), self, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n.Annotations[kube.AnnotationEgressHandover] == "true"
}

// TestHandOver requests a handover, and ends when the master has assigned the address to another node
// and this node has released it. The next run withdraws the request.
func TestHandOver(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
	c, stop := w.run()
	w.saysEventually("prod", self+" "+four)
	w.neighbour(nil)
	done := make(chan error, 1)
	go func() { done <- c.HandOver(t.Context()) }()
	w.eventually("the request", w.asks)
	select {
	case err := <-done:
		t.Fatalf("ended before anybody took over: %v", err)
	default:
	}
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := w.words("prod"); len(got) != 0 {
		t.Errorf("words: %v", got)
	}
	stop()
	if !w.asks() {
		t.Error("the request is gone with the process")
	}
	w.start()
	w.eventually("the request to be taken back", func() bool { return !w.asks() })
}

// TestRequestOfOthers: a request that appears while this node runs, such as one that an earlier process sent and the API server
// wrote late, is withdrawn as soon as the node is ready. One that this process makes stays, whatever happens to the Node.
func TestRequestOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}, self+" "+four))
		w.ready = make(chan struct{})
		annotate := func(name, value string) {
			t.Helper()
			change := kube.Metadata{Annotations: map[string]*string{name: kube.Value(value)}}
			if err := kube.PatchNode(t.Context(), w.kube, w.self(), change); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
		}
		c, _ := w.run()
		w.neighbour(nil)
		annotate(kube.AnnotationEgressHandover, "true")
		if !w.asks() {
			t.Error("a node that is not ready offers to take addresses")
		}
		close(w.ready)
		fakeapi.Settle()
		if w.asks() {
			t.Error("the request stays when the node is ready")
		}
		annotate(kube.AnnotationEgressHandover, "true")
		if w.asks() {
			t.Error("a later request stays")
		}
		if err := c.HandOver(t.Context()); err != nil { // nobody takes over
			t.Fatal(err)
		}
		annotate(kube.AnnotationHostAddresses, `["172.18.0.3/16"]`)
		if !w.asks() {
			t.Error("this process has withdrawn its own request")
		}
	})
}

// TestHandOverSecondary: a node that is about to stop translates pods to an address on a
// secondary network until they are led to the next node, as long as it may take; then it
// drops further packets, because nothing would remove the translation.
func TestHandOverSecondary(t *testing.T) {
	for name, led := range map[string]bool{"pods are led elsewhere": true, "nobody leads them": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const way = "6000:\tfrom 10.244.1.3 lookup 1111"
				programmed := func(e *v1.EgressIP, is metav1.ConditionStatus) {
					meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{Type: v1.ConditionProgrammed, Status: is, Reason: "Test"})
				}
				w := newWorld(t, secondary("10.10.10.5 "+self))
				w.pod("red", "web", "10.244.1.3/24")
				w.neighbour(nil)
				c, _ := w.run()
				w.saysEventually("prod", self+" 10.10.10.5")
				began := time.Now()
				done := make(chan error, 1)
				go func() { done <- c.HandOver(t.Context()) }()
				w.eventually("the request", w.asks)
				w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+other); programmed(e, metav1.ConditionFalse) })
				w.saysEventually("prod")
				<-time.After(handoverStallTimeout / 2) // in fake time
				synctest.Wait()
				if got := w.dump(); !strings.Contains(got, way) || !strings.Contains(got, "-j SNAT --to-source 10.10.10.5") {
					t.Errorf("while pods are led here:\n%s", got)
				}
				select {
				case err := <-done:
					t.Fatalf("ended while pods were led here: %v", err)
				default:
				}
				if led {
					w.change("prod", func(e *v1.EgressIP) { programmed(e, metav1.ConditionTrue) })
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > handoverLimit+dropLimit {
					t.Errorf("took %s", took)
				}
				if got := w.dump(); strings.Contains(got, way) || strings.Contains(got, "-j SNAT") || !strings.Contains(got, "blackhole default table 1000") {
					t.Errorf("in the end:\n%s", got)
				}
			})
		})
	}
}

// TestNobodyElse: addresses that no other node can hold stay, without a request.
func TestNobodyElse(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"alone":     nil,
		"unlabeled": func(n *corev1.Node) { n.Labels = nil },
		"not ready": func(n *corev1.Node) { n.Status.Conditions = nil },
		"cordoned":  func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"leaving":   func(n *corev1.Node) { n.Annotations = map[string]string{kube.AnnotationEgressHandover: "true"} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
			c, _ := w.run()
			w.saysEventually("prod", self+" "+four)
			if change != nil {
				w.neighbour(change)
			}
			if err := c.HandOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			if w.asks() {
				t.Error("asks though nobody could")
			}
		})
	}
}

// TestNothingToHandOver: nothing is requested.
func TestNothingToHandOver(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + other}, other+" "+four))
	c, _ := w.run()
	w.neighbour(nil)
	w.kube.ClearActions()
	if err := c.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.kube.Actions(); len(got) != 0 {
		t.Errorf("did %v", got)
	}
}

// TestHandOverInOutage: if Kubernetes has no reports of any node, the master relies on
// its probes, so other nodes may take over.
func TestHandOverInOutage(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, six}, []string{four + " " + self, six + " " + self}))
	c, _ := w.run()
	w.saysEventually("prod", self+" "+four+" "+six)
	unheard := func(n *corev1.Node) {
		n.Labels = map[string]string{kube.LabelEgressAssignable: ""}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	}
	w.neighbour(unheard)
	self := w.self()
	unheard(self)
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), self, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !w.asks() {
		t.Error("asks nobody")
	}
}
