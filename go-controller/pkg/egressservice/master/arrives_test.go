package master

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestServiceSeenLate: an EgressService whose Service exists in the API server, but whose event
// is still on the way, is not reported to have none.
func TestServiceSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service("demo-svc", demoIngress...)
		w := newWorld(t, egress("demo-svc"), slice("demo-svc", demoPods...))
		w.kube.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, svc, nil })
		w.start()
		fakeapi.Settle()
		if n := len(w.events.Events); n > 0 {
			t.Errorf("%d Events, the first: %s", n, <-w.events.Events)
		}
		if got := w.writes(); len(got) > 0 {
			t.Errorf("wrote %v", got)
		}
		w.create(svc)
		w.anyHost(demo)
		w.stop()
	})
}
