package explain

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// TestDestinationWords: the answer describes a destination if the outcome alone does not.
func TestDestinationWords(t *testing.T) {
	type change = func(*Snapshot)
	prod := []change{egressIP("prod", "prod", "172.18.0.33"), egressService("shop/checkout", "5.5.5.5"), loadBalanced, inForce}
	for to, want := range map[string]string{
		"10.96.0.9":        "no Service has it: a policy of priority 1005 drops what is sent there",
		"10.96.0.7:81":     "no Service has it at port 81: a policy of priority 1005 drops what is sent there",
		"172.18.0.33":      "is an address of EgressIP/prod: OVN takes replies there, and drops what else is sent to it",
		"172.18.0.3":       "is an address of the pod's own node, which sees the pod's address",
		"172.18.0.3:30080": "an address of the pod's own node, at a node port of Service shop/checkout: its pods see",
	} {
		p := ask(t, world(prod...), "prod/web", to)
		if said := strings.Join(append(p.Notes, p.Families[0].Why), "\n"); !strings.Contains(said, want) {
			t.Errorf("to %s: %s\nwant %s", to, said, want)
		}
	}
	p := ask(t, world(), "prod/web", "10.96.0.9")
	if why := p.Families[0].Why; !strings.HasSuffix(why, "drops what is sent there") || len(p.Notes) > 0 {
		t.Errorf("without any feature: %s, notes %q", why, p.Notes)
	}
}

// TestDestinationHostPorts: ports that the nodes themselves use, by default or by configuration, reach no Service. The address of a node that
// a load balancer has as well serves the node port of its Service only on that node.
func TestDestinationHostPorts(t *testing.T) {
	type change = func(*Snapshot)
	onNode := func(s *Snapshot) {
		svc := s.Services[0]
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "172.18.0.4"})
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "same", Port: 30081, NodePort: 30081})
		for _, slice := range s.EndpointSlices {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new("same"), Port: new(int32(8081))})
		}
	}
	reserved := func(s *Snapshot) { s.Settings.HostPorts = []service.HostPort{{Protocol: "tcp", Port: 30080}} }
	noNodePorts := func(s *Snapshot) {
		for _, n := range s.Nodes {
			known, _ := kube.Node(n)
			known.Gateway.NodePort = false
			n.Annotations[kube.AnnotationL3Gateway] = kube.FormatL3Gateway(known.Gateway)
		}
	}
	const served = "172.18.0.4 is an address of the load balancer of Service shop/checkout: its pods see"
	for name, c := range map[string]struct {
		to     string
		change []change
		want   string
	}{
		"a node port":                   {"172.18.0.3:30080", nil, "at a node port of Service shop/checkout: its pods see"},
		"reserved by configuration":     {"172.18.0.3:30080", []change{reserved}, "172.18.0.3 is an address of the pod's own node, which sees the pod's address"},
		"another node's address":        {"172.18.0.4:8080", []change{onNode}, served},
		"its node port":                 {"172.18.0.4:30081", []change{onNode}, "172.18.0.4 is an address of node ovn-worker2: pods call hosts"},
		"its node port, without others": {"172.18.0.4:30081", []change{onNode, noNodePorts}, served},
	} {
		p := ask(t, world(append([]change{egressService("shop/checkout", "5.5.5.5"), loadBalanced}, c.change...)...), "prod/web", c.to)
		if why := p.Families[0].Why; !strings.Contains(why, c.want) {
			t.Errorf("%s: %s\nwant %s", name, why, c.want)
		}
	}
}

func TestParseDestination(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "192.0.2.1": "192.0.2.1:0", "192.0.2.1:443": "192.0.2.1:443", "[2001:db8::1]": "[2001:db8::1]:0", "[2001:db8::1]:443": "[2001:db8::1]:443",
		"::ffff:192.0.2.1": "192.0.2.1:0", "169.254.169.254:80": "169.254.169.254:80", "fe80::1": "[fe80::1]:0",
		"127.0.0.1": "none", "0.0.0.0": "none", "224.0.0.1": "none", "::1": "none", "fe80::1%eth0": "none", "192.0.2.1:": "none", "example.com": "none", "192.0.2.1:99999": "none",
	} {
		to, err := ParseDestination(text)
		got := to.String()
		switch {
		case err != nil:
			got = "none"
		case to == netip.AddrPort{}:
			got = ""
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
