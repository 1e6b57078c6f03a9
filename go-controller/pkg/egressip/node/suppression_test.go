package node

import (
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestGateAfterFailedWrite: flows whose writing failed may be written later all the same.
// Where those before are wanted again by then, the bridge is told so.
func TestGateAfterFailedWrite(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
	w.start()
	w.saysEventually("prod", self+" "+four)
	w.flows.fail(errBusy)
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
	w.eventually("the gate to be asked for", func() bool { return w.flows.failed() > 0 })
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+self) })
	w.flows.fail(nil)
	w.eventually("the gate to go", func() bool { return len(w.gated(four)) == 0 })
}

// TestGateOutlivesTranslations: the suppression of an EgressIP that is gone stays for as long as OVN
// translates to its address, and therefore answers for it; the others end.
func TestGateOutlivesTranslations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four, more, six}, []string{four + " " + self, more + " " + other, six + " " + self}))
		w.translated = four
		w.start()
		w.saysEventually("prod", self+" "+four+" "+six)
		if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the other gates to end", func() bool { return slices.Equal(w.gated(four, more, six), []string{four}) })
		asked := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.asked
		}
		before := asked()
		w.eventually("OVN to be asked again", func() bool { return asked() > before+2 })
		if got := w.gated(four); len(got) != 1 {
			t.Error("OVN may answer for an address that is nobody's here")
		}
		w.mu.Lock()
		w.translated = ""
		w.mu.Unlock()
		w.eventually("the last gate to end", func() bool { return len(w.gated(four, more, six)) == 0 })
	})
}
