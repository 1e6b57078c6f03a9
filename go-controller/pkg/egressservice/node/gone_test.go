package node

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestDeletedNodeSaysNothing: a node that was deleted while its process runs does not
// report again what the master removes; once it is back in the cluster it does.
func TestDeletedNodeSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const me = "ovn-worker2"
		w := newWorld(t)
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", "10.244.1.6"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		eg := egress("demo-svc", v1.HostAll)
		eg.Spec.Network, eg.Spec.SourceIPBy = "blue", v1.SourceIPNetwork
		w.update(eg)
		said := func() bool {
			p := w.status().Programmed
			return p != nil && p.Host == me && strings.Contains(p.Problem, "blue")
		}
		w.eventually("the problem", said)
		if err := w.kube.CoreV1().Nodes().Delete(t.Context(), me, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		fakeapi.Settle()
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Programmed = nil })
		fakeapi.Settle()
		if said() {
			t.Error("a node that is not in the cluster says what the master has taken back")
		}
		back := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: me}}
		if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), back, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the problem again", said)
	})
}

// TestProblemFollowsNetwork: a node on which a network is missing reports the network that is currently
// wanted.
func TestProblemFollowsNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", "10.244.1.6"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		for _, network := range []string{"blue", "red"} {
			now := w.status()
			eg := egress("demo-svc", v1.HostAll)
			eg.Spec.Network, eg.Spec.SourceIPBy = network, v1.SourceIPNetwork
			eg.Status.Programmed = now.Programmed
			w.update(eg)
			w.eventually("the problem with "+network, func() bool {
				p := w.status().Programmed
				return p != nil && p.Host == "ovn-worker2" && strings.Contains(p.Problem, network)
			})
		}
		// A report of another node is enough.
		w.setStatus(func(s *v1.EgressServiceStatus) {
			s.Programmed = &v1.ProgrammedStatus{Host: "ovn-worker", Problem: "network red has no routing table with routes"}
		})
		fakeapi.Settle()
		if p := w.status().Programmed; p == nil || p.Host != "ovn-worker" {
			t.Errorf("the status has %+v", p)
		}
	})
}
