package master

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestSharedAddress: EgressServices whose Services share an address have one host, from the moment
// the address becomes shared, and also after a restart and when the host dies. If no node can be the host
// of both, the younger one is not served and says why, until the older one is deleted.
func TestSharedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const other = "default/other"
		younger := func(change ...func(*v1.EgressService)) *v1.EgressService {
			eg := egress("other", change...)
			eg.CreationTimestamp.Time = time.Now().Add(time.Hour)
			return eg
		}
		w := newWorld(t, append(demoObjects(), younger(), service("other", "6.6.6.6", "6666::6"), slice("other", "10.244.0.9", "fd00:10:244:1::9"))...)
		w.start()
		host := w.anyHost(demo)
		if next := w.anyHost(other); next == host {
			t.Fatalf("both are on %s before they share an address", host)
		}
		w.update(service("other", "6.6.6.6", demoIngress[1]))
		w.served(other, host)
		w.event("HostChanged Node " + host + " serves the egress traffic instead of")
		w.served(demo, host)
		fakeapi.Settle()

		w.stop()
		w.forgetWrites()
		w.start()
		fakeapi.Settle()
		if got := w.writes(); len(got) > 0 {
			t.Errorf("a restart with nothing changed wrote %q", got)
		}

		w.health.Set(host, place.Dead)
		w.eventually("both to move", func() bool { status, _, _ := w.hosts(demo); return status != host })
		next := w.anyHost(demo)
		w.served(other, next)

		w.update(younger(func(eg *v1.EgressService) {
			eg.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: worker, Operator: metav1.LabelSelectorOpDoesNotExist}}}
		}))
		w.event("NoNode no node can be the host: ovn-control-plane: cannot also be the host of EgressService default/demo-svc, " +
			"which has the same ingress address 5555:5555:5555:5555:5555:5555:5555:5555")
		w.served(other, "")
		w.served(demo, next)
		w.remove(egress("demo-svc"))
		w.served(other, "ovn-control-plane")
		w.stop()
	})
}
