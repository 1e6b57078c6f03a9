package egressip

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// randomSelector selects by a few labels of two values.
func randomSelector(r *rand.Rand) metav1.LabelSelector {
	var s metav1.LabelSelector
	for i := range r.IntN(3) {
		key := fmt.Sprintf("k%d", r.IntN(3))
		switch r.IntN(5) {
		case 0:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}[:1+r.IntN(2)]})
		case 1:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}})
		case 2:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		case 3:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
		default:
			s.MatchLabels = map[string]string{key: string("ab"[i%2]), "k9": []string{"a", ""}[r.IntN(2)]}
		}
	}
	if r.IntN(20) == 0 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: "k1", Operator: "not an operator"})
	}
	return s
}

func randomLabels(r *rand.Rand) map[string]string {
	has := map[string]string{}
	for _, key := range []string{"k0", "k1", "k2", "k9"} {
		if value := []string{"a", "b", "", "none"}[r.IntN(4)]; value != "none" {
			has[key] = value
		}
	}
	return has
}

// TestSelection: whatever EgressIPs are added, changed and deleted, the ones that select a pod are
// those whose selectors match, in order of precedence.
func TestSelection(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s, all := NewSelection(), map[string]*v1.EgressIP{}
	for range 3000 {
		name := fmt.Sprintf("e%d", r.IntN(12))
		if e := all[name]; e != nil && r.IntN(3) == 0 {
			delete(all, name)
			s.Delete(name)
		} else {
			e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(r.IntN(3)), 0))}}
			e.Spec.NamespaceSelector, e.Spec.PodSelector = randomSelector(r), randomSelector(r)
			all[name] = e
			s.Set(e)
		}
		namespace, pod := randomLabels(r), randomLabels(r)
		var want []Selector
		for _, e := range all {
			if selector, err := NewSelector(e); err == nil && selector.Selects(namespace, pod) {
				want = append(want, selector)
			}
		}
		slices.SortFunc(want, Selector.before)
		var keys []string
		for _, selector := range want {
			keys = append(keys, selector.Key)
		}
		if got := s.Matching(namespace, pod); !slices.Equal(got, keys) {
			t.Fatalf("Of(%v, %v) = %v, want %v", namespace, pod, got, keys)
		}
	}
	for name := range maps.Clone(all) {
		s.Delete(name)
	}
	if len(s.known)+len(s.byLabels)+len(s.namespaces)+len(s.pods) > 0 {
		t.Errorf("of no EgressIP %+v is left", s)
	}
}

// counted counts how often a selector is evaluated.
type counted struct {
	labels.Selector
	asked *int
}

func (c counted) Matches(l labels.Labels) bool {
	*c.asked++
	return c.Selector.Matches(l)
}

// TestSelectionCost: finding the EgressIPs that select a pod does not take longer if there are more
// EgressIPs that select other pods, by labels of pods or of namespaces, alone or together with
// labels that all have.
func TestSelectionCost(t *testing.T) {
	same := metav1.LabelSelector{MatchLabels: map[string]string{"a": "same", "z": "same"}}
	for name, spec := range map[string]func(one metav1.LabelSelector) v1.EgressIPSpec{
		"pod label": func(one metav1.LabelSelector) v1.EgressIPSpec { return v1.EgressIPSpec{PodSelector: one} },
		"pod label in equal namespaces": func(one metav1.LabelSelector) v1.EgressIPSpec {
			return v1.EgressIPSpec{NamespaceSelector: same, PodSelector: one}
		},
		"namespace label": func(one metav1.LabelSelector) v1.EgressIPSpec { return v1.EgressIPSpec{NamespaceSelector: one} },
		"namespace label for equal pods": func(one metav1.LabelSelector) v1.EgressIPSpec {
			return v1.EgressIPSpec{NamespaceSelector: one, PodSelector: same}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := NewSelection(), 0
			for i := range 1000 {
				e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e%d", i)}}
				own := fmt.Sprintf("app-%d", i)
				if i%2 == 0 {
					e.Spec = spec(metav1.LabelSelector{MatchLabels: map[string]string{"a": "same", "app": own}})
				} else {
					e.Spec = spec(metav1.LabelSelector{MatchLabels: map[string]string{"z": "same"}, MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{own, own + "-too"}}}})
				}
				s.Set(e)
			}
			for _, byPod := range s.byLabels {
				for _, selectors := range byPod {
					for key, selector := range selectors {
						selector.namespaces, selector.pods = counted{selector.namespaces, &asked}, counted{selector.pods, &asked}
						selectors[key] = selector
					}
				}
			}
			has := map[string]string{"a": "same", "z": "same", "app": "app-501"}
			if got := fmt.Sprint(s.Matching(has, has)); got != "[e501]" {
				t.Errorf("chosen by %s", got)
			}
			if asked > 12 {
				t.Errorf("%d selectors asked", asked)
			}
		})
	}
}
