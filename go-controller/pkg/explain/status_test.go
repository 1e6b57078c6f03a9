package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

// briefly summarizes the addresses of the nodes, and the conditions of the features.
func (s Status) briefly() string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, fmt.Sprintf("%s %v %d %d %d", strings.TrimPrefix(n.Node, "ovn-"), n.Ready, n.Planned, n.Held, n.Hosts))
	}
	for _, f := range s.Features {
		if !f.Enabled {
			out = append(out, f.Feature+" disabled")
		}
		for _, c := range f.Conditions {
			out = append(out, fmt.Sprintf("%s %s %s %s %d", f.Feature, c.Type, c.Status, c.Reason, c.Objects))
		}
	}
	return strings.Join(out, "; ")
}

func TestStatus(t *testing.T) {
	type change = func(*Snapshot)
	const (
		nothing = "control-plane true 0 0 0; worker true 0 0 0; worker2 true 0 0 0"
		fine    = "; EgressIP Assigned True Assigned N; EgressIP Conflict False NoConflict N; EgressIP Programmed True Programmed N"
	)
	ips := func(n string) string { return strings.ReplaceAll(fine, "N;", n+";")[:len(fine)-1] + n }
	for _, tc := range []struct {
		name     string
		world    []change
		want     string
		problems string
	}{
		{"nothing", nil, nothing, ""},
		{"disabled features", []change{func(s *Snapshot) {
			s.Settings.EgressIP, s.Settings.EgressService, s.Settings.ExternalGateways = false, false, false
		}},
			nothing + "; EgressIP disabled; EgressService disabled; AdminPolicyBasedExternalRoute disabled", ""},
		{"two EgressIPs", []change{egressIP("prod", "prod", "172.18.0.33"), egressIP("shop", "shop", "172.18.0.44"), inForce},
			"control-plane true 0 0 0; worker true 1 1 0; worker2 true 1 1 0" + ips("2"), ""},
		{"both families", []change{egressIP("prod", "prod", "172.18.0.33", "fc00:f853:ccd:e793::33"), unlabelled,
			func(s *Snapshot) { s.Nodes[2].Labels[kube.LabelEgressAssignable] = "" }, inForce}, "control-plane true 0 0 0; worker true 0 0 0; worker2 true 2 2 0" + ips("1"), ""},
		{"the node is lost and no master acts", []change{egressIP("prod", "prod", "172.18.0.33"), inForce, notReady("ovn-worker2"), func(s *Snapshot) { s.Renewed = taken.Add(-time.Hour) }},
			"control-plane true 0 0 0; worker true 1 0 0; worker2 false 0 1 0" + ips("1"), "MasterSilent,NodeNotReady,StatusDiffers,Waiting"},
		{"an EgressService", []change{egressService("shop/checkout", "5.5.5.5"), func(s *Snapshot) { s.EgressServices[0].Status.Host = "ovn-worker" }, inForce},
			"control-plane true 0 0 0; worker true 0 0 1; worker2 true 0 0 0; EgressService Assigned True HostAssigned 1; " +
				"EgressService Conflict False NoConflict 1; EgressService Programmed True Programmed 1", ""},
		{"an EgressService without a host", []change{egressService("shop/checkout"), inForce},
			nothing + "; EgressService Assigned False NoIngressIP 1; EgressService Conflict False NoConflict 1; EgressService Programmed False NotAssigned 1", "NoIngressIP,NotAssigned"},
		{"gateways that the master has not put in use", []change{route("gws", "prod", "172.18.0.51"), inForce, func(s *Snapshot) {
			delete(s.Namespaces[0].Annotations, kube.AnnotationGatewaysInUse)
		}}, nothing + "; AdminPolicyBasedExternalRoute Conflict False NoConflict 1; AdminPolicyBasedExternalRoute HopsValid True AllValid 1; AdminPolicyBasedExternalRoute Ready True Applied 1", "StatusDiffers"},
		{"an annotation with a gateway in the pod network", []change{func(s *Snapshot) {
			s.Namespaces[0].Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: "172.18.0.51,10.244.0.9"}
		}, inForce}, nothing, "GatewayRefused"},
		{"a gateway pod without an address", []change{gatewayPod, func(s *Snapshot) { delete(s.Pods[2].Annotations, kube.AnnotationNetworkStatus) }, inForce}, nothing, "GatewayRefused"},
		{"left on an interface", []change{func(s *Snapshot) { s.Nodes[2].Annotations[kube.AnnotationEgressIPAddresses] = `["172.19.0.33"]` }}, nothing, "Waiting"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := cluster(t, tc.world...).Status()
			if got := s.briefly(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if got := reasonsOf(s.Problems); got != tc.problems || s.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, s.InPlace, tc.problems)
			}
		})
	}
}

func TestStatusSame(t *testing.T) {
	first := cluster(t, egressIP("prod", "prod", "172.18.0.33"), inForce).Status()
	later := cluster(t, egressIP("prod", "prod", "172.18.0.33"), inForce, func(s *Snapshot) {
		s.Taken, s.Renewed, s.Reachability.AsOf = taken.Add(time.Minute), taken.Add(time.Minute), taken.Add(time.Minute)
	}).Status()
	if !first.Same(later) {
		t.Error("the time alone makes another answer")
	}
	if later.AsOf.IsZero() || later.MasterRenewed == nil || later.ReachabilityAsOf == nil {
		t.Error("comparing changes the answer")
	}
	other := cluster(t, egressIP("prod", "prod", "172.18.0.33"), inForce, notReady("ovn-control-plane")).Status()
	if first.Same(other) {
		t.Error("a node that is lost makes no other answer")
	}
	slower := cluster(t, egressIP("prod", "prod", "172.18.0.33"), inForce, func(s *Snapshot) {
		s.Reachability.Nodes["ovn-worker"] = reachability.Node{State: reachability.Reachable, Since: taken.Add(-time.Hour), LatencyMilliseconds: 50}
	}).Status()
	if first.Same(slower) {
		t.Error("a node that answers more slowly makes no other answer")
	}
}

// TestConflicts: an address that somebody else claims is a problem of the object; conflicts between objects are
// reported with the pods that they affect.
func TestConflicts(t *testing.T) {
	for reason, want := range map[string]string{conditions.ReasonAddressInUse: conditions.ReasonAddressInUse, egressip.ReasonOlderWins: ""} {
		_, problems := conditionsOf("EgressIP/prod", 1, []metav1.Condition{{Type: conditions.Conflict, Status: metav1.ConditionTrue, Reason: reason}})
		if got := reasonsOf(problems); got != want {
			t.Errorf("%s: problems %q", reason, got)
		}
	}
}

// TestConflictsOfBothKinds: an address that somebody else claims is a problem of the object also while older objects have some of its
// pods, and its message names both.
func TestConflictsOfBothKinds(t *testing.T) {
	const claim, older = "172.18.0.33 is the address of node ovn-worker2", "shop/older"
	for object, reported := range map[string][]metav1.Condition{
		"EgressIP/prod": egressip.Conditions(
			egressip.Decision{Placements: []egressip.Placement{{Node: "ovn-worker", Disputed: egressip.Refusal{Reason: egressip.NodeAddress, Message: claim}}}},
			ipv1.EgressIPStatus{}, egressip.Report{Conflicts: []string{older}}),
		"EgressService/shop/checkout": egressservice.Conditions(egressservice.Service{Conflicts: []string{older},
			Disputed: []egressservice.RefusedAddress{{Address: "172.18.0.33", Reason: reserved.NodeAddress, Message: claim}}}, egressservice.Decision{}),
	} {
		_, problems := conditionsOf(object, 1, []metav1.Condition{*meta.FindStatusCondition(reported, conditions.Conflict)})
		if len(problems) != 1 || problems[0].Reason != conditions.ReasonAddressInUse || !strings.Contains(problems[0].Message, claim) || !strings.Contains(problems[0].Message, older) {
			t.Errorf("%s: problems %+v", object, problems)
		}
	}
}

func TestStatusSamples(t *testing.T) {
	samples(t, "status", cluster(t, egressIP("prod", "prod", "172.18.0.33"), egressIP("shop", "shop", "172.18.0.44"),
		running("ovnkube-node-1", "ovnkube-node", "ovnkube:v1.1.0", "sha256:2222"), running("ovnkube-node-2", "ovnkube-node", "ovnkube:v1.0.0", "sha256:1111"),
		egressService("infra/proxy", "5.5.5.5"), func(s *Snapshot) { s.EgressServices[0].Status.Host = "ovn-worker" }, inForce, func(s *Snapshot) {
			s.Nodes[0].Spec.Unschedulable = true
			programmed := &s.EgressIPs[1].Status.Conditions[1]
			programmed.Status, programmed.Reason, programmed.LastTransitionTime = metav1.ConditionFalse, "WaitingForNode", ago(40*time.Second)
			programmed.Message = "node ovn-worker does not hold 172.18.0.44 yet"
			s.EgressIPs[1].Status.Programmed = nil
		}).Status())
}
