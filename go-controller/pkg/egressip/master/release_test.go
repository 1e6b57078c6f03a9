package master

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestRemovedByOthers: once the pending annotation has been removed the pod sends, whoever removed it. It is not held
// any more, and keeps its path while an address moves.
func TestRemovedByOthers(t *testing.T) {
	const key, addr = "prod/next", "10.244.0.7"
	for name, remove := range map[string]func(w *world){
		"by the master, but the response was lost": func(w *world) {
			w.attach(key, "ovn-control-plane", addr)
		},
		"by a user": func(w *world) {
			w.barrier.stop("all", true) // the master has no reason to remove it
			w.attach(key, "ovn-control-plane", addr)
			synctest.Wait()
			w.changePod(key, func(p *corev1.Pod) { delete(p.Annotations, kube.AnnotationEgressPending) })
			synctest.Wait()
			if got := w.master.podStates.gated(); len(got) > 0 {
				w.t.Errorf("still held: %v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := serving(t, "172.18.0.33")
				first := w.holder(prod, "172.18.0.33")
				w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = "none" }) // so that the move waits for the other pod only
				var lost atomic.Bool
				apply := clienttesting.ObjectReaction(w.kube.Tracker())
				w.kube.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					patch, _ := a.(clienttesting.PatchAction)
					if !strings.Contains(string(patch.GetPatch()), kube.AnnotationEgressPending) || lost.Swap(true) {
						return false, nil, nil
					}
					if _, _, err := apply(a); err != nil {
						return true, nil, err
					}
					return true, nil, apierrors.NewTimeoutError("no answer", 1)
				})
				remove(w)
				<-time.After(2 * podStartTimeout)
				if got := w.master.podStates.gated(); len(got) > 0 {
					t.Errorf("still held: %v", got)
				}
				w.barrier.stop("all", false)
				w.eventually("the pod to be led", func() bool { return w.hops(key, addr) == hopOf[first] })
				w.barrier.stop("chassis-"+other(first), true)
				w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				<-time.After(2 * time.Second)
				if got := w.hops(key, addr); got != hopOf[first] {
					t.Errorf("led to %s while the address moves", got)
				}
			})
		})
	}
}

// TestPendingTakenBack: a pod that was about to get the pending annotation, but is not selected any more when the
// write is repeated, is not held.
func TestPendingTakenBack(t *testing.T) {
	w := serving(t, prodIPs...)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "x", UID: "x", Labels: map[string]string{"app": "web"}}}
	if mark := w.pending(p); mark != prod {
		t.Fatalf("mark %q", mark)
	}
	p.Labels["app"] = "none"
	if mark := w.pending(p); mark != "" {
		t.Errorf("mark %q", mark)
	}
	if got := w.master.podStates.gated(); len(got) > 0 {
		t.Errorf("still held: %v", got)
	}
}

// TestRemovedBeforePass: a pod is not held if its pending annotation was removed before any pass saw it, or while a pass
// that had just read the pod was about to record it.
func TestRemovedBeforePass(t *testing.T) {
	w := serving(t, prodIPs...)
	w.stop() // so that there is no pass in between
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "x", UID: "x", Labels: map[string]string{"app": "web"}}}
	marked := p.DeepCopy()
	marked.Annotations = map[string]string{kube.AnnotationEgressPending: w.pending(p)}
	st := w.master.podStates.get("prod/x")
	if pod := w.master.observe(st, p); !pod.Pending {
		t.Error("not held although the annotation is about to be written")
	}
	w.master.podKeys(p, marked)
	w.master.podKeys(marked, p)
	if pod := w.master.observe(st, p); pod.Pending || pod.Late || len(w.master.podStates.gated()) > 0 {
		t.Errorf("%+v after the annotation has been removed", pod)
	}
	w.master.podStates.end(st)
	if pod := w.master.observe(st, marked); !pod.Pending {
		t.Error("not held although the annotation is there")
	}
	if pod := w.master.observe(st, p); pod.Pending || pod.Late || len(w.master.podStates.gated()) > 0 {
		t.Errorf("%+v after the annotation has been removed meanwhile", pod)
	}
}
