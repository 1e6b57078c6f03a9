package master

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
)

// TestPerNode: sourceIPBy Network needs no policies and no label.
func TestPerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perNode := egress("demo-svc", func(e *v1.EgressService) { e.Spec.SourceIPBy = v1.SourceIPNetwork })
		w := newWorld(t, demoObjects()...)
		w.start()
		w.anyHost(demo)
		w.update(perNode)
		w.eventually("every node", func() bool {
			status, policies, labels := w.hosts(demo)
			return status == v1.HostAll && policies == "" && labels == ""
		})
		w.update(egress("demo-svc"))
		w.anyHost(demo)
		w.stop()

		w.shared = true
		w.update(perNode)
		w.start()
		w.served(demo, "")
		w.event("SharedGatewayMode")
	})
}

// TestConflict: no pod has two policies, and the younger EgressService reports which one has it.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(name string, year int) *v1.EgressService {
			return egress(name, func(e *v1.EgressService) {
				e.CreationTimestamp = metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
				e.UID = types.UID("uid-" + name)
			})
		}
		w := newWorld(t, at("demo-svc", 2020), service("demo-svc", demoIngress...), slice("demo-svc", "10.244.0.5", "10.244.0.6"),
			at("another", 2021), service("another", "6.6.6.6"), slice("another", "10.244.0.6", "10.244.0.7"))
		w.start()
		w.eventually("one policy a pod", func() bool { return strings.Count(w.nb.Dump(), "reroute") == 3 })
		w.event("Conflict older EgressServices have some of its pods: default/demo-svc")
		w.remove(at("demo-svc", 2020))
		w.eventually("the younger's turn", func() bool {
			return strings.Count(w.nb.DumpFeature(egressservice.Feature), "default/another ") == 2
		})
	})
}

// TestConflictEndsByAChangeOfEndpoints: a younger EgressService whose host has to have a pod of
// its own gets one when the older no longer selects the pod, though nothing of the younger
// changes.
func TestConflictEndsByAChangeOfEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(name string, year int) *v1.EgressService {
			return egress(name, func(e *v1.EgressService) {
				e.CreationTimestamp = metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			})
		}
		younger := service("another", "6.6.6.6")
		younger.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		node := "ovn-worker2"
		shared := slice("another", "10.244.1.6")
		shared.Endpoints[0].NodeName = &node
		both := slice("demo-svc", "10.244.0.5", "10.244.1.6")
		both.Endpoints[1].NodeName = &node
		w := newWorld(t, at("demo-svc", 2020), service("demo-svc", demoIngress...), both, at("another", 2021), younger, shared)
		w.start()
		has := func(host string) func() bool {
			return func() bool {
				status, policies, labels := w.hosts("default/another")
				return status == host && labels == host && (policies != "") == (host != "")
			}
		}
		w.eventually("the older to have both pods", func() bool { return w.programmed(demo) })
		w.event("has no endpoint, which externalTrafficPolicy Local demands")
		w.update(slice("demo-svc", "10.244.0.5"))
		w.eventually("the younger to be served where its pod is", has(node))
		w.update(both)
		w.eventually("the younger to have no host again", has(""))
	})
}
