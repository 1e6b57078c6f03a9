package services

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// udpWay is a path to a Service by UDP.
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

// udp checks that UDP is answered on every path and follows the endpoints: a client that keeps
// sending from one port must not stay with a server that is gone.
func (w *world) udp(t *testing.T) {
	s := w.make(t, "udp", loadBalancer)
	w.announce(t, worker1)
	t.Run("Cluster", func(t *testing.T) { w.chase(t, s, w.udpWays(s), "s1", "s2") })
	s = w.make(t, "udp-local", loadBalancer, externalLocal)
	t.Run("ExternalLocal", func(t *testing.T) {
		w.chase(t, s, []udpWay{ // both servers are on the node
			{"outside to a port", machine(lab.Outside), w.port(s, worker1)},
			{"outside to load balancer address", machine(lab.Outside), s.external},
		}, "s1", "c1")
	})
}

// changes is how often the server changes while clients keep sending.
const changes = 2

// chase has clients send on all paths at the same time while the server changes, until each gets
// answers only from the next one.
func (w *world) chase(t *testing.T, s service, ways []udpWay, servers ...string) {
	patience := time.Duration(20 * figures.Slowness() * float64(time.Second))
	for i := range changes {
		server := servers[i%len(servers)]
		t.Run(fmt.Sprintf("%d-%s", i, server), func(t *testing.T) {
			var clients sync.WaitGroup
			for j, way := range ways {
				for k, is4 := range []bool{true, false} {
					clients.Go(func() {
						_, err := w.Call(t.Context(), way.from.name, way.from.pod,
							"chase", "-from", fmt.Sprint(20000+2*j+k), "-until", server, "-timeout", patience.String(), way.to(is4).String())
						if err != nil {
							t.Errorf("%s at %s: %v", way.name, way.to(is4), err)
						}
					})
				}
			}
			if err := w.serveOnly(t.Context(), s, server); err != nil {
				t.Error(err)
			}
			clients.Wait()
		})
	}
}

// fragments checks that questions larger than a packet are answered where the kernel translates:
// the Open vSwitch datapath of these clusters does not find the load balancer for a fragment
// without ports.
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

// serveOnly makes one pod the only server of a Service.
func (w *world) serveOnly(ctx context.Context, s service, name string) error {
	for pod := range w.pods {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"only":"%t"}}}`, pod == name)
		if _, err := w.Kube.CoreV1().Pods(lab.Namespace).Patch(ctx, pod, mergePatch, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	patch := `{"spec":{"selector":{"role":null,"only":"true"}}}`
	_, err := w.Kube.CoreV1().Services(lab.Namespace).Patch(ctx, s.Name, mergePatch, []byte(patch), metav1.PatchOptions{})
	return err
}
