package master

import (
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestAnnotationsOfPodsRouteNothing: a pod that claims another pod's address, once or
// repeatedly, does not route that address to its own gateways; its own address is routed when it has
// a port, and only then.
func TestAnnotationsOfPodsRouteNothing(t *testing.T) {
	const stolen = `{"default":{"ip_addresses":["10.244.1.66/24"],"mac_address":"0a:58:0a:f4:01:42","gateway_ips":["10.244.1.1"]}}`
	nb := fake()
	thief := pod("red", 1, 1)
	thief.Annotations[kube.AnnotationPodNetworks] = stolen
	ghost := pod("red", 7, 1) // on a node that does not exist
	ghost.Annotations[kube.AnnotationPodNetworks] = stolen
	w := newWorld(t, nb, node(1), namespace("red"), thief, ghost, policy("p", anyGWs, hops("172.18.0.51")))
	w.setPortless("red/p1-1", "red/p7-1")
	c := w.start()
	if p := w.reported("p"); p.Status.Pods != 0 {
		t.Errorf("pods without an address are counted: %+v", p.Status)
	}
	for range 20 {
		w.annotatePod("red", thief.Name, map[string]any{kube.AnnotationPodNetworks: nil})
		w.annotatePod("red", thief.Name, map[string]any{kube.AnnotationPodNetworks: stolen})
	}
	w.create(pod("red", 1, 2)) // its route is written after any effects of the patches
	w.eventually("the route of a pod with a port", func() bool { return strings.Contains(nb.Dump(), "10.244.1.5/32") })
	if got := nb.Dump(); routes(nb) != 1 || strings.Contains(got, "10.244.1.66") {
		t.Errorf("routes:\n%s", got)
	}
	w.setPortless()
	c.LookAtPod("red/p1-1", "n1")
	w.eventually("its own address to be routed", func() bool { return strings.Contains(nb.Dump(), "10.244.1.4/32") })
	if got := nb.Dump(); strings.Contains(got, "10.244.1.66") {
		t.Errorf("routes:\n%s", got)
	}
	w.eventually("it to be counted", func() bool { return w.policy("p").Status.Pods >= 2 })
}
