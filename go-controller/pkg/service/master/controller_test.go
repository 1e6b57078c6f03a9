package master_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	shared = topology.GatewayShared
	local  = topology.GatewayLocal
)

// states is the history of a small cluster.
var states = []state{
	{},
	{nodes: map[string]topology.GatewayMode{"n1": shared}},
	{
		nodes:    map[string]topology.GatewayMode{"n1": shared},
		services: []*corev1.Service{object("a")},
	},
	{
		nodes:     map[string]topology.GatewayMode{"n1": shared, "n2": shared},
		services:  []*corev1.Service{object("a"), object("b", at("10.96.0.10"), externalLocal)},
		endpoints: map[string][]string{"a": {"10.244.1.3@n1"}, "b": {"10.244.1.4@n1", "10.244.2.4@n2"}},
	},
	{
		nodes:     map[string]topology.GatewayMode{"n2": shared, "n3": shared},
		services:  []*corev1.Service{object("a", internalLocal), object("b", at("10.96.0.10"), externalLocal)},
		endpoints: map[string][]string{"a": {"10.244.3.3@n3", "172.18.0.3@n2"}, "b": {"10.244.2.4@n2"}},
	},
	{
		nodes:     map[string]topology.GatewayMode{"n2": local, "n3": local},
		services:  []*corev1.Service{object("b", at("10.96.0.10"), externalLocal, internalLocal)},
		endpoints: map[string][]string{"b": {"10.244.2.4@n2", "10.244.3.4@n3"}},
	},
	{
		nodes:     map[string]topology.GatewayMode{"n2": local, "n3": local},
		services:  []*corev1.Service{object("b", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"None"} }), object("c", at("10.96.0.11"))},
		endpoints: map[string][]string{"c": {"10.244.2.4@n2"}, "nobody": {"10.244.2.5@n2"}},
	},
}

// TestPaths: the result is the same for any sequence of states and restarts.
func TestPaths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		order := random.Perm(len(states))
		t.Run("", func(t *testing.T) {
			w := newWorld(t)
			w.start()
			for _, i := range order {
				w.set(states[i])
				switch random.IntN(3) {
				case 0: // merged with the next
				case 1:
					w.reaches(states[i])
				default:
					w.start()
				}
			}
			w.reaches(states[order[len(order)-1]])
		})
	}
	for _, order := range [][]state{states, reversed(states)} {
		w := newWorld(t)
		w.start()
		for _, s := range order {
			w.set(s)
			w.reaches(s)
		}
	}
}

// TestRestart: a restart writes nothing if nothing has changed.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	for _, s := range states {
		w.set(s)
		w.start()
		w.reaches(s)
		before := w.nb.Writes()
		w.start()
		w.reaches(s)
		if n := w.nb.Writes() - before; n != 0 {
			t.Errorf("%d writes at a restart", n)
		}
	}
}

// TestWrites: a change of endpoints is one transaction, or none if the backends are the
// same.
func TestWrites(t *testing.T) {
	w := newWorld(t)
	s := states[3]
	w.set(s)
	w.start()
	w.reaches(s)

	before := w.nb.Writes()
	s.endpoints = map[string][]string{"a": {"10.244.1.3@n1", "10.244.2.9@n2"}, "b": s.endpoints["b"]}
	w.set(s)
	w.reaches(s)
	if n := w.nb.Writes() - before; n != 1 {
		t.Errorf("%d transactions for one change of endpoints", n)
	}

	before = w.nb.Writes()
	s.endpoints = map[string][]string{"a": {"10.244.2.9@n2", "10.244.1.3@n1"}, "b": s.endpoints["b"]}
	w.set(s)
	if _, err := w.kube.DiscoveryV1().EndpointSlices("ns").Patch(t.Context(), "b-slice", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// The next change follows these in the same queue.
	s.services = append(slices.Clone(s.services), object("last", at("10.96.0.99")))
	w.set(s)
	w.reaches(s)
	if n := w.nb.Writes() - before; n != 1 {
		t.Errorf("%d transactions, of which one is the new Service's", n)
	}
}

// TestDrift: rows deleted by someone else are restored.
func TestDrift(t *testing.T) {
	w := newWorld(t)
	w.set(states[3])
	w.start()
	w.reaches(states[3])
	if !w.nb.Remove(service.Owner("ns/a"), nbdb.LoadBalancerTable, "TCP cluster") {
		t.Fatal("there is no such row")
	}
	if !w.nb.Remove(service.NodeOwner("n1"), nbdb.ChassisTemplateVarTable, "chassis-n1") {
		t.Fatal("there is no such row")
	}
	w.reaches(states[3])
}

// TestForeignProxy: Services of another proxy are ignored, also if the proxy changes.
func TestForeignProxy(t *testing.T) {
	w := newWorld(t)
	w.set(states[3])
	w.start()
	w.reaches(states[3])
	s := states[3]
	s.services = []*corev1.Service{
		object("a", func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
		}),
		s.services[1],
	}
	w.set(s)
	w.reaches(s)
	if rows := w.nb.Rows(service.Owner("ns/a")); len(rows) != 0 {
		t.Errorf("there are rows: %v", rows)
	}
}

func reversed(all []state) []state {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}
