package explain

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// whatIf asks about a change.
func whatIf(t *testing.T, s *Snapshot, change Change) WhatIf {
	t.Helper()
	c, err := New(*s)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.WhatIf(change)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// briefly summarizes the changes: moves, pods, conditions.
func (a WhatIf) briefly() string {
	var all []string
	for _, m := range a.Moves {
		all = append(all, strings.TrimPrefix(m.Address+" ", " ")+m.Object+" "+m.From+">"+m.To)
	}
	way := func(w *Way) string {
		if w == nil {
			return "-"
		}
		text := string(w.Outcome)
		for _, s := range w.Sources {
			text += " " + s.Address + "@" + s.Node
		}
		for _, g := range w.Gateways {
			text += " via " + g.Address
		}
		return text
	}
	for _, p := range a.Pods {
		pause := "?"
		if p.Pause != nil {
			pause = p.Pause.Duration.String()
		}
		all = append(all, fmt.Sprintf("%s %s %s > %s %s %s", p.Pod, p.Family, way(p.From), way(p.To), pause, p.Connections))
	}
	for _, c := range a.Conditions {
		from := ""
		if c.From != nil {
			from = c.From.Reason
		}
		all = append(all, c.Object+" "+c.Type+" "+from+">"+c.To.Reason)
	}
	return strings.Join(all, "\n")
}

// on sets the status of the EgressIP so that its addresses are on a node.
func on(node string) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, e := range s.EgressIPs {
			for _, a := range e.Spec.EgressIPs {
				e.Status.Items = append(e.Status.Items, ipv1.EgressIPStatusItem{Node: node, EgressIP: string(a)})
			}
		}
	}
}

func hosted(node string) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, e := range s.EgressServices {
			e.Status.Host = node
		}
	}
}

func newEgressIP(name, namespace string, addrs ...string) *ipv1.EgressIP {
	e := &ipv1.EgressIP{TypeMeta: metav1.TypeMeta{Kind: "EgressIP"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addrs {
		e.Spec.EgressIPs = append(e.Spec.EgressIPs, ipv1.Address(a))
	}
	e.Spec.NamespaceSelector.MatchLabels = map[string]string{"name": namespace}
	return e
}

func TestWhatIf(t *testing.T) {
	prod := []func(*Snapshot){egressIP("prod", "prod", "172.18.0.33"), on("ovn-worker2"), inForce}
	checkout := []func(*Snapshot){egressService("shop/checkout", "5.5.5.5"), hosted("ovn-worker2"), inForce}
	onlyWorker2 := func(s *Snapshot) { delete(s.Nodes[1].Labels, kube.LabelEgressAssignable) }
	ended := func(s *Snapshot) {
		s.Pods[0].Status.Phase, s.Pods[1].Status.Phase = corev1.PodSucceeded, corev1.PodFailed
	}
	drop := func(s *Snapshot) { s.EgressIPs[0].Spec.OnUnavailable = ipv1.UnavailableDrop }
	policy := &routev1.AdminPolicyBasedExternalRoute{TypeMeta: metav1.TypeMeta{Kind: kindRoute}, ObjectMeta: metav1.ObjectMeta{Name: "gws"}}
	policy.Spec.From.NamespaceSelector.MatchLabels = map[string]string{"name": "prod"}
	policy.Spec.NextHops.Static = []routev1.StaticHop{{IP: "172.18.0.51"}}
	for name, tc := range map[string]struct {
		world    []func(*Snapshot)
		change   Change
		want     string
		problems string
	}{
		"nothing of it matters": {world: prod, change: Change{Labels: []NodeLabel{{Node: "ovn-worker", Key: "rack", Value: "a"}}}},
		"a node that holds an address is lost": {world: prod, change: Change{Lose: []string{"ovn-worker2"}},
			want: "172.18.0.33 EgressIP/prod ovn-worker2>ovn-worker\n" +
				"prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > EgressIP 172.18.0.33@ovn-worker 2s Kept"},
		"the node of pods is lost": {world: prod, change: Change{Lose: []string{"ovn-worker"}},
			want: "prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > NodeLost ? Broken\n" +
				"prod/web IPv6 NodeAddress fc00:f853:ccd:e793::3@ovn-worker > NodeLost ? Broken\n" +
				"shop/cart IPv4 NodeAddress 172.18.0.3@ovn-worker > NodeLost ? Broken\n" +
				"shop/cart IPv6 NodeAddress fc00:f853:ccd:e793::3@ovn-worker > NodeLost ? Broken"},
		"a node hands over": {world: prod, change: Change{Drain: []string{"ovn-worker2"}},
			want: "172.18.0.33 EgressIP/prod ovn-worker2>ovn-worker\n" +
				"prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > EgressIP 172.18.0.33@ovn-worker 100ms Kept"},
		"nobody can take it over": {world: append([]func(*Snapshot){onlyWorker2}, prod...), change: Change{Lose: []string{"ovn-worker2"}},
			want: "172.18.0.33 EgressIP/prod ovn-worker2>\n" +
				"prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > NodeAddress 172.18.0.3@ovn-worker 0s Broken\n" +
				"EgressIP/prod Assigned Assigned>NoNode\nEgressIP/prod Programmed Programmed>NotAssigned",
			problems: "NoNode,NotAssigned,NodeAddress"},
		"nobody can, and nothing may leak": {world: append(slices.Clone(prod), onlyWorker2, drop), change: Change{Labels: []NodeLabel{{Node: "ovn-worker2", Key: kube.LabelEgressAssignable, Remove: true}}},
			want: "172.18.0.33 EgressIP/prod ovn-worker2>\n" +
				"prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > Dropped ? Broken\n" +
				"EgressIP/prod Assigned Assigned>NoNode\nEgressIP/prod Programmed Programmed>NotAssigned",
			problems: "NoNode,NotAssigned,Dropped"},
		"a node that hands over keeps what nobody takes": {world: append([]func(*Snapshot){onlyWorker2}, prod...), change: Change{Drain: []string{"ovn-worker2"}}},
		"an EgressIP is deleted": {world: prod, change: Change{Delete: []string{"eip/prod"}},
			want: "172.18.0.33 EgressIP/prod ovn-worker2>\n" +
				"prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > NodeAddress 172.18.0.3@ovn-worker 0s Broken"},
		"an EgressIP is created": {world: prod, change: Change{Objects: []runtime.Object{newEgressIP("shop", "shop", "172.18.0.44")}},
			want: "172.18.0.44 EgressIP/shop >ovn-worker\n" +
				"shop/cart IPv4 NodeAddress 172.18.0.3@ovn-worker > EgressIP 172.18.0.44@ovn-worker 0s Kept\n" +
				"EgressIP/shop Assigned >Assigned\nEgressIP/shop Programmed >Programmed\nEgressIP/shop Conflict >NoConflict"},
		"one that an older one has precedence over": {world: prod, change: Change{Objects: []runtime.Object{newEgressIP("a", "prod", "172.18.0.33")}},
			want:     "EgressIP/a Assigned >AddressTaken\nEgressIP/a Programmed >NotAssigned\nEgressIP/a Conflict >OlderEgressIP",
			problems: "AddressTaken,NotAssigned"},
		"an address is exchanged": {world: prod, change: Change{Objects: []runtime.Object{newEgressIP("prod", "prod", "172.18.0.44")}},
			want: "172.18.0.33 EgressIP/prod ovn-worker2>\n172.18.0.44 EgressIP/prod >ovn-worker2\n" +
				"prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > EgressIP 172.18.0.44@ovn-worker2 0s Broken"},
		"a host is lost": {world: checkout, change: Change{Lose: []string{"ovn-worker2"}},
			want: "EgressService/shop/checkout ovn-worker2>ovn-worker\n" +
				"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker2 > EgressService 5.5.5.5@ovn-worker 2s Kept"},
		"an EgressService is deleted": {world: checkout, change: Change{Delete: []string{"egressservice/shop/checkout"}},
			want: "EgressService/shop/checkout ovn-worker2>\n" +
				"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker2 > NodeAddress 172.18.0.3@ovn-worker 0s Broken"},
		"gateways come first": {world: prod, change: Change{Objects: []runtime.Object{policy}},
			want: "prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > ExternalGateways 172.18.0.3@ovn-worker via 172.18.0.51 0s Broken\n" +
				"AdminPolicyBasedExternalRoute/gws Ready >Applied\nAdminPolicyBasedExternalRoute/gws HopsValid >AllValid\nAdminPolicyBasedExternalRoute/gws Conflict >NoConflict"},
		"a pod is deleted": {world: prod, change: Change{Delete: []string{"pod/prod/web"}},
			want: "prod/web IPv4 EgressIP 172.18.0.33@ovn-worker2 > - ? \nprod/web IPv6 NodeAddress fc00:f853:ccd:e793::3@ovn-worker > - ? "},
		"a namespace is deleted": {world: checkout, change: Change{Delete: []string{"ns/shop"}},
			want: "EgressService/shop/checkout ovn-worker2>\n" +
				"shop/cart IPv4 EgressService 5.5.5.5@ovn-worker2 > - ? \nshop/cart IPv6 NodeAddress fc00:f853:ccd:e793::3@ovn-worker > - ? "},
		"the node of a pod that has ended is lost": {world: []func(*Snapshot){ended, inForce}, change: Change{Lose: []string{"ovn-worker"}}},
		"a pod that has ended is deleted":          {world: []func(*Snapshot){ended, inForce}, change: Change{Delete: []string{"ns/prod", "ns/shop"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := world(tc.world...)
			a := whatIf(t, s, tc.change)
			if got := a.briefly(); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			if got := reasonsOf(a.Problems); got != tc.problems || a.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, a.InPlace, tc.problems)
			}
			if tc.want == "" && len(a.Rows) > 0 {
				t.Errorf("rows change: %v", a.Rows)
			}
			if t.Failed() {
				var text strings.Builder
				a.Text(&text)
				t.Log(text.String())
			}
		})
	}
}

// The question does not modify its input.
func TestWhatIfChangesNothing(t *testing.T) {
	s := world(egressIP("prod", "prod", "172.18.0.33"), egressService("shop/checkout", "5.5.5.5"), inForce)
	before := fmt.Sprint(deep(t, s))
	whatIf(t, s, Change{Delete: []string{"ns/shop"}, Labels: []NodeLabel{{Node: "ovn-worker", Key: "a", Value: "b"}}, Drain: []string{"ovn-worker"}, Lose: []string{"ovn-worker2"},
		Objects: []runtime.Object{newEgressIP("prod", "prod", "172.18.0.44")}})
	if after := fmt.Sprint(deep(t, s)); after != before {
		t.Errorf("the snapshot is another one:\n%s\nbefore\n%s", after, before)
	}
}

// A change that was already made has no further effect.
func TestWhatIfAgain(t *testing.T) {
	s := world(egressIP("prod", "prod", "172.18.0.33", "172.18.0.34"), egressService("shop/checkout", "5.5.5.5"), inForce)
	for _, change := range []Change{
		{Drain: []string{"ovn-worker"}},
		{Objects: []runtime.Object{newEgressIP("shop", "shop", "172.18.0.44")}},
		{Lose: []string{"ovn-worker2"}},
	} {
		before, err := settled(*s, nil)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := change.Apply(before.snap)
		if err != nil {
			t.Fatal(err)
		}
		after, err := settled(changed, before.states)
		if err != nil {
			t.Fatal(err)
		}
		again := whatIf(t, &after.snap, change)
		if got := again.briefly(); got != "" || len(again.Rows) > 0 {
			t.Errorf("%v: %s\n%v", change.Words(), got, again.Rows)
		}
	}
}

// A node with many addresses hands them over in several steps.
func TestWhatIfManyAddresses(t *testing.T) {
	var addrs []func(*Snapshot)
	for i := range 35 {
		addrs = append(addrs, egressIP(fmt.Sprintf("e%02d", i), "prod", fmt.Sprintf("172.18.1.%d", i+1)))
	}
	a := whatIf(t, world(append(addrs, on("ovn-worker2"), inForce)...), Change{Drain: []string{"ovn-worker2"}})
	if len(a.Moves) != 35 {
		t.Errorf("%d of 35 addresses move", len(a.Moves))
	}
}

func TestWhatIfRefused(t *testing.T) {
	c := cluster(t, egressIP("prod", "prod", "172.18.0.33"), inForce)
	for _, tc := range []struct {
		change  Change
		missing bool
		want    string
	}{
		{Change{Lose: []string{"nobody"}}, true, "node nobody: not found"},
		{Change{Drain: []string{"nobody"}}, true, "node nobody: not found"},
		{Change{Labels: []NodeLabel{{Node: "nobody", Key: "a"}}}, true, "node nobody: not found"},
		{Change{Delete: []string{"egressip/nothing"}}, true, "EgressIP nothing: not found"},
		{Change{Delete: []string{"pod/prod/nothing"}}, true, "Pod prod/nothing: not found"},
		{Change{Delete: []string{"pod/web"}}, false, `"pod/web": does not name a Pod; allowed: KIND/NAMESPACE/NAME`},
		{Change{Delete: []string{"egressip/prod/x"}}, false, `"egressip/prod/x": does not name an EgressIP; allowed: KIND/NAME`},
		{Change{Delete: []string{"secret/prod/x"}}, false, `"secret/prod/x": unknown kind; allowed: AdminPolicyBasedExternalRoute, EgressIP, EgressService, Namespace, Node, Pod, Service`},
		{Change{Objects: []runtime.Object{&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}}}, false,
			"ConfigMap/a/b: no egress feature depends on objects of this kind"},
	} {
		_, err := c.WhatIf(tc.change)
		if err == nil || err.Error() != tc.want || errors.Is(err, ErrNotFound) != tc.missing {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

func TestWhatIfSamples(t *testing.T) {
	samples(t, "what-if", whatIf(t, world(egressIP("prod", "prod", "172.18.0.33"), on("ovn-worker2"), inForce), Change{Lose: []string{"ovn-worker2"}}))
	doc, err := os.ReadFile("../../../docs/what-if.md")
	if err != nil {
		t.Fatal(err)
	}
	sample, err := os.ReadFile("testdata/what-if.txt.golden")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), string(sample)) {
		t.Error("docs/what-if.md does not have the content of testdata/what-if.txt.golden")
	}
}

// deep returns copies of the objects of a snapshot, which print in full.
func deep(t *testing.T, s *Snapshot) []string {
	t.Helper()
	var all []string
	for _, n := range s.Nodes {
		all = append(all, n.String())
	}
	for _, p := range s.Pods {
		all = append(all, p.String())
	}
	for _, ns := range s.Namespaces {
		all = append(all, ns.String())
	}
	for _, sl := range s.EndpointSlices {
		all = append(all, sl.String())
	}
	for _, e := range s.EgressIPs {
		all = append(all, fmt.Sprintf("%+v", *e))
	}
	for _, e := range s.EgressServices {
		all = append(all, fmt.Sprintf("%+v", e.Spec))
	}
	return all
}
