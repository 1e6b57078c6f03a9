package suite

import (
	"context"
	"fmt"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var traceIngress = addresses("5.5.5.21", "5555::15")

// traceFeatures traces packets of a pod behind an EgressService and through an external gateway,
// and has the nodes send probes: all must be seen with the predicted address.
func (s *suite) traceFeatures(t *testing.T) {
	e := s.egressIPOf(t)
	s.tellSettings(t) // policies match on the address ranges of the cluster
	e.traceEndpoint(t)
	user := e.user(t)
	e.bind(t, "egress-tracer")
	e.bind(t, "egress-prober")
	t.Run("EgressService", func(t *testing.T) { e.traceService(t, user) })
	t.Run("ExternalGateway", func(t *testing.T) { e.traceGateway(t, user) })
}

// traceService traces a pod on a node other than the host of its EgressService.
func (e *egressIPTest) traceService(t *testing.T, user string) {
	service := e.serve(t, "trace-service", traceIngress)
	service.announce(t)
	pod, err := e.RunServer(t.Context(), "trace-service-0", lab.ControlPlane, service.labels())
	if err != nil {
		t.Fatal(err)
	}
	host := service.programmed(t, "")
	e.leavesAs(t, pod, traceIngress...)
	for _, to := range e.OfFamilies(lab.OutsideAddresses) {
		if source, want := e.tracesTo(t, user, pod, to), lab.OfFamily(traceIngress, to.Is4()); source != want {
			t.Errorf("the outside sees %s, want %s from %s", source, want, host)
		}
	}
}

// traceGateway traces a pod to an address behind a gateway.
func (e *egressIPTest) traceGateway(t *testing.T, user string) {
	g := newGatewayTest(t, e.suite)
	pod, gw := g.servers["a"], g.gateways[0]
	g.policy(t, hops(v1.HopOptions{}, gw))
	defer g.remove(t)
	for _, to := range e.OfFamilies(lab.Beyond) {
		want, err := g.sourceFor(t.Context(), pod.Node, to.Is4(), g.gateways[:1])
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Until(t.Context(), egressPatience, fmt.Sprintf("%s to see %s", gw.Name, want), func(ctx context.Context) error {
			seen, err := g.through(ctx, pod.Name, to.Is4(), 3)
			if err == nil && (len(seen) != 1 || seen[gw.Name] != want) {
				err = fmt.Errorf("%v", seen)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		e.probesAs(t, user, pod, to, want)
	}
}
