package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// adding starts an ADD and waits until it has created the port.
func (l *lab) adding(sandbox string) (failed chan error, done <-chan struct{}) {
	l.t.Helper()
	failed = make(chan error, 1)
	done = l.ns.Go(func() {
		_, err := l.handle(l.request(cni.CommandAdd, sandbox, "web", "u1"))
		failed <- err
	})
	eventually.True(l.t, "the port of the pod", func() bool { return l.ports() != "" })
	return failed, done
}

// TestAddWaitsForTheNode: after a boot the runtime finds the configuration file of an
// earlier run. No pod starts before the node's rules exist.
func TestAddWaitsForTheNode(t *testing.T) {
	l := newLabNotReady(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	// On a busy machine the deadline may pass before everything else is ready.
	var err error
	for l.server.Deadline = time.Second; l.server.Deadline < eventually.Bound; l.server.Deadline *= 2 {
		<-l.ns.Go(func() { _, err = l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1")) })
		if err == nil || strings.Contains(err.Error(), "not ready") {
			break
		}
	}
	var failure *types.Error
	if !errors.As(err, &failure) || failure.Code != cni.CodeTryAgain || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("ADD on a node that does not become ready: %v", err)
	}
	if ports := l.ports(); ports != "" {
		t.Errorf("left ports %s", ports)
	}
	l.server.Deadline = eventually.Bound
	l.sandbox("sb2")
	failed, done := l.adding("sb2")
	l.waits(`cni "ns/web" waits for the node's rules for egress traffic (since `)
	close(l.ready)
	<-done
	if err := <-failed; err != nil {
		t.Errorf("ADD on a node that has become ready: %v", err)
	}
}

// TestAddEndsWithWhatIsWanted: while a pod is being attached, the master assigns it another
// network, or it is recreated with the same name.
func TestAddEndsWithWhatIsWanted(t *testing.T) {
	for what, change := range map[string]func(l *lab){
		"another address": func(l *lab) {
			l.bindings.set(l.t, "ns_web", "u1", "0a:58:0a:f4:01:06 10.244.1.6 fd00:10:244:2::6")
			l.update(func(p *corev1.Pod) {
				p.Annotations[kube.AnnotationPodNetworks] = strings.NewReplacer("10.244.1.5", "10.244.1.6", "::5/", "::6/", ":01:05", ":01:06").Replace(podNetwork)
			})
		},
		"another MAC address": func(l *lab) {
			l.bindings.set(l.t, "ns_web", "u1", strings.Replace(given, ":01:05", ":01:09", 1))
			l.update(func(p *corev1.Pod) {
				p.Annotations[kube.AnnotationPodNetworks] = strings.Replace(podNetwork, ":01:05", ":01:09", 1)
			})
		},
		"another mirror of a static pod": func(l *lab) {
			l.update(func(p *corev1.Pod) { p.UID = k8stypes.UID("u2") })
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			l.pod("web", "u1", podNetwork)
			l.update(func(p *corev1.Pod) {
				p.Annotations[corev1.MirrorPodAnnotationKey] = "u1"
				p.Annotations[kube.AnnotationEgressPending] = "prod" // ADD waits for that
			})
			l.sandbox("sb1")
			failed, done := l.adding("sb1")
			change(l)
			l.update(func(p *corev1.Pod) { delete(p.Annotations, kube.AnnotationEgressPending) })
			<-done
			var failure *types.Error
			if err := <-failed; !errors.As(err, &failure) || failure.Code != cni.CodeTryAgain {
				t.Errorf("ADD: %v", err)
			}
			if ports := l.ports(); ports != "" {
				t.Errorf("left ports %s", ports)
			}
			l.sandbox("sb2")
			l.mustHandle(l.request(cni.CommandAdd, "sb2", "web", "u1"))
		})
	}
}

// update changes the pod in the API and waits until the informer has seen it.
func (l *lab) update(change func(*corev1.Pod)) {
	l.t.Helper()
	p, err := l.kube.CoreV1().Pods("ns").Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	change(p)
	if _, err := l.kube.CoreV1().Pods("ns").Update(context.Background(), p, metav1.UpdateOptions{}); err != nil {
		l.t.Fatal(err)
	}
	eventually.True(l.t, "the informer to see the change", func() bool {
		seen, err := l.pods.Core().V1().Pods().Lister().Pods("ns").Get("web")
		return err == nil && seen.UID == p.UID && len(seen.Annotations) == len(p.Annotations) &&
			seen.Annotations[kube.AnnotationPodNetworks] == p.Annotations[kube.AnnotationPodNetworks]
	})
}
