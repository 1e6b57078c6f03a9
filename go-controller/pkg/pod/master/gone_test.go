package master

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestSubnetOfGoneNode: as long as a pod of a deleted node exists, or an egress feature steers its traffic, no pod of the node
// that has got the subnet since gets its addresses, whenever another master has taken over.
func TestSubnetOfGoneNode(t *testing.T) {
	for _, c := range []struct {
		name string
		// The node, or the pod too, is deleted while no master runs, or a master starts after that.
		nodeUnseen, podUnseen, restarted bool
		running                          bool // the kubelet has reported the pod's addresses
		late                             bool // the feature begins to steer the pod's traffic after the next node has the subnet
	}{
		{name: "one master"},
		{name: "restarted", restarted: true},
		{name: "restarted, running", restarted: true, running: true},
		{name: "restarted, steered late", restarted: true, running: true, late: true},
		{name: "deleted meanwhile", nodeUnseen: true},
		{name: "deleted meanwhile, steered late", nodeUnseen: true, late: true},
		{name: "deleted meanwhile with the pod", nodeUnseen: true, podUnseen: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				w.addNode("n", "10.244.1.0/29", "fd00:1::/64") // .3 to .6
				w.start(pod.Config{})
				w.addPod("former", "n", func(p *corev1.Pod) {
					if c.running {
						p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.3"}, {IP: "fd00:1::3"}}
					}
				})
				fakeapi.Settle()
				steer := func() { w.others.Set("ns/service", []netip.Addr{netip.MustParseAddr("10.244.1.3")}) }
				if !c.late {
					steer()
				}
				if c.nodeUnseen {
					w.stop()
				}
				if err := w.cs.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				if c.podUnseen {
					w.deletePod("former")
				}
				fakeapi.Settle()
				if c.restarted {
					w.stop()
				}
				if w.stop == nil {
					w.start(pod.Config{})
					fakeapi.Settle()
				}
				w.addNode("m", "10.244.1.0/29", "fd00:2::/64") // the subnets of different families may have belonged to different nodes
				fakeapi.Settle()
				for i := range 4 {
					w.addPod(fmt.Sprint("web", i), "m")
					fakeapi.Settle()
				}
				steer()
				last := func() string { return w.port("web3") }
				if got := last(); got != "-" {
					t.Errorf("the last pod of the next node gets %s\n%s", got, w.nb.Dump())
				}
				if !c.podUnseen {
					w.deletePod("former")
				}
				fakeapi.Settle()
				if got := last(); got != "-" {
					t.Errorf("while an egress feature steers it, the last pod of the next node gets %s\n%s", got, w.nb.Dump())
				}
				w.others.Set("ns/service", nil)
				fakeapi.Settle()
				if got := last(); got != "10.244.1.3 fd00:2::3" {
					t.Errorf("in the end the last pod of the next node gets %s\n%s", got, w.nb.Dump())
				}
				w.stop()
			})
		})
	}
}

// TestNodeBack: a running pod keeps its addresses if its node is registered again, although another master has taken over since
// the node was deleted.
func TestNodeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		w.addNode("n", "10.244.1.0/24", "fd00:1::/64")
		w.start(pod.Config{})
		w.addPod("other", "n")
		fakeapi.Settle()
		w.addPod("web", "n", func(p *corev1.Pod) {
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.7"}, {IP: "fd00:1::8"}}
		})
		fakeapi.Settle()
		if err := w.cs.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		fakeapi.Settle()
		w.stop()
		w.start(pod.Config{})
		fakeapi.Settle()
		if got := w.port("web"); got != "-" {
			t.Errorf("without its node the pod has %s", got)
		}
		w.addNode("n", "10.244.1.0/24", "fd00:1::/64")
		fakeapi.Settle()
		if got := w.port("web"); got != "10.244.1.7 fd00:1::8" {
			t.Errorf("the pod gets %s\n%s", got, w.nb.Dump())
		}
		w.stop()
	})
}
