package explain

import (
	"fmt"
	"strings"
	"testing"

	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// underWay summarizes the operations in progress.
func (s Status) underWay() string {
	var out []string
	for _, m := range s.Moves {
		out = append(out, fmt.Sprintf("%s>%s %d %d", strings.TrimPrefix(m.From, "ovn-"), strings.TrimPrefix(m.To, "ovn-"), m.Addresses, m.Hosts))
	}
	for _, d := range s.Drains {
		out = append(out, fmt.Sprintf("%s drains %d %d", strings.TrimPrefix(d.Node, "ovn-"), d.Addresses, d.Hosts))
	}
	return strings.Join(out, "; ")
}

func TestMoves(t *testing.T) {
	type change = func(*Snapshot)
	two := []change{egressIP("prod", "prod", "172.18.0.33"), egressIP("shop", "shop", "172.18.0.44"), inForce} // prod on worker2, shop on worker
	and := func(more ...change) []change { return append(two[:len(two):len(two)], more...) }
	// assigned is the state after the master's write and before any action of the nodes.
	assigned := func(node string) change {
		return func(s *Snapshot) { s.EgressIPs[0].Status.Items[0].Node = node }
	}
	draining := func(s *Snapshot) {
		s.Nodes[2].Spec.Unschedulable = true
		s.Nodes[2].Annotations[kube.AnnotationEgressHandover] = "true"
	}
	host := func(node string) change { return func(s *Snapshot) { s.EgressServices[0].Status.Host = node } }
	for _, tc := range []struct {
		name  string
		world []change
		want  string
	}{
		{"nothing", two, ""},
		{"the master is yet to decide", and(notReady("ovn-worker2")), "worker2>worker 1 0"},
		{"the nodes are yet to act", and(assigned("ovn-worker")), "worker2>worker 1 0"},
		{"the node before is gone", and(assigned("ovn-worker"), func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil }), ">worker 1 0"},
		{"nobody has it yet", []change{egressIP("prod", "prod", "172.18.0.33")}, ">worker2 1 0"},
		{"there is no node", []change{egressIP("prod", "prod", "172.18.0.33"), unlabelled}, ""},
		{"an EgressService is yet to be served by another", []change{egressService("shop/checkout", "5.5.5.5"), host("ovn-worker"), inForce, host("ovn-worker2")}, "worker>worker2 0 1"},
		{"every node serves its own", []change{egressService("shop/checkout", "5.5.5.5"), func(s *Snapshot) {
			s.EgressServices[0].Spec.SourceIPBy, s.EgressServices[0].Spec.Network = servicev1.SourceIPNetwork, "100"
		}}, ""},
		{"a node drains", and(draining), "worker2>worker 1 0; worker2 drains 1 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := cluster(t, tc.world...).Status().underWay(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	s := cluster(t, egressIP("prod", "prod", "172.19.0.33", "fc00:f853:ccd:e793::33"), egressService("infra/proxy", "172.19.0.40"), inForce, func(s *Snapshot) {
		s.Services[0].Spec.ExternalIPs = []string{"172.19.0.41", "192.0.2.1"}
	}).Status()
	const others = "172.18.0.0/16 65530 false; fc00:f853:ccd:e793::/64 1000000 false; 172.19.0.0/24 248 true"
	for i, want := range []string{"", others, others} {
		var got []string
		for _, r := range s.Nodes[i].Room {
			got = append(got, fmt.Sprintf("%s %d %t", r.Network, r.Addresses, r.Secondary))
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s: %s, want %s", s.Nodes[i].Node, text, want)
		}
	}
	if text := roomText(s.Nodes[1].Room); text != "IPv4 65778, IPv6 over 999999" {
		t.Error(text)
	}
}
