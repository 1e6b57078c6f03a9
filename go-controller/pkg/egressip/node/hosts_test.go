package node

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestHostsAreNotKnown: as long as a node does not know the addresses of all nodes and API servers, it cannot tell which
// connections leave the cluster, and ends none, while it serves addresses on its primary network.
func TestHostsAreNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, own := netip.MustParseAddr("10.244.1.4"), netip.MustParseAddr("172.18.0.3")
		w := newWorld(t, secondary(), object("zone", []string{four}, []string{four + " " + self}))
		server := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "kubernetes"},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}} // what the gateway router's connections lead to
		if err := w.kube.Tracker().Add(server); err != nil {
			t.Fatal(err)
		}
		w.ovn.first, w.ovn.connections = []host.Translation{translation(pod.String(), four)}, [][2]netip.Addr{{pod, own}}
		w.pod("red", "web", "10.244.1.3/24")
		w.unlisted = true
		w.start()
		w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+self) })
		w.saysEventually("zone", self+" "+four)
		fakeapi.Settle()
		passes := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.ovn.passes
		}
		if got := w.ended(); len(got) > 0 || passes() > 0 || len(w.get("prod").Status.Programmed) > 0 {
			t.Errorf("ended %q, and those of the gateway router in %d passes", got, passes())
		}
		w.list()
		w.saysEventually("prod", self+" 10.10.10.5")
		if got := w.ended(); !slices.Equal(got, []string{"10.244.1.3 172.18.0.3"}) {
			t.Errorf("ended %q", got)
		}
		w.eventually("the gateway router's connections to be looked at", func() bool { return passes() > 0 })
		fakeapi.Settle()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.ovn.connections) != 1 {
			t.Error("a connection to an API server has ended")
		}
	})
}
