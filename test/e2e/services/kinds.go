package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// kinds tests kinds of Services that paths does not cover.
func (w *world) kinds(t *testing.T) {
	t.Run("LeftAlone", w.leftAlone)
	t.Run("WithoutNodePorts", w.withoutNodePorts)
	t.Run("ExternalIPs", w.externalIPs)
	t.Run("Terminating", w.terminating)
}

// leftAlone checks that nothing is programmed for Services that are not for ovnkube, nor any longer
// for one that is handed over to another proxy.
func (w *world) leftAlone(t *testing.T) {
	const label = "service.kubernetes.io/service-proxy-name"
	headless := w.make(t, "headless", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone
	})
	name := w.make(t, "name", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
	})
	foreign := w.make(t, "foreign", func(s *corev1.Service) { s.Labels = map[string]string{label: "other"} })
	given := w.make(t, "given")
	both := []string{"s1", "s2"}
	w.try(t, "before", way{pod("c1"), given.cluster, both, nil})
	for _, value := range []string{`"other"`, "null"} {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value)
		if _, err := w.Kube.CoreV1().Services(lab.Namespace).Patch(t.Context(), given.Name, mergePatch, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if value == "null" {
			w.try(t, "taken back", way{pod("c1"), given.cluster, both, nil})
			continue
		}
		for _, s := range []service{headless, name, foreign, given} {
			if err := lab.Until(t.Context(), settle, "nothing of "+s.Name, func(ctx context.Context) error { return w.nothingOf(ctx, s) }); err != nil {
				t.Error(err)
			}
		}
	}
}

// nothingOf returns an error if anything is programmed for a Service, in the database or on a node.
func (w *world) nothingOf(ctx context.Context, s service) error {
	for _, command := range [][]string{
		{lab.ControlPlane, "ovn-nbctl", "--timeout=10", "--bare", "--columns=name", "list", "load_balancer"},
		{worker1, "iptables-save"},
		{worker1, "ip6tables-save"},
	} {
		out, err := w.Kin.Exec(ctx, command[0], command[1:]...)
		if err != nil {
			return err
		}
		for word := range strings.FieldsFuncSeq(out, func(r rune) bool { return strings.ContainsRune(" \n\"", r) }) {
			if key := s.Namespace + "/" + s.Name; word == key || strings.HasPrefix(word, "Service_"+key+"_") {
				return fmt.Errorf("%s has %s", command[1], word)
			}
		}
	}
	return nil
}

// withoutNodePorts checks that a load balancer's address is served if the Service has no node
// ports.
func (w *world) withoutNodePorts(t *testing.T) {
	bare := func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(false) }
	both := []string{"s1", "s2"}
	t.Run("Cluster", func(t *testing.T) {
		s := w.make(t, "bare", loadBalancer, bare)
		if s.nodePort() != 0 {
			t.Fatal("it has a node port")
		}
		w.announce(t, lab.ControlPlane)
		w.try(t, "outside", way{machine(lab.Outside), s.external, both, nil})
		w.try(t, "host", way{machine(worker1), s.external, both, nil})
		w.try(t, "pod", way{pod("c0"), s.external, both, w.of("c0")})
	})
	t.Run("Local", func(t *testing.T) {
		s := w.make(t, "bare-local", loadBalancer, externalLocal, bare)
		w.announce(t, worker2)
		w.try(t, "outside", way{machine(lab.Outside), s.external, both[1:], outside})
		w.announce(t, lab.ControlPlane)
		w.try(t, "outside to a node without endpoint", way{machine(lab.Outside), s.external, nil, nil})
	})
}

// externalIPs checks that external IPs are served like load-balancer addresses, for any type of
// Service.
func (w *world) externalIPs(t *testing.T) {
	s := w.make(t, "external-ips", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		for _, a := range external {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
		}
	})
	both := []string{"s1", "s2"}
	w.announce(t, worker1)
	w.try(t, "outside", way{machine(lab.Outside), s.external, both, nil})
	w.try(t, "host", way{machine(worker2), s.external, both, nil})
	w.try(t, "pod", way{pod("c1"), s.external, both, w.of("c1")})
}

// terminating checks that terminating endpoints that still serve are used if no endpoint is ready,
// and that those that are not serving never are.
func (w *world) terminating(t *testing.T) {
	s := w.make(t, "terminating", func(s *corev1.Service) { s.Spec.Selector = nil })
	set := func(first, second discoveryv1.EndpointConditions) {
		for name, c := range map[string]discoveryv1.EndpointConditions{"s1": first, "s2": second} {
			p := w.pods[name]
			w.slices(t, s, name, func(is4 bool) []discoveryv1.Endpoint {
				return []discoveryv1.Endpoint{endpoint(p.Node, p.Address(is4), c)}
			})
		}
	}
	for _, c := range []struct {
		name          string
		first, second discoveryv1.EndpointConditions
		answers       []string
	}{
		{"both ready", ready, ready, []string{"s1", "s2"}},
		{"one leaves", leaving, ready, []string{"s2"}},
		{"both leave", leaving, leaving, []string{"s1", "s2"}},
		{"one is left that serves", unready, leaving, []string{"s2"}},
		{"none", unready, unready, nil},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			set(c.first, c.second)
			if len(c.answers) == 1 { // the previous set must be gone everywhere
				w.gone(t, s, c.answers[0])
			}
			w.try(t, "pod", way{pod("c1"), s.cluster, c.answers, nil})
			w.try(t, "outside", way{machine(lab.Outside), w.port(s, worker1), c.answers, nil})
		})
	}
}

// gone waits until only the given server answers, ten times in a row.
func (w *world) gone(t *testing.T, s service, server string) {
	t.Helper()
	for _, to := range []func(bool) netip.AddrPort{s.cluster, w.port(s, worker1)} {
		for _, is4 := range []bool{true, false} {
			if err := lab.Until(t.Context(), settle, "only "+server, func(ctx context.Context) error {
				answers, err := w.gets(ctx, pod("c1"), to(is4), 10, soon())
				if err != nil {
					return err
				}
				if i := slices.IndexFunc(answers, func(a answer) bool { return a.server != server }); i >= 0 {
					return fmt.Errorf("%s answers", answers[i].server)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
}
