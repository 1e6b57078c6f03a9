package master

import (
	"slices"
	"testing"
)

// TestPlannedBefore: the result of a pod's plan does not count for a decision that was made
// after it was planned: the new nodes may not translate for the pod yet.
func TestPlannedBefore(t *testing.T) {
	s := newPodStates()
	s.resetProgress(prod, []string{web})
	first := s.decision(prod)
	s.resetProgress(prod, []string{web})
	if changed := s.planned(web, prod, first, true, true); len(changed) > 0 || s.translated(prod) || s.unsettled(prod) != 1 {
		t.Errorf("a plan of before counts: %v, translated %t, %d unsettled", changed, s.translated(prod), s.unsettled(prod))
	}
	changed := s.planned(web, prod, s.decision(prod), true, true)
	if !slices.Contains(changed, prod) || !s.translated(prod) || s.unsettled(prod) != 0 {
		t.Errorf("the plan of now does not count: %v, translated %t, %d unsettled", changed, s.translated(prod), s.unsettled(prod))
	}
}

// TestPlannedForOneThatWasMadeAnew: an EgressIP that was deleted and recreated is not
// confused with the one that a pod was planned for.
func TestPlannedForOneThatWasMadeAnew(t *testing.T) {
	s := newPodStates()
	s.resetProgress(prod, []string{web})
	first := s.decision(prod)
	s.forget(prod)
	s.resetProgress(prod, []string{web})
	if s.planned(web, prod, first, true, true); s.translated(prod) {
		t.Error("a plan for the one that is gone counts")
	}
}
