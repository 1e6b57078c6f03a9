package master

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestInsideFirst: no policy reroutes a pod before its traffic to nodes is exempt, which
// another component writes; the exemption stays as long as there is a policy.
func TestInsideFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		w.start()
		w.anyHost(demo)
		w.pods.Follow()
		endpoints := func(addrs ...string) {
			t.Helper()
			s := slice("demo-svc", append([]string{"10.244.0.5"}, addrs...)...)
			w.makePods(s)
			if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
		}
		const next = "10.244.0.77"
		led := func() bool { return strings.Contains(w.nb.DumpFeature(egressservice.Feature), next) }
		told := func() bool { return w.pods.Has(netip.MustParseAddr(next)) }
		endpoints(next)
		if led() || !told() {
			t.Errorf("led away: %t, told: %t, before the policies of what is inside know of it", led(), told())
		}
		w.pods.Written(w.pods.Version())
		w.eventually("the pod to be led away", led)
		endpoints()
		w.eventually("the policy to go", func() bool { return !led() })
		if told() {
			t.Error("the pod is still told")
		}
	})
}
