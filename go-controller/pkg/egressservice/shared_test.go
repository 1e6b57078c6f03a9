package egressservice

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// on lets only some nodes be the host.
func on(labels ...string) func(*v1.EgressService) {
	return func(eg *v1.EgressService) {
		if len(labels) > 0 {
			eg.Spec.NodeSelector.MatchLabels = map[string]string{}
		}
		for _, l := range labels {
			eg.Spec.NodeSelector.MatchLabels[l] = ""
		}
	}
}

// aged sets the age of an EgressService: higher numbers are younger.
func aged(n int) func(*v1.EgressService) {
	return func(eg *v1.EgressService) {
		eg.CreationTimestamp.Time = eg.CreationTimestamp.Add(time.Duration(n) * time.Second)
	}
}

// racks returns nodes n0, n1, n2; each has the labels of the pairs it belongs to.
func racks(change map[string]func(*place.Node)) (all []place.Node) {
	for i, pairs := range [][]string{{"n0", "n0-n1"}, {"n1", "n0-n1", "n1-n2"}, {"n2", "n1-n2"}} {
		n := node(fmt.Sprintf("n%d", i), i)
		for _, l := range pairs {
			n.Labels[l] = ""
		}
		if f := change[n.Name]; f != nil {
			f(&n)
		}
		all = append(all, n)
	}
	return all
}

// TestSharedAddress: EgressServices with the same source address have the same host. One that
// cannot be served together with older ones is not served, and its users learn why.
func TestSharedAddress(t *testing.T) {
	type want map[string]string // the hosts
	const v4, v6, other = "5.5.5.5", "5555::5", "6.6.6.6"
	in := func(names map[string][]string) (all []*corev1.Service) {
		for name, ingress := range names {
			all = append(all, service("default", name, ingress))
		}
		return all
	}
	a, b, c := egress("default", "a", on("n0-n1")), egress("default", "b", on("n1-n2"), aged(1)), egress("default", "c", aged(2))
	narrow := egress("default", "b", on("n2"), aged(1))
	two := in(map[string][]string{"a": {v4}, "b": {v4}})
	three := in(map[string][]string{"a": {v4}, "b": {v4, v6}, "c": {v6}})
	for _, test := range []struct {
		name   string
		before map[string]string // hosts in the statuses
		nodes  map[string]func(*place.Node)
		egress []*v1.EgressService
		in     []*corev1.Service
		want   want
		left   map[string]string
		why    map[string]string
	}{
		{name: "the common node", egress: []*v1.EgressService{a, b}, in: two, want: want{"a": "n1", "b": "n1"}},
		{name: "different addresses", before: want{"a": "n0", "b": "n2"}, egress: []*v1.EgressService{a, b},
			in: in(map[string][]string{"a": {v4}, "b": {other}}), want: want{"a": "n0", "b": "n2"}},
		{name: "an address becomes shared", before: want{"a": "n0", "b": "n2"}, egress: []*v1.EgressService{a, b}, in: two,
			want: want{"a": "n1", "b": "n1"}, left: want{"a": string(sharesAddress), "b": string(sharesAddress)}},
		{name: "the host of the oldest counts", before: want{"a": "n1", "c": "n2"}, egress: []*v1.EgressService{a, c},
			in: in(map[string][]string{"a": {v4}, "c": {v4}}), want: want{"a": "n1", "c": "n1"}, left: want{"c": string(sharesAddress)}},
		{name: "a host of another that can stay counts", before: want{"a": "n0", "c": "n1"}, nodes: map[string]func(*place.Node){"n0": cordoned},
			egress: []*v1.EgressService{a, c}, in: in(map[string][]string{"a": {v4}, "c": {v4}}), want: want{"a": "n1", "c": "n1"},
			left: want{"a": string(rejectCordoned)}},
		{name: "shared through others", before: want{"a": "n0", "b": "n2", "c": "n2"}, egress: []*v1.EgressService{a, b, c}, in: three,
			want: want{"a": "n1", "b": "n1", "c": "n1"}, left: want{"a": string(sharesAddress), "b": string(sharesAddress), "c": string(sharesAddress)}},
		{name: "the host dies", before: want{"a": "n1", "b": "n1", "c": "n1"}, nodes: map[string]func(*place.Node){"n1": dead},
			egress: []*v1.EgressService{egress("default", "a"), egress("default", "b", on("n1-n2"), aged(1)), c}, in: three,
			want: want{"a": "n2", "b": "n2", "c": "n2"}, left: want{"a": string(place.Unreachable), "b": string(place.Unreachable), "c": string(place.Unreachable)}},
		{name: "nothing is known of the host yet", before: want{"a": "n1", "b": "n1"}, nodes: map[string]func(*place.Node){"n0": unknown, "n1": unknown, "n2": unknown},
			egress: []*v1.EgressService{a, b}, in: two, want: want{"a": "n1", "b": "n1"}},
		{name: "no common node", before: want{"b": "n2"}, egress: []*v1.EgressService{a, narrow, c}, in: in(map[string][]string{"a": {v4}, "b": {v4}, "c": {v4}}),
			want: want{"a": "*", "b": "", "c": "*"},
			why: want{"b": "no node can be the host: n0, n1: does not match nodeSelector; " +
				"n2: cannot also be the host of EgressService default/a, which has the same ingress address 5.5.5.5"}},
		{name: "the only common node is dead", before: want{"a": "n1", "b": "n1"}, nodes: map[string]func(*place.Node){"n1": dead},
			egress: []*v1.EgressService{a, b}, in: two, want: want{"a": "n0", "b": ""},
			why: want{"b": "no node can be the host: n0: does not match nodeSelector; n1: unreachable; " +
				"n2: cannot also be the host of EgressService default/a, which has the same ingress address 5.5.5.5"}},
		{name: "the oldest cannot be served", nodes: map[string]func(*place.Node){"n0": dead, "n1": dead},
			egress: []*v1.EgressService{a, narrow}, in: two, want: want{"a": "", "b": "n2"}},
		{name: "the oldest is gone", before: want{"a": "n0"}, egress: []*v1.EgressService{narrow}, in: two, want: want{"b": "n2"}},
		{name: "one family without a common node", egress: []*v1.EgressService{a, egress("default", "b", on("n2"), aged(1)), c}, in: three,
			want: want{"a": "*", "b": "", "c": "*"}},
		{name: "every node serves its own pods", egress: []*v1.EgressService{egress("default", "a", perNode), narrow}, in: two, want: want{"a": "ALL", "b": "n2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			st := state{nodes: racks(test.nodes), egress: test.egress, services: test.in}
			for range 2 { // in any order
				slices.Reverse(st.egress)
				slices.Reverse(st.nodes)
				w := newWorld()
				for name, host := range test.before {
					w.status["default/"+name] = host
				}
				w.become(st)
				for _, eg := range st.egress {
					d := w.decisions["default/"+eg.Name]
					if host := test.want[eg.Name]; host == "*" && d.Host == "" || host != "*" && d.Host != host {
						t.Errorf("%s: host %q, want %q:\n%s", eg.Name, d.Host, host, w)
					}
					if why := test.why[eg.Name]; why != "" && d.Refused != (Refusal{NoNode, why}) {
						t.Errorf("%s: refused for %+v, want %s", eg.Name, d.Refused, why)
					}
					if d.Host != "" && d.Left != test.left[eg.Name] {
						t.Errorf("%s left because %q, want %q", eg.Name, d.Left, test.left[eg.Name])
					}
				}
				once(t, w)
				before := w.String()
				w.restart()
				if w.become(st); w.String() != before {
					t.Errorf("after a restart:\n%s\nwanted:\n%s", w, before)
				}
			}
		})
	}
}

// once checks that no source address is used by two nodes.
func once(t *testing.T, w *world) {
	t.Helper()
	host := map[netip.Addr]string{}
	for _, s := range w.services {
		h := Status(s, w.decisions[s.Key])
		if h == "" || s.PerNode {
			continue
		}
		for _, a := range s.Ingress {
			if host[a] != "" && host[a] != h {
				t.Errorf("%s is used by %s and %s:\n%s", a, host[a], h, w)
			}
			host[a] = h
		}
	}
}

// TestSharedAddressDisclosesNoOthers: users of a namespace do not learn the names in another one.
func TestSharedAddressDisclosesNoOthers(t *testing.T) {
	w := newWorld()
	w.become(state{nodes: racks(nil), egress: []*v1.EgressService{egress("shop", "a", on("n0")), egress("default", "b", on("n2"), aged(1))},
		services: []*corev1.Service{service("shop", "a", []string{"5555::5"}), service("default", "b", []string{"5555::5"})}})
	want := "no node can be the host: n0, n1: does not match nodeSelector; " +
		"n2: cannot also be the host of an EgressService of another namespace, which has the same ingress address 5555::5"
	if got := w.decisions["default/b"].Refused.Message; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestSharedAddressDrops: what cannot be served is dropped if that is asked for.
func TestSharedAddressDrops(t *testing.T) {
	w := newWorld()
	w.become(state{nodes: racks(nil), egress: []*v1.EgressService{egress("default", "a", on("n0")), egress("default", "demo-svc", on("n2"), hold, aged(1))},
		services: []*corev1.Service{service("default", "a", demoIngress), demoService}, slices: demo(nil).slices})
	now := SteeringOf(w.rows["default/demo-svc"])
	if len(now) != len(demoEndpoints) {
		t.Errorf("%d policies, want %d", len(now), len(demoEndpoints))
	}
	for addr, hop := range now {
		if hop.IsValid() {
			t.Errorf("%s is led to %s", addr, hop)
		}
	}
}

// TestSharedAddressUnready: EgressServices that share an address have no host where one that demands a ready endpoint has none, unless
// it had one when that became the host, and no node can replace it.
func TestSharedAddressUnready(t *testing.T) {
	local := func(svc *corev1.Service) { svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	for _, c := range []struct{ name, before, endpoints, a, b string }{
		{"a younger one is ready elsewhere", "a@n0", "!10.244.0.5@n0 10.244.1.5@n1", "n1", "n1"},
		{"a younger one is not ready", "a@n0", "!10.244.0.5@n0", "n0", ""},
		{"a younger one was ready", "a@n0 b@n0", "!10.244.0.5@n0", "n0", "n0"},
		{"a younger one was ready, and is not ready elsewhere", "a@n0 b@n0", "!10.244.0.5@n0 !10.244.1.5@n1", "n0", "n0"},
		{"a younger one was ready, and is ready elsewhere", "a@n0 b@n0", "!10.244.0.5@n0 10.244.1.5@n1", "n1", "n1"},
		{"a younger one is ready", "a@n0 b@n0", "10.244.0.5@n0 10.244.1.5@n1", "n0", "n0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			for one := range strings.FieldsSeq(c.before) {
				name, host, _ := strings.Cut(one, "@")
				w.status["default/"+name] = host
			}
			w.become(state{nodes: racks(nil), egress: []*v1.EgressService{egress("default", "a"), egress("default", "b", aged(1))},
				services: []*corev1.Service{service("default", "a", []string{"5.5.5.5"}), service("default", "b", []string{"5.5.5.5"}, local)},
				slices:   []*discoveryv1.EndpointSlice{slice("default", "b", strings.Fields(c.endpoints)...)}})
			if a, b := w.decisions["default/a"].Host, w.decisions["default/b"].Host; a != c.a || b != c.b {
				t.Errorf("the hosts are %q and %q, want %q and %q:\n%s", a, b, c.a, c.b, w)
			}
			once(t, w)
		})
	}
}

// TestSharedAddressMovesNoHost: a host that gets nothing new, because it has not acknowledged something, keeps what it has
// acknowledged, even if a younger EgressService joins with the same address.
func TestSharedAddressMovesNoHost(t *testing.T) {
	w := newWorld()
	older, younger := egress("default", "a"), egress("default", "b", aged(1))
	a, b := service("default", "a", []string{"5.5.5.5"}), service("default", "b", []string{"5.5.5.5"})
	w.become(state{nodes: racks(nil), egress: []*v1.EgressService{older}, services: []*corev1.Service{a}})
	host := w.decisions["default/a"].Host
	silent := racks(map[string]func(*place.Node){host: func(n *place.Node) { n.NotAcknowledging = true }})
	w.become(state{nodes: silent, egress: []*v1.EgressService{older, younger}, services: []*corev1.Service{a, b}})
	for _, name := range []string{"a", "b"} {
		if got := w.decisions["default/"+name].Host; got != host || host == "" {
			t.Errorf("the host of %s is %q, want %q", name, got, host)
		}
	}
	once(t, w)
}
