package suite

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const familyName = "family"

var (
	familyIngress = addresses("5.5.5.23", "5555::17")
	familyIPs     = addresses("172.18.0.243", "fc00:f853:ccd:e793::243")
)

// familyService serves pods: first connections to the Service in every
// way, then egress traffic, both before and after the host moves.
func (s *suite) familyService(t *testing.T) {
	e := s.serve(t, familyName, familyIngress)
	e.announce(t)
	where := map[string]string{} // deleted with the Service
	for i, node := range nodes {
		where[fmt.Sprintf("%s-%d", familyName, i)] = node
	}
	pods := s.runServers(t, where, e.labels())
	host := e.programmed(t, "")
	e.steered(t, len(pods))
	t.Run("Answers", func(t *testing.T) { e.answers(t, pods) })
	s.allLeaveAs(t, pods, e.ingress...)
	s.cordon(t, host, true)
	e.programmed(t, host)
	s.cordon(t, host, false)
	s.allLeaveAs(t, pods, e.ingress...)
}

// answers waits until all pods behind the Service answer at each of its addresses: inside at the
// cluster address, outside at each node's port and at the ingress address.
func (e *served) answers(t *testing.T, pods []lab.Pod) {
	svc, err := e.Kube.CoreV1().Services(lab.Namespace).Get(t.Context(), e.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(svc.Spec.ClusterIPs) != len(e.ingress) {
		t.Errorf("cluster addresses %v, want one of each family", svc.Spec.ClusterIPs)
	}
	is4 := e.Has(true)
	type question struct {
		from string
		pod  bool
		to   netip.AddrPort
	}
	inside := netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), lab.ServePort)
	questions := []question{
		{"a", true, inside}, {nodes[len(nodes)-1], false, inside},
		{lab.Outside, false, netip.AddrPortFrom(e.ingress[0], lab.ServePort)},
	}
	for _, node := range nodes {
		address, err := e.nodeAddress(t.Context(), node, is4)
		if err != nil {
			t.Fatal(err)
		}
		questions = append(questions, question{lab.Outside, false, netip.AddrPortFrom(address, uint16(svc.Spec.Ports[0].NodePort))})
	}
	for _, q := range questions {
		err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%s to hear all pods at %s", q.from, q.to), func(ctx context.Context) error {
			// The chance that one of three is missing is one in a million.
			out, err := e.Call(ctx, q.from, q.pod, "get", "-count", "36", "http://"+q.to.String()+"/hostname")
			if err != nil {
				return err
			}
			heard := map[string]bool{}
			for name := range strings.FieldsSeq(out) {
				heard[name] = true
			}
			for _, p := range pods {
				if !heard[p.Name] {
					return fmt.Errorf("%s is not among %v", p.Name, heard)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// familyAddress gives pods an egress address, moves it, and takes it
// away.
func (s *suite) familyAddress(t *testing.T) {
	e := s.egressIPOf(t, s.servers["a"], s.servers["b"])
	ips := s.OfFamilies(familyIPs)
	candidates := nodes[len(nodes)-2:]
	e.assignable(t, candidates...)
	e.choose(t, familyName, "a", "b")
	e.create(t, familyName, ips)
	leave := func(as ...netip.Addr) {
		t.Helper()
		s.allLeaveAs(t, e.all(), as...)
	}
	was := e.programmed(t, familyName)[ips[0]]
	leave(ips...)
	others := slices.DeleteFunc(slices.Clone(candidates), func(n string) bool { return n == was })
	e.assignable(t, others...)
	e.movedFrom(t, familyName, ips[0], was)
	leave(ips...)
	e.remove(t, familyName)
	leave()
	e.choose(t, familyName)
	e.assignable(t)
}
