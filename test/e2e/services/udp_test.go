package services

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// udpWay is a way to a Service by UDP.
type udpWay struct {
	name string
	from client
	to   func(is4 bool) netip.AddrPort
}

func (w *world) udpWays(s service) []udpWay {
	return []udpWay{
		{"pod to cluster address", pod("c1"), s.cluster},
		{"pod to its node's port", pod("c1"), w.port(s, worker1)},
		{"host to cluster address", machine(worker1), s.cluster},
		{"host to its own port", machine(worker1), w.port(s, worker1)},
		{"outside to a port", machine(lab.Outside), w.port(s, worker1)},
		{"outside to load balancer address", machine(lab.Outside), s.external},
	}
}

// udp is answered on every way, and by another server once the first is gone.
func (w *world) udp(t *testing.T) {
	s := w.make(t, "udp", loadBalancer)
	w.announce(t, worker1)
	for _, server := range []string{"s1", "s2"} {
		t.Run(server, func(t *testing.T) {
			if err := w.serveOnly(t.Context(), s, server); err != nil {
				t.Fatal(err)
			}
			for _, way := range w.udpWays(s) {
				w.both(t, way.name, func(ctx context.Context, is4 bool) error {
					got, _, err := w.ask(ctx, way.from, way.to(is4), "-timeout", "500ms")
					if err == nil && got != server {
						err = fmt.Errorf("%s answers", got)
					}
					return err
				})
			}
		})
	}
}

// fragments answers questions larger than a packet, where the kernel translates:
// the datapath of Open vSwitch that these clusters have does not find the load
// balancer of a fragment without ports.
func (w *world) fragments(t *testing.T) {
	s := w.onHosts(t, "fragments", loadBalancer)
	w.announce(t, worker1)
	for _, way := range []udpWay{
		{"host to cluster address", machine(lab.ControlPlane), s.cluster},
		{"host to its own port", machine(worker1), w.port(s, worker1)},
		{"outside to a port", machine(lab.Outside), w.port(s, worker1)},
		{"outside to load balancer address", machine(lab.Outside), s.external},
	} {
		w.both(t, way.name, func(ctx context.Context, is4 bool) error {
			_, _, err := w.ask(ctx, way.from, way.to(is4), "-size", "4000")
			return err
		})
	}
}

// both tries in both families.
func (w *world) both(t *testing.T, name string, try func(ctx context.Context, is4 bool) error) {
	t.Helper()
	for family, is4 := range map[string]bool{"v4": true, "v6": false} {
		t.Run(name+"/"+family, func(t *testing.T) {
			if err := lab.Until(t.Context(), settle, name, func(ctx context.Context) error { return try(ctx, is4) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// serveOnly makes one pod the only server of a Service.
func (w *world) serveOnly(ctx context.Context, s service, name string) error {
	for _, server := range []string{"s1", "s2"} {
		value := "false"
		if server == name {
			value = "true"
		}
		patch := fmt.Sprintf(`{"metadata":{"labels":{"only":%q}}}`, value)
		if _, err := w.Kube.CoreV1().Pods(lab.Namespace).Patch(ctx, server, mergePatch, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	patch := `{"spec":{"selector":{"role":"server","only":"true"}}}`
	_, err := w.Kube.CoreV1().Services(lab.Namespace).Patch(ctx, s.Name, mergePatch, []byte(patch), metav1.PatchOptions{})
	return err
}
