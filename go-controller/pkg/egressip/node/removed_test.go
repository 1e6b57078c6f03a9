package node

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestDeletedBeforeItsEvent: the key of a deleted EgressIP may be reconciled before the event of the deletion has been handled. By
// then its pods must count as those of the next EgressIP, or they would not be held back.
func TestDeletedBeforeItsEvent(t *testing.T) {
	const pod = "10.244.1.3"
	w := newWorld(t)
	w.pod("red", "web", pod+"/24")
	core, own := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync), egressipinformers.NewSharedInformerFactory(w.api, fakeapi.NoResync)
	c := &Controller{deps: Deps{EgressIPs: own.EgressIP().V1().EgressIPs(), Ports: &fakePorts{w: w}, Cluster: prefixes("10.244.0.0/16")}}
	c.queue = queue.New("test", nil)
	store := c.deps.EgressIPs.Informer().GetStore()
	prod, spare := object("prod", []string{"10.10.10.5"}, nil), object("spare", []string{"10.10.10.6"}, nil)
	for _, e := range []*v1.EgressIP{prod, spare} {
		if err := store.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	core.Core().V1().Pods().Informer()
	core.Core().V1().Namespaces().Informer()
	core.Start(t.Context().Done())
	core.WaitForCacheSync(t.Context().Done())
	p := newPods(c, nil)
	p.pods, p.spaces = core.Core().V1().Pods().Lister(), core.Core().V1().Namespaces().Lister()
	close(p.started)
	holder := func(when, want string) {
		t.Helper()
		if got := p.members.Holder(netip.MustParseAddr(pod)); got != want {
			t.Errorf("%s, %q has the pod, want %q", when, got, want)
		}
	}
	p.refreshFor("prod", prod)
	first := p.members.Holder(netip.MustParseAddr(pod))
	next := map[string]string{"prod": "spare", "spare": "prod"}[first]
	if next == "" {
		t.Fatalf("%q has the pod", first)
	}
	p.refreshFor(first, nil) // it has been created again meanwhile
	holder("not deleted", first)
	if err := store.Delete(&v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: first}}); err != nil {
		t.Fatal(err)
	}
	p.refreshFor(first, nil)
	holder("deleted", next)
}
