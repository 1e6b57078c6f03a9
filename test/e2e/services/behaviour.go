package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// affinity checks that each client stays with one server.
func (w *world) affinity(t *testing.T) {
	s := w.make(t, "affinity", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	for _, c := range []client{pod("c0"), pod("c1"), pod("s1"), machine(worker1), machine(lab.Outside)} {
		to := s.cluster
		if c.name == lab.Outside {
			to = w.port(s, worker1)
		}
		w.both(t, c.name, func(ctx context.Context, is4 bool) error {
			answers, err := w.gets(ctx, c, to(is4), 11, soon())
			if err != nil {
				return err
			}
			for _, a := range answers {
				if a.server != answers[0].server {
					return fmt.Errorf("%s answers after %s", a.server, answers[0].server)
				}
			}
			return nil
		})
	}
}

// sourceRanges checks that listed clients are let in and packets of others are dropped.
func (w *world) sourceRanges(t *testing.T) {
	for name, ranges := range map[string][]string{
		"allowed": {"172.18.0.100/32", "fc00:f853:ccd:e793::100/128"},
		"denied":  {"192.0.2.0/24", "2001:db8::/32"},
		"invalid": {"0172.018.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			s := w.make(t, "ranges-"+name, loadBalancer, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
			w.announce(t, worker1)
			both := []string{"s1", "s2"}
			w.try(t, "pod", way{pod("c1"), s.external, both, nil})
			w.try(t, "outside to a port", way{machine(lab.Outside), w.port(s, worker1), both, nil})
			if name == "allowed" {
				w.try(t, "outside", way{machine(lab.Outside), s.external, both, nil})
				return
			}
			w.both(t, "silence outside", func(ctx context.Context, is4 bool) error {
				return w.silent(ctx, machine(lab.Outside), s.external(is4))
			})
		})
	}
}

// healthPort checks which nodes report a local endpoint.
func (w *world) healthPort(t *testing.T) {
	s := w.make(t, "health", loadBalancer, externalLocal)
	for node, healthy := range map[string]bool{worker1: true, worker2: true, lab.ControlPlane: false} {
		for _, is4 := range []bool{true, false} {
			url := "http://" + netip.AddrPortFrom(w.address(node, is4), uint16(s.Spec.HealthCheckNodePort)).String() + "/healthz"
			if err := lab.Until(t.Context(), settle, "health of "+node, func(ctx context.Context) error {
				out, err := w.Call(ctx, lab.Outside, false, "get", url)
				switch {
				case healthy && err != nil:
					return err
				case healthy && !strings.Contains(out, `"localEndpoints": 1`):
					return fmt.Errorf("it says %s", out)
				case !healthy && err == nil:
					return errors.New("it is healthy")
				case !healthy && !strings.Contains(err.Error(), "503"):
					return err
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
}
