package service_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// written returns a Service with arbitrary content.
func written(s *fuzzed.Source, name string) *corev1.Service {
	local := corev1.ServiceInternalTrafficPolicyLocal
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	svc.Spec.Type = fuzzed.One(s, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName, "")
	svc.Spec.ClusterIPs = fuzzed.One(s, []string{"10.96.0.10", "fd00:10:96::a"}, []string{"10.96.0.11"}, []string{"None"}, nil, []string{s.Text(), s.Text()})
	svc.Spec.ExternalIPs = fuzzed.Many(s, 2, s.Text(), s.Text())
	svc.Spec.ExternalTrafficPolicy = fuzzed.One(s, "", corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster)
	if s.Some(3) {
		svc.Spec.InternalTrafficPolicy = &local
	}
	svc.Spec.HealthCheckNodePort = fuzzed.One(s, int32(0), 31999, -1, 70000)
	svc.Spec.LoadBalancerSourceRanges = fuzzed.Many(s, 2, "172.18.0.0/24", "010.1.2.0/24", "fc00::/7", "", "x", " 10.0.0.0/8 ")
	svc.Spec.SessionAffinity = fuzzed.One(s, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	for range s.Pick(3) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: s.Text(), Hostname: "x"})
	}
	for range 1 + s.Pick(3) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: fuzzed.One(s, "", "http"), Protocol: fuzzed.One(s, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "", "ICMP"),
			Port: fuzzed.One(s, int32(80), 443, 0, -1, 65536), NodePort: fuzzed.One(s, int32(0), 30080, 30443, 65536, -5),
		})
	}
	return svc
}

// listed returns an EndpointSlice of a Service.
func listed(s *fuzzed.Source, name string) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "svc"}},
		AddressType: fuzzed.One(s, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN, ""),
	}
	no, node := false, s.NodeName()
	for range s.Pick(4) {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses: fuzzed.Many(s, 2, s.Text(), s.Text()), NodeName: fuzzed.One(s, nil, &node),
			Conditions: discoveryv1.EndpointConditions{Ready: fuzzed.One(s, nil, &no), Terminating: fuzzed.One(s, nil, &no)},
		})
	}
	name, port, tcp := "http", fuzzed.One(s, int32(8080), 0, -1, 65536), corev1.ProtocolTCP
	for range s.Pick(3) {
		sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: fuzzed.One(s, nil, &name), Port: fuzzed.One(s, nil, &port, &port), Protocol: fuzzed.One(s, nil, &tcp)})
	}
	return sl
}

// FuzzPlan plans Services, EndpointSlices and nodes of any content.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{
		"", "\x01\x00\x00\x00\x00\x00\x02\x00\x01\x07\x01\x00\x01\x01\x00\x01\x00\x00\x01\x00\x00\x00\x01",
		"services are what users write, addresses are what they would like", "\x02\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		nodes := fuzzed.Known(s.Nodes())
		svc := written(s, "svc")
		var slicesOf []*discoveryv1.EndpointSlice
		for i := range s.Pick(3) {
			slicesOf = append(slicesOf, listed(s, fmt.Sprintf("svc-%d", i)))
		}
		checkService(t, s, nodes, svc, slicesOf)
	})
}

// FuzzObjects plans Services and EndpointSlices as the API server returns them.
func FuzzObjects(f *testing.F) {
	files, err := filepath.Glob("testdata/objects/service-*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no objects: %v", err)
	}
	for _, name := range files {
		svc, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		slice, err := os.ReadFile(strings.Replace(name, "service-", "endpointslice-", 1))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(svc, slice)
	}
	nodes := fuzzed.Known(fuzzed.New([]byte{0, 1}).Nodes())
	f.Fuzz(func(t *testing.T, serviceJSON, sliceJSON []byte) {
		svc, sl := &corev1.Service{}, &discoveryv1.EndpointSlice{}
		if json.Unmarshal(serviceJSON, svc) != nil || json.Unmarshal(sliceJSON, sl) != nil {
			return
		}
		if strings.ContainsAny(svc.Namespace+svc.Name, "\"\\\r\n ") {
			return // the API server rejects such names
		}
		checkService(t, fuzzed.New(nil), nodes, svc, []*discoveryv1.EndpointSlice{sl})
	})
}

// checkService checks invariants of any plan of a Service.
func checkService(t *testing.T, s *fuzzed.Source, nodes []topology.Node, svc *corev1.Service, all []*discoveryv1.EndpointSlice) {
	t.Helper()
	own := func(a netip.Addr) (own, led bool) {
		return a == netip.MustParseAddr("10.244.1.5") || a == netip.MustParseAddr("10.244.1.6"), a == netip.MustParseAddr("10.244.1.5")
	}
	gateways := fuzzed.Many(s, 2, netip.MustParseAddr("172.18.0.51"), netip.MustParseAddr("fc00:f853:ccd:e793::51"))
	decoded, ok := service.Decode(service.Snapshot{Service: svc, Slices: all, Pod: own, Gateways: gateways}, config)
	again, _ := service.Decode(service.Snapshot{Service: svc, Slices: fuzzed.Shuffled(s, all), Pod: own, Gateways: gateways}, config)
	if !reflect.DeepEqual(decoded, again) {
		t.Errorf("the Service depends on the order of its slices:\n%+v\n%+v", decoded, again)
	}
	if !ok {
		return
	}
	facts := service.Nodes{}
	for _, n := range nodes {
		of := service.FactsOf(n)
		facts, _ = facts.With(n.Name, &of)
	}
	rows := fuzzed.NewRows(t)
	rows.Add(service.NodeOwner(""), service.ClusterRows(config))
	planned := service.MasterRows(decoded, config, facts)
	rows.Add(service.Owner(decoded.Key), planned)
	for _, r := range planned {
		lb, ok := r.Model.(*nbdb.LoadBalancer)
		if !ok {
			continue
		}
		for vip, backends := range lb.Vips {
			for _, b := range strings.Split(backends, ",") {
				to, err := netip.ParseAddrPort(b)
				if err == nil && to.Port() == 0 {
					t.Errorf("%s leads to port 0: %q", vip, backends)
				}
				if front, err2 := netip.ParseAddrPort(vip); err == nil && err2 == nil && front.Addr().Is4() != to.Addr().Is4() {
					t.Errorf("%s leads to %s, of another family", vip, b)
				}
			}
		}
	}
	for _, n := range nodes {
		rows.Add(service.NodeOwner(n.Name), service.NodeRows(n, config))
		state := service.NodeStateOf(decoded, config, n)
		for chain, rules := range state.Rules {
			for _, r := range rules {
				if strings.Contains(string(r), "invalid") || strings.ContainsAny(string(r), "\r\n") || !strings.Contains(string(r), "-j ") {
					t.Errorf("rule %q of %v", r, chain)
				}
			}
		}
		for _, i := range state.Ingress {
			if !i.To.IsValid() || i.To.Port() == 0 || slices.ContainsFunc(i.Sources, func(p netip.Prefix) bool { return !p.IsValid() }) {
				t.Errorf("ingress %+v", i)
			}
		}
		if h := state.Health; h != nil && h.Port == 0 {
			t.Error("health port 0")
		}
	}
}
