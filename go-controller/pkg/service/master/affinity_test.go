package master_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestAffinityTimeoutIsTold: an unsupported affinity timeout is reported once for each
// change of it, not for other changes, and not again by the next master.
func TestAffinityTimeoutIsTold(t *testing.T) {
	affinity := func(seconds int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	w := newWorld(t)
	s := state{nodes: map[string]topology.GatewayMode{"n1": shared}, services: []*corev1.Service{object("a", affinity(10)), object("b", at("10.96.0.2"))},
		endpoints: map[string][]string{"a": {"10.244.1.3@n1"}, "b": {"10.244.1.4@n1"}}}
	w.set(s)
	w.start()
	w.told("SessionAffinityTimeout", "spec.sessionAffinityConfig.clientIP.timeoutSeconds", "10 s")
	w.silent()

	s.endpoints["a"] = []string{"10.244.1.3@n1", "10.244.1.5@n1"}
	w.set(s)
	w.reaches(s)
	w.silent()
	w.start()
	w.silent()

	s.services[0] = object("a", affinity(20))
	w.set(s)
	w.told("SessionAffinityTimeout", "20 s")
	s.services[0] = object("a")
	w.set(s)
	w.reaches(s)
	w.silent()
	s.services[0] = object("a", affinity(20))
	w.set(s)
	w.told("SessionAffinityTimeout", "20 s")
	w.silent()
	s.services = s.services[1:]
	w.set(s)
	w.reaches(s)
	s.services = append(s.services, object("a", affinity(20)))
	w.set(s)
	w.told("SessionAffinityTimeout", "20 s")
}
