package egressservice

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func TestRefusals(t *testing.T) {
	long := strings.Repeat("n", 40)
	for _, c := range []struct {
		name string
		snap Snapshot
		want Reason
	}{
		{"served", Snapshot{Egress: egress("default", "demo-svc"), Service: demoService}, ""},
		{"source by name", Snapshot{Egress: egress("default", "demo-svc", func(e *v1.EgressService) {
			e.Spec.SourceIPBy = v1.SourceIPLoadBalancer
		}), Service: demoService}, ""},
		{"no service", Snapshot{Egress: egress("default", "demo-svc")}, NoService},
		{"wrong type", Snapshot{Egress: egress("default", "demo-svc"), Service: service("default", "demo-svc", demoIngress,
			func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })}, WrongServiceType},
		{"no ingress", Snapshot{Egress: egress("default", "demo-svc"), Service: service("default", "demo-svc", nil)}, NoIngress},
		{"a name only", Snapshot{Egress: egress("default", "demo-svc"), Service: service("default", "demo-svc", []string{"lb.example.com"})}, NoIngress},
		{"useless ingress", Snapshot{Egress: egress("default", "demo-svc"),
			Service: service("default", "demo-svc", []string{"0.0.0.0", "::", "127.0.0.1", "224.0.0.1", "fe80::1%eth0", "5.5.5", "::ffff:0.0.0.0"})}, NoIngress},
		{"bad selector", Snapshot{Egress: egress("default", "demo-svc", func(e *v1.EgressService) {
			e.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}}
		}), Service: demoService}, InvalidSelector},
		{"source not known", Snapshot{Egress: egress("default", "demo-svc", func(e *v1.EgressService) {
			e.Spec.SourceIPBy = "Somewhere"
		}), Service: demoService}, UnsupportedSource},
		{"per node in shared mode", Snapshot{Egress: egress("default", "demo-svc", perNode), Service: demoService, Shared: true}, SharedGateway},
		{"per node without ingress", Snapshot{Egress: egress("default", "demo-svc", perNode), Service: service("default", "demo-svc", nil)}, ""},
		{"network in shared mode", Snapshot{Egress: egress("default", "demo-svc", blue), Service: demoService, Shared: true}, ""},
		{"no name of a network", Snapshot{Egress: egress("default", "demo-svc", func(e *v1.EgressService) {
			e.Spec.Network = "../blue"
		}), Service: demoService}, InvalidNetwork},
		{"label too long", Snapshot{Egress: egress(long, long), Service: service(long, long, demoIngress)}, LabelTooLong},
	} {
		s := Decode(c.snap, cluster)
		if s.Refused.Reason != c.want {
			t.Errorf("%s: refused with %+v, want %q", c.name, s.Refused, c.want)
		}
		if (s.Refused.Message != "") != (c.want != "") {
			t.Errorf("%s: message %q", c.name, s.Refused.Message)
		}
		d := Decide(allWell, []Service{s})[s.Key]
		if served := len(d.Host) > 0; served != (c.want == "") || d.Refused != s.Refused {
			t.Errorf("%s: decided %+v", c.name, d)
		}
		// A refusal takes precedence over an older decision.
		s.Host = "ovn-worker"
		if c.want != "" && (Status(s, Decision{Host: "ovn-worker"}) != "" || len(MasterRows(s, Decision{Host: "ovn-worker"})) > 0 ||
			len(NodeState(s, "ovn-worker")) > 0) {
			t.Errorf("%s: still served", c.name)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		name      string
		ingress   []string
		endpoints []string
		want      []string
	}{
		{"none", demoIngress, nil, nil},
		{"as in the document", demoIngress, demoEndpoints, demoEndpoints},
		{"not ready", demoIngress, []string{"!10.244.0.5@a", "10.244.0.6@a"}, []string{"!10.244.0.5@a", "10.244.0.6@a"}},
		{"on the way out", demoIngress, []string{"~10.244.0.5@a"}, []string{"10.244.0.5@a"}},
		{"ready for one slice", demoIngress, []string{"!10.244.0.5@a", "10.244.0.5@a"}, []string{"10.244.0.5@a"}},
		{"the host's network", demoIngress, []string{"172.18.0.3@a", "fc00:f853:ccd:e793::3@a", "10.244.0.5@a"}, []string{"10.244.0.5@a"}},
		{"one family", []string{"5.5.5.5"}, demoEndpoints, demoEndpoints[:2]},
		{"twice", demoIngress, []string{"10.244.0.5", "10.244.0.5@a"}, []string{"10.244.0.5@a"}},
		{"in order", demoIngress, []string{"fd00:10:244::9@a", "10.244.0.10@a", "10.244.0.9@a"},
			[]string{"10.244.0.9@a", "10.244.0.10@a", "fd00:10:244::9@a"}},
		{"mapped", demoIngress, []string{"::ffff:10.244.0.5@a"}, []string{"10.244.0.5@a"}},
		{"no address", demoIngress, []string{"pod.example.com@a", "@a"}, nil},
	} {
		sl := slice("default", "demo-svc", c.endpoints...)
		s := Decode(Snapshot{Egress: egress("default", "demo-svc"), Service: service("default", "demo-svc", c.ingress),
			Slices: []*discoveryv1.EndpointSlice{sl}, Pod: podsIn(sl)}, cluster)
		var got []string
		for _, e := range s.Endpoints {
			got = append(got, fmt.Sprintf("%s%s@%s", map[bool]string{false: "!"}[e.Ready], e.Addr, e.Node))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSlicesAreNotBelieved: an address is an endpoint if a pod of the namespace
// has it, whatever a slice says, and on the node of that pod.
func TestSlicesAreNotBelieved(t *testing.T) {
	sl := slice("default", "demo-svc", "10.244.0.5@ovn-worker", "10.244.0.99@ovn-worker")
	s := Decode(Snapshot{Egress: egress("default", "demo-svc"), Service: demoService, Slices: []*discoveryv1.EndpointSlice{sl},
		Pod: podsIn(slice("default", "pods", "10.244.0.5@ovn-worker2"))}, cluster)
	want := []Endpoint{{Addr: netip.MustParseAddr("10.244.0.5"), Node: "ovn-worker2", Ready: true}}
	if !slices.Equal(s.Endpoints, want) {
		t.Errorf("endpoints %v, want %v", s.Endpoints, want)
	}
	if s := Decode(Snapshot{Egress: egress("default", "demo-svc"), Service: demoService, Slices: []*discoveryv1.EndpointSlice{sl}}, cluster); len(s.Endpoints) > 0 {
		t.Errorf("endpoints %v though there is no pod", s.Endpoints)
	}
}

func TestAbsentConditionsMeanReady(t *testing.T) {
	no := false
	for _, c := range []struct {
		c    discoveryv1.EndpointConditions
		want bool
	}{
		{discoveryv1.EndpointConditions{}, true},
		{discoveryv1.EndpointConditions{Ready: &no}, false},
		{discoveryv1.EndpointConditions{Serving: &no}, true},
	} {
		if got := ready(c.c); got != c.want {
			t.Errorf("%+v: %t", c.c, got)
		}
	}
}

// TestOnlyWhatWillBeListedIsAwaited: a pod is not held for a family in which its
// Service has no endpoints, nor if it cannot be an endpoint.
func TestOnlyWhatWillBeListedIsAwaited(t *testing.T) {
	var selected []netip.Addr
	for _, a := range []string{"fd00:10:244:1::77", "10.244.0.77", "10.244.0.5", "172.18.0.4", "10.244.0.77"} {
		selected = append(selected, netip.MustParseAddr(a))
	}
	for _, c := range []struct {
		families []corev1.IPFamily
		want     string
	}{
		{nil, "[10.244.0.77 fd00:10:244:1::77]"},
		{[]corev1.IPFamily{corev1.IPv4Protocol}, "[10.244.0.77]"},
		{[]corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, "[10.244.0.77 fd00:10:244:1::77]"},
	} {
		svc := service("default", "demo-svc", demoIngress, func(s *corev1.Service) { s.Spec.IPFamilies = c.families })
		s := Decode(Snapshot{Egress: egress("default", "demo-svc"), Service: svc, Selected: selected,
			Slices: []*discoveryv1.EndpointSlice{demoSlice}, Pod: podsIn(demoSlice)}, cluster)
		if got := fmt.Sprint(s.Awaited); got != c.want {
			t.Errorf("%v: %s, want %s", c.families, got, c.want)
		}
	}
}

// FuzzPlan runs the planners on arbitrary user input.
func FuzzPlan(f *testing.F) {
	f.Add(`{"nodeSelector":{"matchLabels":{"a":"b"}}}`, "5.5.5.5", "10.244.0.5", "default", "svc", "LoadBalancer", "Local")
	f.Add(`{"sourceIPBy":"Network","network":"7"}`, "::1", "fd00:10:244::5", "a", "b", "ClusterIP", "")
	f.Add(`{"nodeSelector":{"matchExpressions":[{"key":"","operator":"In","values":[]}]}}`, "5555::5", "::", "", "", "LoadBalancer", "Cluster")
	f.Fuzz(func(t *testing.T, spec, ingress, endpoint, namespace, name, typ, policy string) {
		eg := egress(namespace, name)
		if json.Unmarshal([]byte(spec), &eg.Spec) != nil {
			return
		}
		svc := service(namespace, name, []string{ingress, "5.5.5.5", ingress})
		svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceType(typ), corev1.ServiceExternalTrafficPolicy(policy)
		sl := slice(namespace, name, endpoint, endpoint+"@ovn-worker")
		s := Decode(Snapshot{Egress: eg, Service: svc, Pod: podsIn(sl), Slices: []*discoveryv1.EndpointSlice{sl}}, cluster)
		d := Decide(allWell, []Service{s})[s.Key]
		s.Host = Status(s, d)
		if (s.Host == "") == (d.Refused == Refusal{}) {
			t.Errorf("host %q, refusal %+v", s.Host, d.Refused)
		}
		seen := map[string]bool{}
		rows := MasterRows(s, d)
		for _, r := range rows {
			addr, err := netip.ParseAddr(r.ID)
			if err != nil || seen[r.ID] || !eligible(addr, cluster, topology.Families) {
				t.Errorf("row for %q", r.ID)
			}
			seen[r.ID] = true
		}
		rules := 0
		for _, n := range []place.Node{allWell[0], allWell[1], allWell[2]} {
			state := NodeState(s, n.Name)
			if n.Name != s.Host && len(state) > 0 {
				t.Errorf("rules on %s, host is %q", n.Name, s.Host)
			}
			for _, fam := range topology.Families {
				if n := len(state.Rules(s.Key)[chainKey(fam)]); n > 0 {
					rules += n - 1 // the exemption is one more
				}
			}
		}
		if rules != len(rows) {
			t.Errorf("%d translations for %d steered endpoints", rules, len(rows))
		}
	})
}

// FuzzObjects runs the planners on objects with arbitrary content: none may cause a panic,
// and whatever they decide, pods and addresses of others are left alone.
func FuzzObjects(f *testing.F) {
	object := func(v any) []byte {
		out, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		return out
	}
	f.Add(object(egress("default", "demo-svc", onWorkers, blue)), object(demoService), object(demoSlice), "ovn-worker")
	f.Add(object(egress("default", "demo-svc", perNode)), object(service("default", "demo-svc", nil, local)), object(slice("default", "demo-svc", "!10.244.0.5@x")), "")
	f.Add([]byte(`{"status":{"host":"ALL","programmed":{"host":"x"},"conditions":[{"type":"Programmed"}]}}`), []byte(`{"spec":{"type":"LoadBalancer","clusterIPs":["None"]},"status":{"loadBalancer":{"ingress":[{},{"ip":"::1"}]}}}`),
		[]byte(`{"endpoints":[{"addresses":["","10.244.0.5"],"conditions":{}},{"addresses":null,"nodeName":""}]}`), "10.244.0.5")
	f.Fuzz(func(t *testing.T, egressJSON, serviceJSON, sliceJSON []byte, selected string) {
		eg, svc, sl := &v1.EgressService{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}
		if json.Unmarshal(egressJSON, eg) != nil || json.Unmarshal(serviceJSON, svc) != nil || json.Unmarshal(sliceJSON, sl) != nil {
			return
		}
		own := netip.MustParseAddr("10.244.0.5")
		snap := Snapshot{Egress: eg, Service: svc, Slices: []*discoveryv1.EndpointSlice{sl, demoSlice},
			Pod: func(a netip.Addr) (string, bool) { return "ovn-worker", a == own }}
		if a, err := netip.ParseAddr(selected); err == nil {
			snap.Selected = []netip.Addr{a, own}
		}
		for _, snap.Shared = range []bool{false, true} {
			s := Decode(snap, cluster)
			claims := NewClaims()
			claims.Set(s)
			s = claims.Resolve(s)
			d, ok := Decide(allWell, []Service{s})[s.Key]
			if !ok {
				t.Fatal("no decision")
			}
			for _, c := range Conditions(s, d) {
				if !conditions.Known(conditions.EgressService, c) {
					t.Errorf("condition %+v is not in the vocabulary", c)
				}
			}
			Digest(s, s.Host)
			Labels([]*v1.EgressService{eg}, nil)
			for _, r := range Rows(s, d, Steering{own: own}) {
				if r.ID != own.String() && r.ID != selected && r.ID != strings.TrimPrefix(selected, "::ffff:") {
					t.Errorf("a row for %s", r.ID)
				}
			}
			for _, n := range allWell {
				for addr := range NodeState(s, n.Name) {
					if addr != own {
						t.Errorf("%s is translated", addr)
					}
				}
				NodeState(s, n.Name).Rules(s.Key)
				IPRules(s, n.Name, host.RoutingTable{Number: 7}, nil, nil)
			}
		}
	})
}
