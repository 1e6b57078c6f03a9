package manifests

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// workload is an object that has pods.
type workload struct {
	meta     metav1.ObjectMeta
	template corev1.PodTemplateSpec
	drained  bool // kubectl drain evicts its pods
}

func workloads(t *testing.T) []workload {
	t.Helper()
	var all []workload
	for _, object := range objects(t) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			all = append(all, workload{o.ObjectMeta, o.Spec.Template, true})
		case *appsv1.StatefulSet:
			all = append(all, workload{o.ObjectMeta, o.Spec.Template, true})
		case *appsv1.DaemonSet:
			all = append(all, workload{o.ObjectMeta, o.Spec.Template, false})
		}
	}
	if len(all) == 0 {
		t.Fatal("there are no workloads")
	}
	return all
}

// TestPriority: nothing works without the network, so its pods are evicted last.
func TestPriority(t *testing.T) {
	for _, w := range workloads(t) {
		want := "system-node-critical"
		if w.drained {
			want = "system-cluster-critical"
		}
		if got := w.template.Spec.PriorityClassName; got != want {
			t.Errorf("%s: priority class %q, want %q", w.meta.Name, got, want)
		}
	}
}

// TestDisruptionBudgets: of drained workloads at most one pod is evicted at a time, and a node can be drained even
// if there is only one replica.
func TestDisruptionBudgets(t *testing.T) {
	var budgets []*policyv1.PodDisruptionBudget
	for _, object := range objects(t) {
		if b, ok := object.(*policyv1.PodDisruptionBudget); ok {
			budgets = append(budgets, b)
		}
	}
	used := map[string]bool{}
	for _, w := range workloads(t) {
		covering := 0
		for _, b := range budgets {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil {
				t.Fatalf("%s: %v", b.Name, err)
			}
			if b.Namespace != w.meta.Namespace || !selector.Matches(labels.Set(w.template.Labels)) {
				continue
			}
			covering++
			used[b.Name] = true
			if most := b.Spec.MaxUnavailable; b.Spec.MinAvailable != nil || most == nil || most.String() != "1" {
				t.Errorf("%s lets not exactly one pod of %s be away: %+v", b.Name, w.meta.Name, b.Spec)
			}
			if p := b.Spec.UnhealthyPodEvictionPolicy; p == nil || *p != policyv1.AlwaysAllow {
				t.Errorf("%s keeps a pod of %s that is not ready anyway from being evicted", b.Name, w.meta.Name)
			}
		}
		want := 0
		if w.drained {
			want = 1
		}
		if covering != want {
			t.Errorf("%d budgets for %s, want %d", covering, w.meta.Name, want)
		}
	}
	for _, b := range budgets {
		if !used[b.Name] {
			t.Errorf("%s selects no workload", b.Name)
		}
	}
}
