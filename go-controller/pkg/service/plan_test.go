package service_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func TestPlan(t *testing.T) {
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
	mixed := []*discoveryv1.EndpointSlice{slice(ep("n1", "10.244.1.3"), ep("n1", "172.18.0.2"), ep("n2", "172.18.0.3"))}

	for name, c := range map[string]struct {
		change []func(*corev1.Service)
		slices []*discoveryv1.EndpointSlice
	}{
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
		"affinity":             {[]func(*corev1.Service){nodePorts, affinity}, onTwo()},
	} {
		for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
			t.Run(name+"-"+string(mode), func(t *testing.T) {
				s, ok := service.Decode(service.Snapshot{Service: object(c.change...), Slices: c.slices}, config.Cluster)
				if !ok {
					t.Fatal("not ours")
				}
				golden.Check(t, name+"-"+string(mode), show(s, cluster(mode)))
			})
		}
	}
}
