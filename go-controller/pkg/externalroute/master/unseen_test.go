package master

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestUndoneUnseen: the master's annotation of a namespace is reverted while nothing is
// watched, so that the namespace that is listed afterwards looks like the last one seen.
func TestUndoneUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fake(), node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
		w.faults = fakeapi.NewFaults(rand.New(rand.NewPCG(1, 1)))
		w.faults.Inject(w.kube)
		w.faults.UndoUnseen(w.kube, "namespaces", kube.AnnotationGatewaysInUse)
		w.start()
		fakeapi.Settle()
		if got := w.inUse("red"); got != "172.18.0.51" {
			t.Errorf("gateways in use are %q", got)
		}
		w.stop()
	})
}
