package egressip

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// Selector selects the pods of an EgressIP.
type Selector struct {
	Key        string // the EgressIP's name
	created    metav1.Time
	namespaces labels.Selector
	pods       labels.Selector
}

// NewSelector parses the selectors of an EgressIP. The error names the invalid field.
func NewSelector(e *v1.EgressIP) (Selector, error) {
	s := Selector{Key: e.Name, created: e.CreationTimestamp, namespaces: labels.Nothing(), pods: labels.Nothing()}
	namespaces, err := metav1.LabelSelectorAsSelector(&e.Spec.NamespaceSelector)
	if err != nil {
		return s, fmt.Errorf("namespaceSelector is not valid: %w", err)
	}
	pods, err := metav1.LabelSelectorAsSelector(&e.Spec.PodSelector)
	if err != nil {
		return s, fmt.Errorf("podSelector is not valid: %w", err)
	}
	s.namespaces, s.pods = namespaces, pods
	return s, nil
}

// Selects reports whether a pod is selected, given the labels of its namespace and its
// own.
func (s Selector) Selects(namespace, pod map[string]string) bool {
	return s.SelectsNamespace(namespace) && s.pods.Matches(labels.Set(pod))
}

// SelectsNamespace reports whether pods in a namespace with these labels may be selected.
func (s Selector) SelectsNamespace(namespace map[string]string) bool {
	return s.namespaces.Matches(labels.Set(namespace))
}

// NamespaceLabels returns the namespace labels that the selector requires.
func (s Selector) NamespaceLabels() []AnyLabel { return required(s.namespaces) }

// PodLabels returns the pod labels that the selector requires.
func (s Selector) PodLabels() []AnyLabel { return required(s.pods) }

// before compares the precedence of two selectors: the older first, then by name.
func (s Selector) before(o Selector) int {
	return cmp.Or(s.created.Time.Compare(o.created.Time), cmp.Compare(s.Key, o.Key))
}

// Label is a label with its value.
type Label struct{ Key, Value string }

// AnyLabel is a set of labels of which a selected object has at least one.
type AnyLabel []Label

// required returns the labels that a selector requires by value: a matching object has
// one label of each set.
func required(s labels.Selector) []AnyLabel {
	requirements, _ := s.Requirements()
	var all []AnyLabel
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			var one AnyLabel
			for _, value := range r.ValuesUnsorted() {
				one = append(one, Label{r.Key(), value})
			}
			all = append(all, one)
		}
	}
	return all
}

// Selection indexes the selectors of all EgressIPs, and finds those that select a pod
// without evaluating the others. It is safe for concurrent use.
type Selection struct {
	mu    sync.RWMutex
	known map[string]indexedSelector
	// byLabels are the selectors, by a namespace label and a pod label that they require;
	// the zero Label if they require none.
	byLabels map[Label]map[Label]map[string]Selector
	// namespaces and pods count the selectors by these labels.
	namespaces, pods map[Label]int
}

// indexedSelector is a selector and its position in the index.
type indexedSelector struct {
	Selector
	namespaceSelector, podSelector metav1.LabelSelector // not parsed
	namespaces, pods               AnyLabel
}

// NewSelection returns a Selection without EgressIPs.
func NewSelection() *Selection {
	return &Selection{known: map[string]indexedSelector{}, byLabels: map[Label]map[Label]map[string]Selector{},
		namespaces: map[Label]int{}, pods: map[Label]int{}}
}

// Set adds or updates an EgressIP. An EgressIP with invalid selectors selects nothing.
func (s *Selection) Set(e *v1.EgressIP) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, ok := s.known[e.Name]; ok && was.created.Equal(&e.CreationTimestamp) &&
		equality.Semantic.DeepEqual(was.namespaceSelector, e.Spec.NamespaceSelector) &&
		equality.Semantic.DeepEqual(was.podSelector, e.Spec.PodSelector) {
		return
	}
	s.remove(e.Name)
	selector, err := NewSelector(e)
	if err != nil {
		return
	}
	in := indexedSelector{
		Selector: selector, namespaceSelector: e.Spec.NamespaceSelector, podSelector: e.Spec.PodSelector,
		namespaces: leastCommon(selector.NamespaceLabels(), s.namespaces), pods: leastCommon(selector.PodLabels(), s.pods),
	}
	s.known[e.Name] = in
	for _, namespace := range in.namespaces {
		s.namespaces[namespace]++
		if s.byLabels[namespace] == nil {
			s.byLabels[namespace] = map[Label]map[string]Selector{}
		}
		for _, pod := range in.pods {
			if s.byLabels[namespace][pod] == nil {
				s.byLabels[namespace][pod] = map[string]Selector{}
			}
			s.byLabels[namespace][pod][e.Name] = selector
		}
	}
	for _, pod := range in.pods {
		s.pods[pod]++
	}
}

// leastCommon returns, of the required label sets, the one that the fewest selectors are indexed by,
// or the zero Label if the selector requires none by value.
func leastCommon(all []AnyLabel, used map[Label]int) AnyLabel {
	if len(all) == 0 {
		return AnyLabel{Label{}}
	}
	count := func(one AnyLabel) (n int) {
		for _, l := range one {
			n += used[l]
		}
		return n
	}
	return slices.MinFunc(all, func(a, b AnyLabel) int { return cmp.Compare(count(a), count(b)) })
}

// Delete removes an EgressIP.
func (s *Selection) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key)
}

// remove deletes an EgressIP from the index; mu is held.
func (s *Selection) remove(key string) {
	was, ok := s.known[key]
	if !ok {
		return
	}
	delete(s.known, key)
	for _, namespace := range was.namespaces {
		byPod := s.byLabels[namespace]
		for _, pod := range was.pods {
			if delete(byPod[pod], key); len(byPod[pod]) == 0 {
				delete(byPod, pod)
			}
		}
		if len(byPod) == 0 {
			delete(s.byLabels, namespace)
		}
		release(s.namespaces, namespace)
	}
	for _, pod := range was.pods {
		release(s.pods, pod)
	}
}

func release(used map[Label]int, l Label) {
	if used[l]--; used[l] == 0 {
		delete(used, l)
	}
}

// Matching returns the keys of the EgressIPs that select a pod with these labels (its namespace's
// and its own), in order of precedence: the first one has the pod.
func (s *Selection) Matching(namespace, pod map[string]string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []Selector
	for byPod := range with(s.byLabels, namespace) {
		for selectors := range with(byPod, pod) {
			for _, selector := range selectors {
				if selector.Selects(namespace, pod) {
					found = append(found, selector)
				}
			}
		}
	}
	slices.SortFunc(found, Selector.before)
	var keys []string
	for _, selector := range found {
		keys = append(keys, selector.Key)
	}
	return keys
}

// with yields the index entries for the zero Label and for the labels of an object.
func with[V any](index map[Label]V, has map[string]string) func(yield func(V) bool) {
	return func(yield func(V) bool) {
		if v, ok := index[Label{}]; ok && !yield(v) {
			return
		}
		for key, value := range has {
			if v, ok := index[Label{key, value}]; ok && !yield(v) {
				return
			}
		}
	}
}
