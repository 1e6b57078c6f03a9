package master

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestServiceTakesNothing: a user of a namespace cannot take an address from an older EgressIP while no
// node holds it. The external addresses of a Service that no proxy serves count for nothing; what a load balancer gave
// it does count, because an EgressService serves that. A Service that was created again is younger.
func TestServiceTakesNothing(t *testing.T) {
	const addr = "172.18.0.33"
	service := func(created time.Time, change ...func(*corev1.Service)) *corev1.Service {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "taken", CreationTimestamp: metav1.Time{Time: created}},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", ExternalIPs: []string{addr}}}
		for _, f := range change {
			f(svc)
		}
		return svc
	}
	older := born.Add(-time.Hour)
	for name, c := range map[string]struct {
		service *corev1.Service
		loses   bool // the EgressIP, when its nodes come back
	}{
		"younger":  {service(born.Add(time.Hour)), false},
		"as old":   {service(born), false},
		"older":    {service(older), true},
		"headless": {service(older, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), false},
		"labelled": {service(older, func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} }), false},
		"labelled, with an EgressService": {service(older, func(s *corev1.Service) {
			s.Labels, s.Spec.ExternalIPs, s.Spec.Type = map[string]string{corev1.IsHeadlessService: ""}, nil, corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
		}), true},
		"ExternalName": {service(older, func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := serving(t, addr)
			label := func(on bool) {
				for n := range hopOf {
					w.changeNode(n, func(n *corev1.Node) {
						if delete(n.Labels, kube.LabelEgressAssignable); on {
							n.Labels[kube.LabelEgressAssignable] = ""
						}
					})
				}
			}
			w.create(c.service)
			if c.loses || c.service.Spec.ClusterIP == "10.96.0.7" && len(c.service.Labels) == 0 {
				w.eventually("the conflict", func() bool { return w.is(prod, v1.ConditionConflict) })
			}
			label(false)
			w.eventually("nobody to hold it", func() bool { return w.holder(prod, addr) == "" && !w.is(prod, v1.ConditionAssigned) })
			label(true)
			if !c.loses {
				w.programmed(prod)
				return
			}
			w.eventually("the refusal", func() bool { return w.reason(prod, v1.ConditionAssigned) == string(egressip.AddressTaken) })
			w.remove(c.service)
			w.create(service(born.Add(time.Hour)))
			w.programmed(prod)
		})
	}
}
