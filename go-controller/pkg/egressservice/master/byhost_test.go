package master

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestSelectedByHost: an EgressService that selects nodes by another one's label follows it, whether it has the label or lacks it.
func TestSelectedByHost(t *testing.T) {
	for operator, together := range map[metav1.LabelSelectorOperator]bool{metav1.LabelSelectorOpExists: true, metav1.LabelSelectorOpDoesNotExist: false} {
		t.Run(string(operator), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, append(demoObjects(), service("other", "5.5.5.6", "5555::6"), slice("other", "10.244.0.9", "fd00:10:244:1::9"))...)
				w.start()
				host := w.anyHost(demo)
				w.create(egress("other", func(e *v1.EgressService) {
					e.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{worker: ""},
						MatchExpressions: []metav1.LabelSelectorRequirement{{Key: demoHost, Operator: operator}}}
				}))
				next := map[string]string{"ovn-worker": "ovn-worker2", "ovn-worker2": "ovn-worker"}
				of := func(host string) string {
					if together {
						return host
					}
					return next[host]
				}
				w.served("default/other", of(host))
				w.health.Set(host, place.Dead)
				w.served(demo, next[host])
				if together { // otherwise the only node without the label is dead
					w.served("default/other", next[host])
				} else {
					w.served("default/other", "")
				}
				w.stop()
			})
		})
	}
}

// TestOwnLabelsOfNodes: the labels that follow hosts are no reason to decide again about all EgressServices, unless one of them
// selects nodes by such a label. Other labels always are.
func TestOwnLabelsOfNodes(t *testing.T) {
	labelled := func(key string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ovn-worker", Labels: map[string]string{worker: "", key: ""}}}
	}
	for _, c := range []struct {
		key    string
		byHost bool
		same   bool
	}{{demoHost, false, true}, {demoHost, true, false}, {"rack", false, false}, {"rack", true, false}} {
		control := &Controller{}
		control.byHost.Store(c.byHost)
		for _, nodes := range [][2]*corev1.Node{{labelled(worker), labelled(c.key)}, {labelled(c.key), labelled(worker)}} {
			if got := control.sameCandidate(nodes[0], nodes[1]); got != c.same {
				t.Errorf("label %s, selected by host %t: the same candidate: %t", c.key, c.byHost, got)
			}
		}
	}
}
