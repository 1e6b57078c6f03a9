package egressservice

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"

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
	case "172.18.0.33":
		return []reserved.Owner{{Kind: reserved.EgressIP, Name: "prod"}}
	}
	return nil
}

func decodeIngress(svc *corev1.Service) Service {
	endpoints := slice("ns", "svc", "10.244.0.3@ovn-worker", "fd00:10:244:1::3@ovn-worker")
	return Decode(Snapshot{Egress: egress("ns", "svc"), Service: svc, Slices: []*discoveryv1.EndpointSlice{endpoints},
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
