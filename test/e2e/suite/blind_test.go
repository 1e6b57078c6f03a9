package suite

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// blindPort is the port that the pods send to.
	blindPort = 11010
	// blindFor is how long the master is cut off: several times its timeouts.
	blindFor = 4 * time.Second
)

var blindIngress = []netip.Addr{netip.MustParseAddr("5.5.5.11"), netip.MustParseAddr("5555::b")}

// blindMaster cuts the master's node off, and stops the master itself, while nothing is wrong with
// the other nodes: the host does not change, and no packet leaves with another source.
func (s *suite) blindMaster(t *testing.T) {
	e := s.serve(t, "blind", blindIngress, func(eg *v1.EgressService) { eg.Spec.OnUnavailable = v1.UnavailableDrop })
	e.announce(t)
	host := e.programmed(t, "")
	c := newCapture(t, s, blindPort, blindPort, blindIngress)
	l := &leakTest{served: e, capture: c}
	for _, node := range nodes {
		sender := lab.Sender{Name: l.podOn(node), Node: node, Labels: e.labels(), To: lab.OutsideAddresses, Port: blindPort}
		if err := s.StartSender(t.Context(), sender); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		l.runs(t, node, "")
	}
	e.steered(t, len(nodes))
	f := &faultTest{suite: s}
	for _, p := range []process{
		{name: "switch of control plane", node: lab.ControlPlane, pattern: "^ovs-vswitchd "},
		processOf(t, "ovnkube master"),
	} {
		t.Run(p.name, func(t *testing.T) {
			services := e.Egress.EgressServiceV1().EgressServices(lab.Namespace)
			watch, err := services.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + e.name})
			if err != nil {
				t.Fatal(err)
			}
			hosts := make(chan []string, 1)
			go func() {
				var all []string
				for event := range watch.ResultChan() {
					if eg, ok := event.Object.(*v1.EgressService); ok {
						all = append(all, eg.Status.Host)
					}
				}
				hosts <- all
			}()
			pid, err := s.pid(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			f.forAWhile(t, p.node, blindFor, []string{"kill", "-STOP", pid}, []string{"kill", "-CONT", pid})
			// Wait until anything decided meanwhile has taken effect.
			if err := pause(t.Context(), blindFor); err != nil {
				t.Fatal(err)
			}
			watch.Stop()
			if all := <-hosts; slices.ContainsFunc(all, func(h string) bool { return h != host }) {
				t.Errorf("the hosts were %q, not always %s", all, host)
			}
			if now := e.programmed(t, ""); now != host {
				t.Errorf("the host is %s, was %s", now, host)
			}
			e.steered(t, len(nodes))
		})
	}
	t.Logf("%d packets with the right source", c.inspect(t))
}
