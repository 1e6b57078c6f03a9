package services

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// hostPort checks that a pod is reached at a host port for as long as the pod exists.
func (w *world) hostPort(t *testing.T) {
	const port = 31999
	p, err := w.RunHostPortServer(t.Context(), "mapped", worker1, map[string]string{"role": "mapped"}, port)
	if err != nil {
		t.Fatal(err)
	}
	to := func(is4 bool) netip.AddrPort { return netip.AddrPortFrom(w.address(worker1, is4), port) }
	clients := []client{
		machine(lab.Outside), machine(worker1), machine(worker2), pod("c1"), pod("c0"), pod(p.Name),
	}
	for _, from := range clients {
		w.try(t, from.name, way{from, to, []string{p.Name}, nil})
		w.both(t, from.name+" by UDP", func(ctx context.Context, is4 bool) error {
			server, _, err := w.ask(ctx, from, to(is4))
			if err == nil && server != p.Name {
				err = fmt.Errorf("%s answers", server)
			}
			return err
		})
	}
	t.Run("loopback", func(t *testing.T) {
		loopback := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		if err := lab.Until(t.Context(), settle, "an answer", func(ctx context.Context) error {
			_, _, err := w.get(ctx, machine(worker1), loopback)
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	if err := w.DeletePod(t.Context(), p.Name); err != nil {
		t.Fatal(err)
	}
	for _, from := range clients[:len(clients)-1] {
		w.try(t, from.name+" without the pod", way{from, to, nil, nil})
	}
}

// newRange checks a Service from a range that was added after ovnkube started.
func (w *world) newRange(t *testing.T) {
	ranges := w.Kube.NetworkingV1().ServiceCIDRs()
	more := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"203.0.113.0/24", "2001:db8:cb00::/64"}},
	}
	if _, err := ranges.Create(t.Context(), more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ranges.Delete(context.Background(), more.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete range: %v", err)
		}
	})
	inRange := func(ips ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = ips[0], ips }
	}
	// A dry run would not do: it checks against an arbitrary one of the ranges.
	services := w.Kube.CoreV1().Services(lab.Namespace)
	if err := lab.Until(t.Context(), settle, "the range to be in use", func(ctx context.Context) error {
		_, err := services.Create(ctx, object("first", inRange("203.0.113.11", "2001:db8:cb00::b")), metav1.CreateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := services.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s := w.make(t, "in-range", inRange("203.0.113.10", "2001:db8:cb00::a"))
	both := []string{"s1", "s2"}
	w.try(t, "pod to cluster address", way{pod("c0"), s.cluster, both, w.of("c0")})
	w.try(t, "host to cluster address", way{machine(lab.ControlPlane), s.cluster, both, nil})
	w.try(t, "pod to another node's port", way{pod("c1"), w.port(s, lab.ControlPlane), both, nil})
	w.try(t, "outside to a port", way{machine(lab.Outside), w.port(s, worker1), both, nil})
}
