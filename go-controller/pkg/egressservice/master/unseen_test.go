package master

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestUndoneUnseen: the label of a host is reverted while nothing is watched, so that
// the node that is listed afterwards looks like the last one seen.
func TestUndoneUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		w.faults = fakeapi.NewFaults(rand.New(rand.NewPCG(1, 1)))
		w.faults.Inject(w.kube)
		w.faults.UndoUnseen(w.kube, "nodes", kube.LabelEgressServicePrefix)
		w.start()
		fakeapi.Settle()
		if status, _, labels := w.hosts("default/demo-svc"); status == "" || labels != status {
			t.Errorf("host is %q, label is on %q", status, labels)
		}
		w.stop()
	})
}
