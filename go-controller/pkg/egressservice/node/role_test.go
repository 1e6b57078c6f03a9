package node

import (
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestEveryNodeIsNoHost: when an EgressService that every node has served gets a single host, the other nodes do not
// act as the previous host until that one has the traffic, whichever status they see first: they never were.
func TestEveryNodeIsNoHost(t *testing.T) {
	assigned := func(s *v1.EgressServiceStatus) {
		s.Host, s.Programmed = "ovn-worker", nil
		s.Conditions = []metav1.Condition{{Type: v1.ConditionProgrammed, Status: metav1.ConditionFalse}}
	}
	for name, first := range map[string]func(*v1.EgressServiceStatus){
		"assigned": assigned, "acknowledged": programmedBy("ovn-worker", false), "programmed": programmedBy("ovn-worker", true),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
				s := slice("demo-svc", "10.244.0.3", "10.244.1.6")
				if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.start()
				eg := egress("demo-svc", v1.HostAll)
				eg.Spec.Network, eg.Spec.SourceIPBy = "blue", v1.SourceIPNetwork
				eg.Status.Conditions = []metav1.Condition{{Type: v1.ConditionProgrammed, Status: metav1.ConditionTrue}}
				w.update(eg)
				led := func(pod string) bool {
					return strings.Contains(hostfake.DumpIPRules(w.ipRules.Objects()), "5000:\tfrom "+pod)
				}
				w.eventually("this node's pod to be led into the network", func() bool { return led("10.244.1.6") })

				single := egress("demo-svc", "")
				single.Spec.Network = "blue"
				first(&single.Status)
				w.update(single)
				for range 2 {
					fakeapi.Settle()
					if rules(w) != 0 || led("10.244.0.3") || led("10.244.1.6") {
						t.Errorf("a node that never was the host has\n%s%s", w.dump(), hostfake.DumpIPRules(w.ipRules.Objects()))
					}
					w.setStatus(programmedBy("ovn-worker", false))
				}
			})
		})
	}
}

// TestRevokedHostDoesNotContinue: a host whose acknowledgement the master has revoked is not the previous host of the
// next one, even if it has not seen the time without a host: there are no policies that lead to it.
func TestRevokedHostDoesNotContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the word", func() bool { return w.status().Programmed != nil })
		w.setStatus(func(s *v1.EgressServiceStatus) {
			s.Host, s.Programmed = "ovn-worker", nil
			s.Conditions = []metav1.Condition{{Type: v1.ConditionProgrammed, Status: metav1.ConditionFalse}}
		})
		w.eventually("the rules to go", func() bool { return rules(w) == 0 })
	})
}
