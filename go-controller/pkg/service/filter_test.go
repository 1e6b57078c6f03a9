package service_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// others holds Services and the owners of addresses.
type others struct {
	owners   map[string]reserved.Owner
	services []*corev1.Service
}

func (o others) Owners(a netip.Addr) []reserved.Owner {
	if owner, ok := o.owners[a.String()]; ok {
		return []reserved.Owner{owner}
	}
	return nil
}

func (o others) with(claim string) []*corev1.Service {
	var all []*corev1.Service
	for _, s := range o.services {
		if slices.Contains(service.Claims(s), claim) {
			all = append(all, s)
		}
	}
	return all
}

func (o others) ClusterAddr(a netip.Addr) string {
	for _, s := range o.with(service.ClusterAddrClaim(a)) {
		return s.Namespace + "/" + s.Name
	}
	return ""
}

func (o others) At(to netip.AddrPort, protocol string) []*corev1.Service {
	return o.with(service.AtClaim(to, protocol))
}

func (o others) OnPort(protocol string, port uint16) []*corev1.Service {
	return o.with(service.PortClaim(protocol, port))
}

// filtering is the configuration of these tests.
var filtering = service.Config{
	Cluster: config.Cluster, Services: config.Services, Masquerade: config.Masquerade,
	Join: prefixes("100.64.0.0/16", "fd98::/64"), NodePorts: true, HostPorts: service.DefaultHostPorts,
}

// named returns a Service of one family, with an age in minutes.
func named(name, clusterIP string, age int, change ...func(*corev1.Service)) *corev1.Service {
	return object(append([]func(*corev1.Service){func(s *corev1.Service) {
		s.Name = name
		s.CreationTimestamp = metav1.NewTime(time.Date(2025, 1, 1, 0, -age, 0, 0, time.UTC))
		s.Spec.ClusterIP, s.Spec.ClusterIPs = clusterIP, []string{clusterIP}
	}}, change...)...)
}

func externalIPs(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = ips }
}

func ingress(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = nil
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func ports(all ...corev1.ServicePort) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports = all }
}

// grants returns what is served for a Service, as "ADDRESS:PORT/PROTOCOL", which must be
// the same in the master's rows and in a node's rules, and what is refused.
func grants(t *testing.T, s *corev1.Service, o others) (served, refused []string) {
	t.Helper()
	d, ok := service.Decode(service.Snapshot{Service: s, Slices: onTwo(), Others: o}, filtering)
	if !ok {
		t.Fatal("not ours")
	}
	rows := text(service.MasterRows(d, filtering, facts(cluster(topology.GatewayShared))))
	state := service.NodeStateOf(d, filtering, node(3, topology.GatewayShared))
	for _, e := range d.External {
		for _, p := range d.Ports {
			vip := netip.AddrPortFrom(e.Addr, p.Port)
			inRows := strings.Contains(rows, p.Protocol+" "+vip.String()+" ")
			inRules := false
			for chain, rules := range state.Rules {
				for _, r := range rules {
					inRules = inRules || chain.Name == service.ChainExternal &&
						strings.Contains(string(r), fmt.Sprintf("-d %s -p %s", topology.HostPrefix(e.Addr), p.Protocol)) &&
						strings.Contains(string(r), fmt.Sprintf("--dport %d ", p.Port))
				}
			}
			inFlows := slices.ContainsFunc(state.Ingress, func(i service.Ingress) bool { return i.To == vip && i.Protocol == p.Protocol })
			if inRows != inRules || inRows != inFlows {
				t.Errorf("%s %s: in rows %t, in rules %t, in flows %t", p.Protocol, vip, inRows, inRules, inFlows)
			}
			if inRows {
				served = append(served, vip.String()+"/"+p.Protocol)
			}
		}
	}
	for _, r := range d.Refused {
		refused = append(refused, fmt.Sprintf("%s %s %s", r.Reason, r.Field, r.Message))
	}
	return served, refused
}

// TestAddressesOfTheCluster: addresses of the cluster itself are not served; the other
// addresses of the Service are.
func TestAddressesOfTheCluster(t *testing.T) {
	o := others{
		owners: map[string]reserved.Owner{
			"172.18.0.2":    {Kind: reserved.Node, Name: "n1"},
			"172.18.0.1":    {Kind: reserved.Gateway, Name: "n1"},
			"198.51.100.7":  {Kind: reserved.APIServer, Ports: []uint16{443}},
			"172.18.0.33":   {Kind: reserved.EgressIP, Name: "prod"},
			"fd00:18::2":    {Kind: reserved.Node, Name: "n2"},
			"203.0.113.250": {},
		},
		services: []*corev1.Service{named("dns", "192.168.200.10", 5)}, // in a range that was added
	}
	for ip, want := range map[string]reserved.Reason{
		"172.18.0.2":        reserved.NodeAddress,
		"::ffff:172.18.0.2": reserved.NodeAddress,
		"fd00:18::2":        reserved.NodeAddress,
		"172.18.0.1":        reserved.GatewayAddress,
		"198.51.100.7":      reserved.APIServerAddress,
		"172.18.0.33":       reserved.AddressTaken,
		"192.168.200.10":    reserved.InternalAddress,
		"10.96.0.10":        reserved.InternalAddress,
		"10.96.0.9":         reserved.InternalAddress, // its own
		"fd00:10:96::a":     reserved.InternalAddress,
		"10.244.1.3":        reserved.InternalAddress,
		"10.244.200.200":    reserved.InternalAddress,
		"fd00:10:244:2::3":  reserved.InternalAddress,
		"100.64.0.2":        reserved.InternalAddress,
		"fd98::1":           reserved.InternalAddress,
		"169.254.169.3":     reserved.InvalidAddress,
		"fd69::3":           reserved.InternalAddress,
		"169.254.169.254":   reserved.InvalidAddress,
		"fe80::1":           reserved.InvalidAddress,
		"fe80::1%eth0":      reserved.InvalidAddress,
		"127.0.0.1":         reserved.InvalidAddress,
		"127.1.2.3":         reserved.InvalidAddress,
		"::1":               reserved.InvalidAddress,
		"::ffff:127.0.0.1":  reserved.InvalidAddress,
		"0.0.0.0":           reserved.InvalidAddress,
		"0.1.2.3":           reserved.InvalidAddress,
		"::":                reserved.InvalidAddress,
		"224.0.0.1":         reserved.InvalidAddress,
		"239.1.2.3":         reserved.InvalidAddress,
		"ff02::1":           reserved.InvalidAddress,
		"255.255.255.255":   reserved.InvalidAddress,
		"010.1.2.3":         reserved.InvalidAddress,
		"nonsense":          reserved.InvalidAddress,
		" 203.0.113.8":      reserved.InvalidAddress,
		"203.0.113.8/32":    reserved.InvalidAddress,
	} {
		s := object(externalIPs(ip, "203.0.113.9"))
		served, refused := grants(t, s, o)
		if !slices.Equal(served, []string{"203.0.113.9:80/tcp"}) {
			t.Errorf("%s: served are %v", ip, served)
		}
		if prefix := fmt.Sprintf("%s spec.externalIPs %q is not served: ", want, ip); len(refused) != 1 || !strings.HasPrefix(refused[0], prefix) {
			t.Errorf("%s: refused are %q, want %q...", ip, refused, prefix)
		}
		// A load balancer may use addresses of hosts, but no other addresses of the
		// cluster.
		s = object(loadBalancer, ingress(ip, "203.0.113.9"))
		served, refused = grants(t, s, o)
		if want == reserved.NodeAddress || want == reserved.APIServerAddress {
			if len(served) != 2 || len(refused) != 0 {
				t.Errorf("load balancer with %s: served are %v, refused %q", ip, served, refused)
			}
			continue
		}
		if len(served) != 1 || len(refused) != 1 || !strings.HasPrefix(refused[0], fmt.Sprintf("%s status.loadBalancer.ingress %q is not served: ", want, ip)) {
			t.Errorf("load balancer with %s: served are %v, refused %q", ip, served, refused)
		}
	}
}

// TestOtherFamily: an address cannot be served without a cluster address of its family.
func TestOtherFamily(t *testing.T) {
	served, refused := grants(t, named("a", "10.96.0.9", 0, externalIPs("fd55::5", "203.0.113.9")), others{})
	if len(served) != 1 || len(refused) != 1 || !strings.Contains(refused[0], "no cluster address of IPv6") {
		t.Errorf("%v %q", served, refused)
	}
}

// TestPortsOfHosts: a load balancer may use addresses of hosts, but not the ports that the
// hosts serve.
func TestPortsOfHosts(t *testing.T) {
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	o := others{
		owners: map[string]reserved.Owner{
			"172.18.0.2":   {Kind: reserved.Node, Name: "n1"},
			"198.51.100.7": {Kind: reserved.APIServer, Ports: []uint16{8443}},
		},
		services: []*corev1.Service{
			named("ports", "10.96.0.20", 0, nodePorts),                                      // 30080
			named("health", "10.96.0.21", 0, loadBalancer, externalLocal, withoutNodePorts), // 32000
		},
	}
	for _, c := range []struct {
		at      string
		port    corev1.ServicePort
		refused reserved.Reason // "" if served
	}{
		{"172.18.0.2", port(tcp, 80, 0, ""), ""},
		{"172.18.0.2", port(tcp, 443, 0, ""), ""},
		{"172.18.0.2", port(tcp, 22, 0, ""), service.HostPortReserved},
		{"172.18.0.2", port(udp, 22, 0, ""), ""},
		{"172.18.0.2", port(tcp, 6443, 0, ""), service.HostPortReserved},
		{"172.18.0.2", port(tcp, 2379, 0, ""), service.HostPortReserved},
		{"172.18.0.2", port(tcp, 10250, 0, ""), service.HostPortReserved},
		{"172.18.0.2", port(udp, 6081, 0, ""), service.HostPortReserved},
		{"172.18.0.2", port(tcp, 30080, 0, ""), service.PortTaken},
		{"172.18.0.2", port(udp, 30080, 0, ""), ""},
		{"172.18.0.2", port(tcp, 32000, 0, ""), service.PortTaken},
		{"198.51.100.7", port(tcp, 8443, 0, ""), reserved.APIServerAddress},
		{"198.51.100.7", port(tcp, 443, 0, ""), ""},
		{"203.0.113.9", port(tcp, 6443, 0, ""), ""}, // not of a host
		{"203.0.113.9", port(tcp, 22, 0, ""), ""},
	} {
		s := named("a", "10.96.0.9", 0, ingress(c.at), ports(c.port))
		served, refused := grants(t, s, o)
		if c.refused == "" {
			if len(served) != 1 || len(refused) != 0 {
				t.Errorf("%s %v: served are %v, refused %q", c.at, c.port, served, refused)
			}
			continue
		}
		if len(served) != 0 || len(refused) != 1 || !strings.HasPrefix(refused[0], string(c.refused)+" status.loadBalancer.ingress "+c.at+":") {
			t.Errorf("%s %v: served are %v, refused %q", c.at, c.port, served, refused)
		}
	}
	// A Service whose node port equals its port is served as a node port, without an Event.
	s := named("own", "10.96.0.9", 0, nodePorts, ingress("172.18.0.2"), ports(port(tcp, 30090, 30090, "")))
	o.services = append(o.services, s)
	if served, refused := grants(t, s, o); len(served) != 0 || len(refused) != 0 {
		t.Errorf("its own node port: %v %q", served, refused)
	}
	// With a large range, a node port may be one that nodes serve themselves.
	d, _ := service.Decode(service.Snapshot{Service: named("wide", "10.96.0.9", 0, ports(port(tcp, 80, 10250, ""), port(tcp, 81, 30081, "")))}, filtering)
	if d.Ports[0].NodePort != 0 || d.Ports[1].NodePort != 30081 || len(d.Refused) != 1 || d.Refused[0].Reason != service.HostPortReserved {
		t.Errorf("node ports: %+v", d)
	}
}

// TestSharedAddress: if two Services request the same port of an address, the older one
// gets it; they may share an address with different ports.
func TestSharedAddress(t *testing.T) {
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	three := ports(port(tcp, 80, 0, ""), port(tcp, 443, 0, ""), port(udp, 80, 0, ""))
	web := ports(port(tcp, 80, 0, ""))
	for name, c := range map[string]struct {
		older, younger *corev1.Service
		served         []string // of the younger
		refused        string
	}{
		"external IPs": {named("old", "10.96.0.1", 10, externalIPs("5.5.5.5"), web), named("new", "10.96.0.2", 0, externalIPs("5.5.5.5"), three),
			[]string{"5.5.5.5:443/tcp", "5.5.5.5:80/udp"}, "AddressTaken spec.externalIPs 5.5.5.5:80/TCP is not served: Service ns/old, which is older, has it"},
		"load balancers": {named("old", "10.96.0.1", 10, ingress("5.5.5.5"), web), named("new", "10.96.0.2", 0, ingress("5.5.5.5"), three),
			[]string{"5.5.5.5:443/tcp", "5.5.5.5:80/udp"}, "AddressTaken status.loadBalancer.ingress 5.5.5.5:80/TCP is not served: Service ns/old, which is older, has it"},
		"load balancer and external IP": {named("old", "10.96.0.1", 10, ingress("5.5.5.5"), web), named("new", "10.96.0.2", 0, externalIPs("5.5.5.5"), web),
			nil, "AddressTaken spec.externalIPs 5.5.5.5:80/TCP is not served: Service ns/old, which is older, has it"},
		"external IP and load balancer": {named("old", "10.96.0.1", 10, externalIPs("::ffff:5.5.5.5"), web), named("new", "10.96.0.2", 0, ingress("5.5.5.5"), web),
			nil, "AddressTaken status.loadBalancer.ingress 5.5.5.5:80/TCP is not served: Service ns/old, which is older, has it"},
		"of one age": {named("a", "10.96.0.1", 0, externalIPs("5.5.5.5"), web), named("b", "10.96.0.2", 0, externalIPs("5.5.5.5"), web),
			nil, "AddressTaken spec.externalIPs 5.5.5.5:80/TCP is not served: Service ns/a, which is older, has it"},
		"another address": {named("old", "10.96.0.1", 10, externalIPs("5.5.5.5"), web), named("new", "10.96.0.2", 0, externalIPs("5.5.5.6"), web),
			[]string{"5.5.5.6:80/tcp"}, ""},
		"one that is not served": {named("old", "10.96.0.1", 10, externalIPs("5.5.5.5"), web, func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"}
		}), named("new", "10.96.0.2", 0, externalIPs("5.5.5.5"), web), []string{"5.5.5.5:80/tcp"}, ""},
		"of the other family": {named("old", "fd00:10:96::1", 10, externalIPs("5.5.5.5"), web), named("new", "10.96.0.2", 0, externalIPs("5.5.5.5"), web),
			[]string{"5.5.5.5:80/tcp"}, ""},
		"a load balancer by proxy": {named("old", "10.96.0.1", 10, ingress("5.5.5.5"), web, func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress[0].IPMode = new(corev1.LoadBalancerIPModeProxy)
		}), named("new", "10.96.0.2", 0, externalIPs("5.5.5.5"), web), []string{"5.5.5.5:80/tcp"}, ""},
		"what is left of a load balancer": {named("old", "10.96.0.1", 10, ingress("5.5.5.5"), web, func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeClusterIP
		}), named("new", "10.96.0.2", 0, externalIPs("5.5.5.5"), web), []string{"5.5.5.5:80/tcp"}, ""},
	} {
		o := others{services: []*corev1.Service{c.younger, c.older}}
		if d, _ := service.Decode(service.Snapshot{Service: c.older, Others: o}, filtering); name != "of the other family" && len(d.Refused) != 0 {
			t.Errorf("%s: of the older are refused %+v", name, d.Refused)
		}
		served, refused := grants(t, c.younger, o)
		if !slices.Equal(served, c.served) || strings.Join(refused, "\n") != c.refused {
			t.Errorf("%s: the younger has %v, refused are %q", name, served, refused)
		}
		o.services = o.services[:1]
		if _, refused := grants(t, c.younger, o); len(refused) != 0 {
			t.Errorf("%s: after the older is gone, refused are %q", name, refused)
		}
	}
	// A Service that is refused an address does not block others from it.
	o := others{owners: map[string]reserved.Owner{"172.18.0.2": {Kind: reserved.Node, Name: "n1"}}, services: []*corev1.Service{
		named("old", "10.96.0.1", 10, externalIPs("172.18.0.2"), web), named("new", "10.96.0.2", 0, ingress("172.18.0.2"), web)}}
	if served, refused := grants(t, o.services[1], o); len(served) != 1 || len(refused) != 0 {
		t.Errorf("served are %v, refused %q", served, refused)
	}
}

// TestSourceRanges: an invalid range allows no clients. Answers to pods' own connections are exempt.
func TestSourceRanges(t *testing.T) {
	for _, c := range []struct {
		ranges    []string
		four, six string // who is allowed
		refused   int
	}{
		{nil, "everybody", "everybody", 0},
		{[]string{"192.0.2.0/24"}, "[192.0.2.0/24]", "everybody", 0},
		{[]string{" 192.0.2.7/24 "}, "[192.0.2.0/24]", "everybody", 0},
		{[]string{"010.1.2.0/24"}, "[]", "[]", 1},
		{[]string{"010.1.2.0/24", "192.0.2.0/24"}, "[192.0.2.0/24]", "[]", 1},
		{[]string{"010.1.2.0/24", "fd00:1::/64"}, "[]", "[fd00:1::/64]", 1},
		{[]string{"::ffff:10.0.0.0/104"}, "[]", "[]", 1},
		{[]string{"192.0.2.1"}, "[]", "[]", 1},
		{[]string{""}, "[]", "[]", 1},
		{[]string{"0.0.0.0/0", "::/0"}, "[0.0.0.0/0]", "[::/0]", 0},
	} {
		s := object(loadBalancer, externalIPs("203.0.113.9"), func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = c.ranges })
		d := decode(t, s, onTwo()...)
		let := map[topology.Family]string{}
		for _, e := range d.External {
			if e.Addr.String() == "203.0.113.9" {
				continue
			}
			let[topology.FamilyOf(e.Addr)] = "everybody"
			if e.Restricted {
				let[topology.FamilyOf(e.Addr)] = fmt.Sprint(e.Sources)
			}
		}
		if let[topology.IPv4] != c.four || let[topology.IPv6] != c.six || len(d.Refused) != c.refused {
			t.Errorf("%q: %v, %+v", c.ranges, let, d.Refused)
		}
		for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
			state := service.NodeStateOf(d, config, node(1, mode))
			for _, f := range topology.Families {
				chain := f
				var drops, allows, answers int
				for key, rules := range state.Rules {
					if key.Name != service.ChainSources || key.Family != chain {
						continue
					}
					for _, r := range rules {
						switch {
						case strings.HasSuffix(string(r), "-j DROP"):
							drops++
						case strings.Contains(string(r), " -m conntrack --ctdir REPLY ") && strings.HasSuffix(string(r), "-j RETURN"):
							answers++
						default:
							allows++
						}
						if answers <= drops && !strings.HasSuffix(string(r), "-j DROP") {
							t.Errorf("%q, %s, %s: answers are not exempt before %s", c.ranges, mode, f, r)
						}
					}
				}
				handed, closed := false, false
				for _, i := range state.Ingress {
					if topology.FamilyOf(i.To.Addr()) == f && i.To.Addr().String() != "203.0.113.9" {
						handed, closed = handed || !i.Closed, closed || i.Closed
					}
				}
				nobody, open := let[f] == "[]", let[f] == "everybody"
				if closed != (nobody && mode == topology.GatewayShared) {
					t.Errorf("%q, %s, %s: closed: %t", c.ranges, mode, f, closed)
				}
				if (drops > 0) == open || answers != drops || (allows > 0) != (!nobody && !open) || handed != (!nobody && mode == topology.GatewayShared) {
					t.Errorf("%q, %s, %s: %d drop, %d allow, %d exempt answers, handed to the gateway router: %t", c.ranges, mode, f, drops, allows, answers, handed)
				}
			}
		}
	}
	// They do not matter for a Service without a load balancer.
	s := object(externalIPs("203.0.113.9"), func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"bad"} })
	if d := decode(t, s); d.External[0].Restricted || len(d.Refused) != 0 {
		t.Errorf("%+v", d)
	}
}

// TestHealthPorts: users may choose any health port.
func TestHealthPorts(t *testing.T) {
	health := func(number int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			loadBalancer(s)
			externalLocal(s)
			withoutNodePorts(s)
			ingress("5.5.5." + s.Name)(s)
			s.Spec.HealthCheckNodePort = number
		}
	}
	all := []*corev1.Service{
		named("1", "10.96.0.1", 9, health(32000)), named("2", "10.96.0.2", 5, health(32000)), named("3", "10.96.0.3", 5, health(32001)),
		named("4", "10.96.0.4", 5, health(10250)), named("5", "10.96.0.5", 5, health(9410)), named("6", "10.96.0.6", 5, health(80)),
		named("7", "10.96.0.7", 9, health(30080)), named("8", "10.96.0.8", 0, nodePorts), // node port 30080
		named("9", "10.96.0.10", 5, health(32002), func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster }),
	}
	want := map[string]string{"1": "32000", "2": "PortTaken", "3": "32001", "4": "HostPortReserved", "5": "HostPortReserved",
		"6": "HostPortReserved", "7": "PortTaken", "8": "0", "9": "0"}
	for _, s := range all {
		d, _ := service.Decode(service.Snapshot{Service: s, Others: others{services: all}}, filtering)
		got := fmt.Sprint(d.HealthPort)
		if len(d.Refused) > 0 {
			got = string(d.Refused[0].Reason)
		}
		if got != want[s.Name] || len(d.Refused) > 0 && (d.HealthPort != 0 || d.Refused[0].Field != "spec.healthCheckNodePort") {
			t.Errorf("%s: %d, %+v, want %s", s.Name, d.HealthPort, d.Refused, want[s.Name])
		}
		if s.Name != "8" && len(d.External) != 1 {
			t.Errorf("%s: all else is served: %+v", s.Name, d.External)
		}
	}
}
