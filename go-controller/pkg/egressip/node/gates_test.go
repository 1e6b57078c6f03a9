package node

import (
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestGateAfterFailedWrite: flows whose writing failed may be written later all the same.
// Where those before are wanted again by then, the bridge is told so.
func TestGateAfterFailedWrite(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
	w.start()
	w.saysEventually("prod", self+" "+four)
	failing := func(f bool) {
		w.flows.mu.Lock()
		defer w.flows.mu.Unlock()
		w.flows.failing = f
	}
	failing(true)
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
	w.eventually("the gate to be asked for", func() bool {
		w.flows.mu.Lock()
		defer w.flows.mu.Unlock()
		return w.flows.failed > 0
	})
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+self) })
	failing(false)
	w.eventually("the gate to go", func() bool { return len(w.gated(four)) == 0 })
}
