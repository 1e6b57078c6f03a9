package master

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
)

// TestRemembered: the rows of a deleted pod outlive the datapath flows of its chassis
// for its port: traffic still sent by these flows would otherwise leave with the
// address of the node that translates.
func TestRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, "172.18.0.33")
		w.barrier.stop("chassis-ovn-control-plane", true)
		led, nats := w.hops(web, webV4), w.nats(web)
		w.detach(web)
		w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
		synctest.Wait()
		w.barrier.stop("chassis-ovn-control-plane", false)
		<-time.After(revalidateDelay - time.Millisecond)
		synctest.Wait()
		if got := w.hops(web, webV4); got != led || w.nats(web) != nats || nats == "" {
			t.Errorf("led to %s, translations %q, want %s, %q", got, w.nats(web), led, nats)
		}
		w.eventually("the rows to go", func() bool { return w.nats(web) == "" })
	})
}

// TestReroutedOfLeaderBefore: from the beginning a master tells others which addresses have policies, even if it takes long until
// it plans their pods: they act without that knowledge in the end. Passes correct what it has told.
func TestReroutedOfLeaderBefore(t *testing.T) {
	w := newWorld(t)
	a := netip.MustParseAddr("10.244.0.99")
	s := egressip.NewState()
	s.Policies[a] = egressip.Policy{EgressIP: "prod", Hops: []netip.Addr{netip.MustParseAddr("100.64.0.3")}}
	if _, err := w.nb.Apply(t.Context(), egressip.Owner("prod/gone"), s.Rows()); err != nil {
		t.Fatal(err)
	}
	core, own := informers.NewSharedInformerFactory(w.kube, 0), externalversions.NewSharedInformerFactory(w.egress, 0)
	if _, err := New(w.deps(core, own, nil)); err != nil {
		t.Fatal(err)
	}
	if !w.pods.Has(a) {
		t.Error("the address is unknown")
	}
	w.start()
	w.eventually("the address to be forgotten", func() bool { return !w.pods.Has(a) })
}

// TestNobodysRows: rows that another implementation has left for an address without a pod
// are removed at the start.
func TestNobodysRows(t *testing.T) {
	w := newWorld(t)
	nobody := "gone_/10.244.0.99" // as they are adopted
	s := egressip.NewState()
	a := netip.MustParseAddr("10.244.0.99")
	s.EgressIP = "prod"
	s.Policies[a] = egressip.Policy{EgressIP: "prod", Hops: []netip.Addr{netip.MustParseAddr("100.64.0.3")}}
	s.NATs[egressip.Site{Pod: a, Node: "ovn-worker"}] = netip.MustParseAddr("172.18.0.33")
	if _, err := w.nb.Apply(t.Context(), egressip.Owner(nobody), s.Rows()); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.eventually("the rows to go", func() bool { return w.nb.DumpFeature(egressip.Feature) == "" })
}
