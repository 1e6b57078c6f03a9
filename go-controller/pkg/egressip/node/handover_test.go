package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// neighbour makes another node that may hold addresses, or may not.
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

// TestHandOver asks, and ends when the master has given the address to another
// and this node has let go. The next run takes the request back.
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

// TestNobodyElse keeps what nobody else can hold, without asking.
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

// TestNothingToHandOver asks nobody.
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
