package master

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// statusPatches counts the status patches of a policy.
func (w *world) statusPatches(name string) int {
	return strings.Count("\n"+w.String(), "\nadminpolicybasedexternalroutes/"+name+" ")
}

// TestOutcomeServed: the fields for scripts are written with the conditions, in the same patch.
func TestOutcomeServed(t *testing.T) {
	w := newWorld(t, fake(), node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.52", "172.18.0.51")))
	w.start()
	s := w.reported("p").Status
	if s.Status != v1.OutcomeSuccess || len(s.Messages) != 1 || s.Messages[0] != "Configured external gateway IPs: 172.18.0.51,172.18.0.52" {
		t.Errorf("status %q, messages %q", s.Status, s.Messages)
	}
	if s.LastTransitionTime.IsZero() {
		t.Error("no time")
	}
	w.setHops("p", "172.18.0.51", "no address")
	if s = w.reported("p").Status; s.Status != v1.OutcomeFail || len(s.Messages) != 2 {
		t.Errorf("status %q, messages %q", s.Status, s.Messages)
	}
	if n := w.statusPatches("p"); n != 2 {
		t.Errorf("%d patches for two states:\n%s", n, w)
	}
}

// TestMadeAnew: a policy that was deleted and created again is not reported on before it has been decided on.
func TestMadeAnew(t *testing.T) {
	w := newWorld(t, fake(), node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
	c := w.start()
	w.reported("p")
	w.stop()
	anew := policy("p", anyGWs, hops("no address"))
	anew.UID = "another"
	if err := c.deps.Policies.Informer().GetIndexer().Update(anew); err != nil {
		t.Fatal(err)
	}
	before := w.patchCount()
	if err := c.reconcileStatus(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	if w.patchCount() != before {
		t.Errorf("the status of its predecessor:\n%s", w)
	}
	if err := c.reconcileAll(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if c.plan.Policies["p"].UID != "another" || !c.reportPolicies["p"] && len(c.dirty) == 0 {
		t.Error("nothing is reported after the decision")
	}
}

// TestWriteFailure: only a policy whose routes cannot be written reports this,
// and it stops reporting it when they are written.
func TestWriteFailure(t *testing.T) {
	writer := fake()
	var broken atomic.Bool
	broken.Store(true)
	writer.FailWith(func(o nb.Owner) error {
		if broken.Load() && o == externalroute.Owner("n1") {
			return errors.New("no connection")
		}
		return nil
	})
	w := newWorld(t, writer, node(0), node(1), namespace("red"), namespace("blue"), pod("red", 0, 0), pod("blue", 0, 1), pod("blue", 1, 1),
		policy("p", map[string]string{"name": "red"}, hops("172.18.0.51")),
		policy("q", map[string]string{"name": "blue"}, hops("172.18.0.51")))
	w.start()
	w.eventually("the failure to be told", func() bool {
		s := w.policy("q").Status
		c := meta.FindStatusCondition(s.Conditions, v1.ConditionReady)
		return s.Status == v1.OutcomeFail && c != nil && c.Reason == v1.ReasonWriteFailed && strings.Contains(c.Message, "n1")
	})
	if s := w.reported("p").Status; s.Status != v1.OutcomeSuccess {
		t.Errorf("the policy of another node's pods: %+v", s)
	}
	broken.Store(false)
	w.eventually("success", func() bool {
		s := w.policy("q").Status
		return s.Status == v1.OutcomeSuccess && meta.IsStatusConditionTrue(s.Conditions, v1.ConditionReady)
	})
	if n := w.statusPatches("p"); n != 1 {
		t.Errorf("%d patches of a policy that nothing happened to:\n%s", n, w)
	}
	if n := w.statusPatches("q"); n != 2 {
		t.Errorf("%d patches for a failure and its end:\n%s", n, w)
	}
}
