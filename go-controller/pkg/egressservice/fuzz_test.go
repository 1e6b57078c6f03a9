package egressservice_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
)

// pods are the existing pods with their nodes.
var pods = map[netip.Addr]string{
	netip.MustParseAddr("10.244.1.5"): "n1", netip.MustParseAddr("fd00:10:244:1::5"): "n1", netip.MustParseAddr("10.244.2.5"): "n2",
}

func snapshot(s *fuzzed.Source, name string) egressservice.Snapshot {
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: s.Created()}}
	eg.Spec.NodeSelector = s.Selector()
	eg.Spec.SourceIPBy = fuzzed.One(s, "", v1.SourceIPLoadBalancer, v1.SourceIPNetwork, "x")
	eg.Spec.Network = fuzzed.One(s, "", "", "blue", "7", "254", "-1", "a b")
	eg.Spec.OnUnavailable = fuzzed.One(s, "", v1.UnavailableDrop, "x")
	eg.Status.Host = fuzzed.One(s, "", "n1", "n2", "ghost", v1.HostAll)
	if s.Some(2) {
		eg.Status.Programmed = &v1.ProgrammedStatus{Host: s.NodeName()}
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	svc.Spec.Type = fuzzed.One(s, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP)
	svc.Spec.ClusterIPs = fuzzed.One(s, []string{"10.96.0.10"}, []string{s.Text(), s.Text()}, nil)
	svc.Spec.ExternalTrafficPolicy = fuzzed.One(s, "", corev1.ServiceExternalTrafficPolicyLocal)
	for range s.Pick(4) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: s.Text()})
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
	for range s.Pick(4) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{s.Text(), s.Text()}})
	}
	snap := egressservice.Snapshot{
		Egress: eg, Service: svc, Slices: []*discoveryv1.EndpointSlice{slice}, Selected: s.Addrs(2), Shared: s.Some(2),
		Pod: func(a netip.Addr) (string, bool) { node, ok := pods[a]; return node, ok },
	}
	if s.Some(6) {
		snap.Service = nil
	}
	return snap
}

// FuzzCluster plans several EgressServices together on arbitrary nodes: a pod is
// steered by only one of them, and translated only on the host of that one.
func FuzzCluster(f *testing.F) {
	for _, seed := range []string{
		"", "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x13\x01\x00\x00\x01",
		"egress services share endpoints and nobody is served twice, whatever they say",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		var nodes []place.Node
		for _, n := range fuzzed.Known(s.Nodes()) {
			nodes = append(nodes, place.Node{Node: n, Reach: fuzzed.One(s, place.Alive, place.Alive, place.Dead)})
		}
		var snaps []egressservice.Snapshot
		for i := range 1 + s.Pick(3) {
			snaps = append(snaps, snapshot(s, fmt.Sprintf("svc%d", i)))
		}
		all := decode(snaps)
		decisions := egressservice.Decide(nodes, all)
		again := decode(fuzzed.Shuffled(s, snaps))
		if !reflect.DeepEqual(decisions, egressservice.Decide(fuzzed.Shuffled(s, nodes), again)) {
			t.Error("the decisions depend on the order of nodes or EgressServices")
		}
		settled := slices.Clone(all)
		for i, svc := range settled {
			settled[i].Host = decisions[svc.Key].Host
		}
		for key, d := range egressservice.Decide(nodes, settled) {
			if !d.Equal(decisions[key]) {
				t.Errorf("%s: decided %+v, and from that %+v", key, decisions[key], d)
			}
		}
		rows, steeredBy := fuzzed.NewRows(t), map[netip.Addr]string{}
		for _, svc := range all {
			d := decisions[svc.Key]
			for _, c := range egressservice.Conditions(svc, d) {
				if !conditions.Known(conditions.EgressService, c) {
					t.Errorf("%s: condition %+v is not in the vocabulary", svc.Key, c)
				}
			}
			planned := egressservice.Rows(svc, d, egressservice.Steering{})
			rows.Add(egressservice.Owner(svc.Key), planned)
			for _, r := range planned {
				if _, ok := r.Model.(*nbdb.LogicalRouterPolicy); !ok {
					continue
				}
				a := netip.MustParseAddr(r.ID)
				if other, taken := steeredBy[a]; taken {
					t.Errorf("%s is steered by %s and %s", a, svc.Key, other)
				}
				steeredBy[a] = svc.Key
				if _, there := pods[a]; !there && !slices.Contains(svc.Awaited, a) {
					t.Errorf("%s is steered by %s, and no pod", a, svc.Key)
				}
			}
			svc.Host = egressservice.Status(svc, d)
			for _, n := range nodes {
				for a, to := range egressservice.NodeState(svc, n.Name) {
					if _, there := pods[a]; !there && !slices.Contains(svc.Awaited, a) || a.Is4() != to.Is4() {
						t.Errorf("%s is translated to %s on %s by %s", a, to, n.Name, svc.Key)
					}
				}
				egressservice.IPRules(svc, n.Name, host.RoutingTable{Number: 7}, nil, nil)
			}
		}
	})
}

// decode decodes EgressServices together.
func decode(snaps []egressservice.Snapshot) []egressservice.Service {
	claims := egressservice.NewClaims()
	var all []egressservice.Service
	for _, snap := range snaps {
		svc := egressservice.Decode(snap, fuzzed.Cluster)
		claims.Set(svc)
		all = append(all, svc)
	}
	for i := range all {
		all[i] = claims.Resolve(all[i])
	}
	return all
}
