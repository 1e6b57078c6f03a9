package externalroute

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzDecide runs the planners on arbitrary user input: two policies, the
// addresses in annotations, the labels and networks of a gateway pod.
func FuzzDecide(f *testing.F) {
	const one = `{"from":{"namespaceSelector":{"matchLabels":{"gws":"true"}}},"nextHops":{"static":[{"ip":"172.18.0.51","bfdEnabled":true,"bfd":{"minRx":10}},` +
		`{"ip":"fc00::51","skipHostSNAT":true}],"dynamic":[{"podSelector":{},"namespaceSelector":{},"networkAttachmentName":"n"}]}}`
	f.Add(one, strings.ReplaceAll(one, "10", "20"), "172.18.0.51 fc00::52", "gw/n", "172.18.0.61 fc00::61", "red blue", uint8(0))
	f.Add(`{"from":{"namespaceSelector":{}},"nextHops":{"dynamic":[{"podSelector":{"matchExpressions":[{"key":"","operator":"In"}]}}]}}`, one,
		"::ffff:172.18.0.51 224.0.0.1", "n", "0.0.0.0 172.18.0.3", "nowhere", uint8(7))
	f.Add(`{"nextHops":{"static":[{"ip":"172.18.0.4"},{"ip":"172.18.0.4","bfdEnabled":true},{"ip":"fe80::1%a"},{"ip":"10.244.0.5"}]}}`, `{}`, "", "", "", "", uint8(3))
	f.Fuzz(func(t *testing.T, first, second, annotation, network, attachedTo, routing string, flags uint8) {
		mode := []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal}[flags&1]
		s := dual(mode, policy("older", 2, nil), policy("younger", 1, nil))
		s.cfg.DisableSNATMultipleGWs = flags&2 != 0
		for i, text := range []string{first, second} {
			if json.Unmarshal([]byte(text), &s.policies[i].Spec) != nil {
				return
			}
		}
		annotated("red", flags&4 != 0, parsed(annotation)...)(&s)
		gateway("g", func(p *GatewayPod) {
			p.Networks = []topology.Attachment{{Name: network, Addrs: addrs(parsed(attachedTo)...)}}
			p.HostNetwork, p.HostAddrs = flags&8 != 0, p.Networks[0].Addrs
			p.Routing, p.RoutingNetwork = strings.Fields(routing), network
		})(&s)
		if flags&16 != 0 {
			s.rerouted = []string{"10.244.0.5", "fd00:10:244:1::5"}
		}
		plan := s.decide()
		swapped := s
		swapped.policies = []*v1.AdminPolicyBasedExternalRoute{s.policies[1], s.policies[0]}
		if !reflect.DeepEqual(plan, swapped.decide()) {
			t.Error("the plan depends on the order of the policies")
		}
		for name, p := range plan.Policies {
			status := Status(p, Served{Pods: 1}, v1.AdminPolicyBasedExternalRouteStatus{})
			for _, c := range status.Conditions {
				if !conditions.Known(conditions.AdminPolicyBasedExternalRoute, c) || c.Message == "" || len(c.Message) > 32768 {
					t.Errorf("%s: condition %+v", name, c)
				}
			}
			if !reflect.DeepEqual(status, Status(p, Served{Pods: 1}, status)) {
				t.Errorf("%s: the status changes by itself", name)
			}
		}
		checkRows(t, s, plan)
	})
}

// checkRows checks the invariants for the rows of any plan.
func checkRows(t *testing.T, s state, plan Plan) {
	t.Helper()
	r := newResolver(s.cfg, Snapshot{})
	for i := range 2 {
		n := testNode(i, s.mode)
		own, seen, sessions := NodeAddrs(n), map[string]bool{}, map[string]bool{}
		rows := NodeRows(s.cfg, plan, NodeSnapshot{Node: n, Pods: s.pods})
		for _, row := range rows {
			if m, ok := row.Model.(*nbdb.BFD); ok {
				sessions[m.LogicalPort+"/"+m.DstIP] = true
			}
		}
		for _, row := range rows {
			id := reflect.TypeOf(row.Model).String() + row.ID
			if row.ID == "" || seen[id] {
				t.Errorf("row %q is there twice, or has no id", id)
			}
			seen[id] = true
			m, ok := row.Model.(*nbdb.LogicalRouterStaticRoute)
			if !ok {
				continue
			}
			hop, pod := netip.MustParseAddr(m.Nexthop), netip.MustParsePrefix(m.IPPrefix)
			if why := r.refuse(hop); why != "" || slices.Contains(own, hop) || topology.FamilyOf(hop) != topology.FamilyOf(pod.Addr()) {
				t.Errorf("route %s by way of %s: %s", pod, hop, why)
			}
			for _, ref := range row.Refs {
				if !sessions[ref.Name] {
					t.Errorf("route %s by way of %s has a session that is not there: %s", pod, hop, ref.Name)
				}
			}
		}
	}
}

// parsed keeps the words that are addresses, as the codecs of annotations do.
func parsed(text string) []string {
	var out []string
	for _, word := range strings.Fields(text) {
		if a, err := netip.ParseAddr(word); err == nil {
			out = append(out, a.Unmap().String())
		}
	}
	return out
}
