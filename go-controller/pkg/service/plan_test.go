package service_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// scenario is a Service with its endpoints.
type scenario struct {
	change []func(*corev1.Service)
	slices []*discoveryv1.EndpointSlice
}

func (c scenario) decode(t *testing.T) service.Service {
	t.Helper()
	return decode(t, object(c.change...), c.slices...)
}

var modes = []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal}

// scenarios returns all kinds of Services.
func scenarios() map[string]scenario {
	everyProtocol := func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{
			port(corev1.ProtocolTCP, 53, 0, "dns-tcp"), port(corev1.ProtocolUDP, 53, 0, "dns"), port(corev1.ProtocolSCTP, 99, 0, "sig"),
		}
	}
	affinity := func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	ranges := func(s *corev1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", " 198.51.100.7/32"}
	}
	externalIPs := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.9", "2001:db8::9"} }
	single := func(s *corev1.Service) { s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1] }
	otherRange := func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"203.0.113.10", "fd00:10:96::9"} }
	mixed := []*discoveryv1.EndpointSlice{slice(ep("n1", "10.244.1.3"), ep("n1", "172.18.0.2"), ep("n2", "172.18.0.3"))}

	return map[string]scenario{
		"cluster-ip":           {nil, onTwo()},
		"cluster-ip-ipv4":      {[]func(*corev1.Service){single}, onTwo()},
		"protocols":            {[]func(*corev1.Service){everyProtocol, nodePorts}, []*discoveryv1.EndpointSlice{sliceOf([]string{"dns", "dns-tcp", "sig"}, 1053, ep("n1", "10.244.1.3"))}},
		"node-port":            {[]func(*corev1.Service){nodePorts}, onTwo()},
		"load-balancer":        {[]func(*corev1.Service){loadBalancer, externalIPs, ranges}, onTwo()},
		"external-local":       {[]func(*corev1.Service){loadBalancer, externalLocal}, onTwo()},
		"external-local-bare":  {[]func(*corev1.Service){loadBalancer, externalLocal, withoutNodePorts}, onTwo()},
		"internal-local":       {[]func(*corev1.Service){internalLocal}, onTwo()},
		"internal-local-ports": {[]func(*corev1.Service){nodePorts, internalLocal}, onTwo()},
		"both-local":           {[]func(*corev1.Service){loadBalancer, internalLocal, externalLocal}, onTwo()},
		"no-endpoints":         {[]func(*corev1.Service){loadBalancer}, nil},
		"no-endpoints-local":   {[]func(*corev1.Service){loadBalancer, internalLocal, externalLocal}, nil},
		"hosts":                {[]func(*corev1.Service){loadBalancer}, onHosts()},
		"hosts-local":          {[]func(*corev1.Service){loadBalancer, internalLocal, externalLocal}, onHosts()},
		"mixed-local":          {[]func(*corev1.Service){loadBalancer, single, externalLocal}, mixed},
		"other-range":          {[]func(*corev1.Service){nodePorts, otherRange}, onTwo()},
		"affinity":             {[]func(*corev1.Service){nodePorts, affinity}, onTwo()},
	}
}

func TestPlan(t *testing.T) {
	for name, c := range scenarios() {
		for _, mode := range modes {
			t.Run(name+"-"+string(mode), func(t *testing.T) {
				golden.Check(t, name+"-"+string(mode), show(c.decode(t), cluster(mode)))
			})
		}
	}
}
