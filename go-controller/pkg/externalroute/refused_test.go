package externalroute

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// announces makes a gateway pod claim to be a gateway of some namespaces.
func announces(network string, namespaces ...string) func(*GatewayPod) {
	return func(p *GatewayPod) { p.RoutingNetwork, p.Routing = network, namespaces }
}

// both applies two changes.
func both(a, b func(*GatewayPod)) func(*GatewayPod) {
	return func(p *GatewayPod) { a(p); b(p) }
}

// usedBy returns the gateways of a namespace.
func usedBy(p Plan, namespace string) []string {
	var used []string
	for _, h := range p.Hops[namespace] {
		used = append(used, h.Addr.String())
	}
	return used
}

// TestGatewayNamespaces: only pods of the configured namespaces
// are gateways by annotation; policies select theirs regardless.
func TestGatewayNamespaces(t *testing.T) {
	for _, c := range []struct {
		name    string
		allowed []string
		used    bool
	}{
		{"all", nil, true},
		{"this one", []string{"blue", "gw"}, true},
		{"others", []string{"blue"}, false},
		{"a longer name", []string{"gw2"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dual(topology.GatewayShared, gateway("g", both(attached("gw/net1", "172.18.0.61"), announces("net1", "red"))),
				policy("p", 1, map[string]string{"color": "blue"}, dynamic("net1")))
			s.cfg.GatewayNamespaces = c.allowed
			plan := s.decide()
			want := []string(nil)
			if c.used {
				want = []string{"172.18.0.61"}
			}
			if got := usedBy(plan, "red"); !slices.Equal(got, want) {
				t.Errorf("red uses %v, want %v", got, want)
			}
			if got := usedBy(plan, "blue"); !slices.Equal(got, []string{"172.18.0.61"}) {
				t.Errorf("blue, which a policy selects, uses %v", got)
			}
			refused := strings.Join(plan.Refused["gw/g"], "; ")
			if c.used != (refused == "") || !c.used && !(strings.Contains(refused, "k8s.ovn.org/routing-namespaces") &&
				strings.Contains(refused, "external-gateway-namespaces") && strings.Contains(refused, "namespace gw")) {
				t.Errorf("refused: %q", refused)
			}
		})
	}
}

// TestImplausibleGateways: a pod's claims about its addresses are not
// trusted. An address that cannot belong to a pod is not a gateway, and an Event on the pod
// reports it; its other addresses are used.
func TestImplausibleGateways(t *testing.T) {
	const good = "172.18.0.61"
	for addr, why := range map[string]string{
		"10.244.1.5":       "is in the pod network 10.244.0.0/16",
		"fd00:10:244:1::5": "is in the pod network fd00:10:244::/48",
		"10.96.0.10":       "the cluster uses itself",
		"100.64.0.2":       "the cluster uses itself",
		"172.18.0.4":       "is the address of node ovn-worker2",
		"fc00::3":          "is the address of node ovn-worker",
		"127.0.0.1":        "a loopback address",
		"::1":              "a loopback address",
		"224.0.0.1":        "a multicast",
		"255.255.255.255":  "the broadcast address",
		"0.0.0.0":          "an unspecified address",
		"172.18.0.0":       "is the network or broadcast address of 172.18.0.0/16",
		"fc00::":           "is the network or broadcast address of fc00::/64",
		"169.254.1.1":      "a link-local address",
		"fe80::1":          "a link-local address",
	} {
		for _, kind := range []struct {
			name string
			how  func(*GatewayPod)
			with []func(*state)
		}{
			{"by annotation", announces("net1", "red"), nil},
			{"by policy", func(*GatewayPod) {}, []func(*state){policy("p", 1, onlyRed, dynamic("net1"))}},
		} {
			t.Run(kind.name+" "+addr, func(t *testing.T) {
				s := dual(topology.GatewayShared, append(kind.with, gateway("g", both(attached("gw/net1", addr, good), kind.how)))...)
				plan := s.decide()
				if got := usedBy(plan, "red"); !slices.Equal(got, []string{good}) {
					t.Errorf("red uses %v, want %s", got, good)
				}
				told := strings.Join(plan.Refused["gw/g"], "; ")
				if len(plan.Refused) != 1 || !strings.Contains(told, addr+" ") || !strings.Contains(told, why) ||
					!strings.Contains(told, "k8s.v1.cni.cncf.io/network-status") {
					t.Errorf("refused: %v, want %s %s", plan.Refused, addr, why)
				}
				if len(kind.with) == 0 {
					return
				}
				c := s.condition(t, "p", v1.ConditionHopsValid)
				if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, why) {
					t.Errorf("condition %+v", c)
				}
			})
		}
	}
}

// TestInvalidAddresses: an address of a gateway pod that does not parse is reported, and does not
// prevent the pod's other addresses from being gateways.
func TestInvalidAddresses(t *testing.T) {
	for _, kind := range []struct {
		name string
		how  func(*GatewayPod)
		with []func(*state)
	}{
		{"by annotation", announces("net1", "red"), nil},
		{"by policy", func(*GatewayPod) {}, []func(*state){policy("p", 1, onlyRed, dynamic("net1"))}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			s := dual(topology.GatewayShared, append(kind.with, gateway("g", both(kind.how, func(p *GatewayPod) {
				p.Networks = []topology.Attachment{{Name: "gw/net1", Addrs: addrs("172.18.0.61"), Bad: []string{"nowhere"}}}
			})))...)
			plan := s.decide()
			if got := usedBy(plan, "red"); !slices.Equal(got, []string{"172.18.0.61"}) {
				t.Errorf("red uses %v", got)
			}
			if told := strings.Join(plan.Refused["gw/g"], "; "); !strings.Contains(told, `"nowhere" is not an IP address`) {
				t.Errorf("refused: %v", plan.Refused)
			}
			if len(kind.with) == 0 {
				return
			}
			c := s.condition(t, "p", v1.ConditionHopsValid)
			if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, `pod gw/g ("nowhere"): is not an IP address`) {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

// TestRefused: other errors in annotations.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		with   func(*state)
		object string
		says   []string
	}{
		{"not on the host's network", gateway("g", announces("", "red")), "gw/g", []string{"it is not on the host's network"}},
		{"network-status does not parse", gateway("g", both(announces("net1", "red"), func(p *GatewayPod) { p.NetworksErr = "bad" })),
			"gw/g", []string{"network-status: its network-status does not parse: bad"}},
		{"not attached", gateway("g", both(attached("gw/net2", "172.18.0.61"), announces("net1", "red"))), "gw/g", []string{"has no network net1"}},
		{"namespace names a pod", annotated("red", false, "10.244.0.9"), "red", []string{"annotation k8s.ovn.org/routing-external-gws: 10.244.0.9 is in the pod network"}},
		{"namespace names all hosts", annotated("red", false, "172.18.255.255"), "red",
			[]string{"annotation k8s.ovn.org/routing-external-gws: 172.18.255.255 is the network or broadcast address of 172.18.0.0/16"}},
		{"namespace names all routers", annotated("red", false, "fc00::"), "red", []string{"annotation k8s.ovn.org/routing-external-gws: fc00:: is the network or broadcast"}},
		{"namespace names no address", func(s *state) { s.namespaces[2].Bad = []string{"x", "y"} }, "red", []string{`"x" is not an IP address`, `"y" is not`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := dual(topology.GatewayShared, c.with)
			plan := s.decide()
			if got := usedBy(plan, "red"); len(got) > 0 {
				t.Errorf("red uses %v", got)
			}
			told := plan.Refused[c.object]
			if len(told) != len(c.says) || len(plan.Refused) != 1 {
				t.Fatalf("refused: %v", plan.Refused)
			}
			for i, want := range c.says {
				if !strings.Contains(told[i], want) {
					t.Errorf("refused: %q, want %q", told[i], want)
				}
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		s := dual(topology.GatewayShared, gateway("g", both(onHost("172.18.0.4"), announces("", "red"))), annotated("red", false, "172.18.0.51"))
		plan := s.decide()
		if want := map[string][]string{}; !maps.EqualFunc(plan.Refused, want, slices.Equal) || len(usedBy(plan, "red")) != 2 {
			t.Errorf("refused %v, used %v", plan.Refused, usedBy(plan, "red"))
		}
		if !reflect.DeepEqual(plan, s.decide()) {
			t.Error("the plan changes by itself")
		}
	})
}
