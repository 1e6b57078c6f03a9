package egressservice

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

// ranges and owners describe the cluster of these tests.
var ranges = reserved.Ranges{
	Pods:       cluster,
	Services:   []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	Join:       []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
	Masquerade: []netip.Prefix{netip.MustParsePrefix("169.254.169.0/29"), netip.MustParsePrefix("fd69::/125")},
}

func owners(a netip.Addr) []reserved.Owner {
	switch a.String() {
	case "172.18.0.2":
		return []reserved.Owner{{Kind: reserved.Node, Name: "ovn-control-plane"}, {Kind: reserved.APIServer, Ports: []uint16{6443}}}
	case "172.18.0.1":
		return []reserved.Owner{{Kind: reserved.Gateway, Name: "ovn-worker"}}
	case "198.51.100.7":
		return []reserved.Owner{{Kind: reserved.APIServer, Ports: []uint16{6443}}}
	case "172.18.0.50", "fc00:f853:ccd:e793::50":
		return []reserved.Owner{{Kind: reserved.Node, Name: "ovn-worker", Extra: true}}
	case "172.18.0.51":
		return []reserved.Owner{{Kind: reserved.Node, Name: "ovn-worker", Extra: true}, {Kind: reserved.Node, Name: "ovn-worker2"}}
	case "fc00:f853:ccd:e793::2":
		return []reserved.Owner{{Kind: reserved.Node, Name: "ovn-worker2"}, {Kind: reserved.Gateway, Name: "ovn-worker"}}
	case "172.18.0.33":
		return []reserved.Owner{{Kind: reserved.EgressIP, Name: "prod"}}
	}
	return nil
}

func decodeIngress(svc *corev1.Service, change ...func(*v1.EgressService)) Service {
	endpoints := slice("ns", "svc", "10.244.0.3@ovn-worker", "fd00:10:244:1::3@ovn-worker")
	return Decode(Snapshot{Egress: egress("ns", "svc", change...), Service: svc, Slices: []*discoveryv1.EndpointSlice{endpoints},
		Pod: podsIn(endpoints), Reserved: ranges, Owners: owners}, cluster)
}

// TestRefusedIngress: an address that belongs to somebody else is refused individually, and the
// others of the family are used.
func TestRefusedIngress(t *testing.T) {
	for ip, want := range map[string]reserved.Reason{
		"172.18.0.2":        reserved.NodeAddress,
		"::ffff:172.18.0.2": reserved.NodeAddress,
		"198.51.100.7":      reserved.APIServerAddress,
		"172.18.0.1":        reserved.GatewayAddress,
		"172.18.0.33":       reserved.AddressTaken,
		"10.244.0.3":        reserved.InternalAddress,
		"10.96.0.1":         reserved.InternalAddress,
		"100.64.0.2":        reserved.InternalAddress,
		"fd98::2":           reserved.InternalAddress,
		"fd69::3":           reserved.InternalAddress,
		"127.0.0.1":         reserved.InvalidAddress,
		"::1":               reserved.InvalidAddress,
		"239.1.2.3":         reserved.InvalidAddress,
		"169.254.1.1":       reserved.InvalidAddress,
		"fe80::1":           reserved.InvalidAddress,
		"0.0.0.0":           reserved.InvalidAddress,
		"::":                reserved.InvalidAddress,
		"010.1.2.3":         reserved.InvalidAddress,
		"nonsense":          reserved.InvalidAddress,
		"9.9.9.9":           ProxyMode,
	} {
		s := decodeIngress(service("ns", "svc", []string{ip, "5.5.5.5", "5555::5"}, func(svc *corev1.Service) {
			if want == ProxyMode {
				svc.Status.LoadBalancer.Ingress[0].IPMode = new(corev1.LoadBalancerIPModeProxy)
			}
		}))
		if !slices.Equal(s.Ingress, []netip.Addr{netip.MustParseAddr("5.5.5.5"), netip.MustParseAddr("5555::5")}) {
			t.Errorf("%s: used are %v", ip, s.Ingress)
		}
		s.Host = "ovn-worker"
		for pod, to := range NodeState(s, "ovn-worker") {
			if !slices.Contains(s.Ingress, to) {
				t.Errorf("%s: %s leaves as %s", ip, pod, to)
			}
		}
		c := meta.FindStatusCondition(Conditions(s, Decision{Host: "ovn-worker"}), v1.ConditionIngressRefused)
		if c == nil || c.Status != "True" || c.Reason != string(want) || !strings.Contains(c.Message, ip) {
			t.Errorf("%s: %+v", ip, c)
		}
	}
}

// TestOnlyRefusedIngress: a Service without usable addresses is not served, and reports the reason.
func TestOnlyRefusedIngress(t *testing.T) {
	s := decodeIngress(service("ns", "svc", []string{"172.18.0.2"}))
	if s.Refused.Reason != NoIngress || !strings.Contains(s.Refused.Message, "172.18.0.2") || !strings.Contains(s.Refused.Message, "node ovn-control-plane") {
		t.Errorf("%+v", s.Refused)
	}
	s.Host = "ovn-worker"
	if len(NodeState(s, "ovn-worker"))+len(Rows(s, Decision{}, nil)) != 0 {
		t.Errorf("something is planned")
	}
	s = decodeIngress(service("ns", "svc", []string{"172.18.0.2", "5555::5"}))
	if s.Refused != (Refusal{}) || len(s.Endpoints) != 1 || !s.Endpoints[0].Addr.Is6() {
		t.Errorf("of one family: %+v", s)
	}
}

// TestAllUsable: if all addresses are usable, there is no condition about refused ones.
func TestAllUsable(t *testing.T) {
	s := decodeIngress(service("ns", "svc", []string{"5.5.5.5", "lb.example.com"}))
	if c := meta.FindStatusCondition(Conditions(s, Decision{Host: "ovn-worker"}), v1.ConditionIngressRefused); c != nil {
		t.Errorf("%+v", c)
	}
}

// TestAddressOnHost: an ingress address that a node has in addition to its own was put there by the load balancer's
// provider, and is used; if it is another node's own, it is not.
func TestAddressOnHost(t *testing.T) {
	for ip, used := range map[string]bool{"172.18.0.50": true, "fc00:f853:ccd:e793::50": true, "172.18.0.51": false} {
		s := decodeIngress(service("ns", "svc", []string{ip}))
		if got := slices.Contains(s.Ingress, netip.MustParseAddr(ip)); got != used || len(s.Disputed) > 0 || (len(s.RefusedIngress) == 0) != used {
			t.Errorf("%s: used %v, refused %v, disputed %v", ip, s.Ingress, s.RefusedIngress, s.Disputed)
		}
	}
}

// TestHeldIngress: an address that a host gives to pods stays in use when a node claims it, and the condition says
// who does. Others than nodes get it, and so does a node when nobody holds it.
func TestHeldIngress(t *testing.T) {
	held := func(host string, addresses ...string) func(*v1.EgressService) {
		return func(eg *v1.EgressService) {
			eg.Status.Host = host
			eg.Status.Programmed = &v1.ProgrammedStatus{Host: "ovn-worker", Digest: "of other endpoints", Addresses: addresses}
		}
	}
	for name, c := range map[string]struct {
		ip     string
		change func(*v1.EgressService)
		want   string // in the message of the condition; empty: it is refused
	}{
		"a gateway":                {"172.18.0.1", held("ovn-worker", "172.18.0.1"), "gateway of node ovn-worker"},
		"a node, IPv6":             {"fc00:f853:ccd:e793::2", held("ovn-worker", "5.5.5.5", "fc00:f853:ccd:e793::2"), "address of node ovn-worker2"},
		"on the way to a new host": {"172.18.0.1", held("ovn-worker2", "172.18.0.1"), "gateway of node ovn-worker"},
		"mapped":                   {"::ffff:172.18.0.1", held("ovn-worker", "172.18.0.1"), "gateway of node ovn-worker"},
		"never held":               {"172.18.0.1", func(*v1.EgressService) {}, ""},
		"another was held":         {"172.18.0.1", held("ovn-worker", "5.5.5.5"), ""},
		"no host any more":         {"172.18.0.1", held("", "172.18.0.1"), ""},
		"the API server":           {"198.51.100.7", held("ovn-worker", "198.51.100.7"), ""},
		"a node, the API server":   {"172.18.0.2", held("ovn-worker", "172.18.0.2"), ""},
		"an EgressIP":              {"172.18.0.33", held("ovn-worker", "172.18.0.33"), ""},
		"a range of the cluster":   {"100.64.0.2", held("ovn-worker", "100.64.0.2"), ""},
	} {
		s := decodeIngress(service("ns", "svc", []string{c.ip}), c.change)
		if (c.want == "") != (s.Refused.Reason == NoIngress) || (c.want == "") != (len(s.Disputed) == 0) {
			t.Errorf("%s: refused %+v, used %v, disputed %v", name, s.Refused, s.Ingress, s.Disputed)
		}
		got := meta.FindStatusCondition(Conditions(s, Decision{Host: "ovn-worker"}), v1.ConditionConflict)
		if c.want != "" && (got.Status != "True" || got.Reason != conditions.ReasonAddressInUse || !strings.Contains(got.Message, c.want)) {
			t.Errorf("%s: %+v", name, got)
		}
		s.Conflicts = []string{"ns/older"}
		got = meta.FindStatusCondition(Conditions(s, Decision{Host: "ovn-worker"}), v1.ConditionConflict)
		reason := ReasonOlderWins
		if c.want != "" { // what one has to act on, and nothing else reports
			reason = conditions.ReasonAddressInUse
		}
		if got.Reason != reason || !strings.Contains(got.Message, "ns/older") || !strings.Contains(got.Message, c.want) {
			t.Errorf("%s, and another EgressService: %+v", name, got)
		}
	}
}
