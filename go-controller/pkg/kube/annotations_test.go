package kube

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func prefixes(s ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, x := range s {
		ps = append(ps, netip.MustParsePrefix(x))
	}
	return ps
}

func addrs(s ...string) []netip.Addr {
	var as []netip.Addr
	for _, x := range s {
		as = append(as, netip.MustParseAddr(x))
	}
	return as
}

var comparers = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestNodeRoundTrip(t *testing.T) {
	want := topology.Node{
		Name: "n1", Ready: true, Chassis: "c1", ManagementMAC: "0a:58:0a:f4:01:02",
		Labels:          map[string]string{"zone": "a"},
		NoPacketLengths: true,
		Subnets:         prefixes("10.244.1.0/24", "fd00:10:244:2::/64"),
		Join:            prefixes("100.64.0.3/16", "fd98::3/64"),
		Primary:         prefixes("172.18.0.3/16", "fc00:f853:ccd:e793::3/64"),
		Host:            prefixes("10.1.0.1/24", "172.18.0.3/16"),
		Gateway: topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_n1", MAC: "02:42:ac:12:00:03",
			Addrs: prefixes("172.18.0.3/16"), NextHops: addrs("172.18.0.1"), NodePort: true, VLAN: 7,
			External: topology.ExternalAttachment{InterfaceID: "breth1_n1", MAC: "02:42:c0:a8:32:03", Addrs: prefixes("192.168.50.3/24", "fd00:50::3/64")}},
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: want.Labels, Annotations: map[string]string{
		AnnotationNodeSubnets:      FormatNodeSubnets(want.Subnets),
		AnnotationChassisID:        want.Chassis,
		AnnotationManagementMAC:    want.ManagementMAC,
		AnnotationPrimaryIfAddr:    FormatPrimaryIfAddr(want.Primary),
		AnnotationHostAddresses:    FormatHostAddresses(want.Host),
		AnnotationGatewayMTU:       "false",
		AnnotationGatewayLRPIfAddr: FormatGatewayLRPIfAddr(want.Join),
		AnnotationL3Gateway:        FormatL3Gateway(want.Gateway),
	}}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	got, err := Node(n)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, comparers); d != "" {
		t.Error(d)
	}
}

func TestDocumentedForms(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{FormatNodeSubnets(prefixes("10.244.1.0/24", "fd00:10:244:2::/64")),
			`{"default":["10.244.1.0/24","fd00:10:244:2::/64"]}`},
		{FormatL3Gateway(topology.Gateway{Mode: "local", InterfaceID: "breth0_N", MAC: "02:42:ac:12:00:03",
			Addrs: prefixes("172.18.0.3/16"), NextHops: addrs("172.18.0.1"), NodePort: true}),
			`{"default":{"mode":"local","interface-id":"breth0_N","mac-address":"02:42:ac:12:00:03",` +
				`"ip-addresses":["172.18.0.3/16"],"next-hops":["172.18.0.1"],"node-port-enable":"true","vlan-id":"0"}}`},
		{FormatL3Gateway(topology.Gateway{Mode: "local", InterfaceID: "breth0_N", MAC: "02:42:ac:12:00:03", Addrs: prefixes("172.18.0.3/16"),
			External: topology.ExternalAttachment{InterfaceID: "breth1_N", MAC: "02:42:c0:a8:32:03", Addrs: prefixes("192.168.50.3/24")}}),
			`{"default":{"mode":"local","interface-id":"breth0_N","mac-address":"02:42:ac:12:00:03",` +
				`"ip-addresses":["172.18.0.3/16"],"node-port-enable":"false","vlan-id":"0",` +
				`"exgw-interface-id":"breth1_N","exgw-mac-address":"02:42:c0:a8:32:03","exgw-ip-addresses":["192.168.50.3/24"]}}`},
		{FormatPrimaryIfAddr(prefixes("172.18.0.3/16", "fc00::3/64")), `{"ipv4":"172.18.0.3/16","ipv6":"fc00::3/64"}`},
		{FormatEgressIPAddresses(addrs("10.10.10.5", "fd10::5")), `["10.10.10.5","fd10::5"]`},
		{FormatPodNetwork(topology.PodNetwork{MAC: "0a:58:0a:f4:01:03", Addrs: prefixes("10.244.1.3/24"), Gateways: addrs("10.244.1.1")}),
			`{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.1"],` +
				`"ip_address":"10.244.1.3/24","gateway_ip":"10.244.1.1"}}`},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

func TestBrokenAnnotationIsNamed(t *testing.T) {
	for name, value := range map[string]string{
		AnnotationNodeSubnets:   `{"default":["10.244.1.0"]}`,
		AnnotationL3Gateway:     `{"default":{"mode":"remote"}}`,
		AnnotationHostAddresses: `no json`,
		AnnotationPrimaryIfAddr: `{"ipv4":"x"}`,
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{name: value, AnnotationChassisID: "c"}}}
		got, err := Node(n)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "n1") {
			t.Errorf("%s=%s: error %v does not name annotation and node", name, value, err)
		}
		if got.Chassis != "c" {
			t.Errorf("%s=%s: a broken annotation lost the others", name, value)
		}
	}
}

func TestEgressIPAddresses(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if got, err := EgressIPAddresses(n); err != nil || len(got) != 0 {
		t.Errorf("a node without: %v, %v", got, err)
	}
	n.Annotations = map[string]string{AnnotationEgressIPAddresses: FormatEgressIPAddresses(addrs("10.10.10.5", "fd10::5"))}
	if got, err := EgressIPAddresses(n); err != nil || !slices.Equal(got, addrs("10.10.10.5", "fd10::5")) {
		t.Errorf("read back as %v, %v", got, err)
	}
	n.Annotations[AnnotationEgressIPAddresses] = `["10.10.10"]`
	if _, err := EgressIPAddresses(n); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Errorf("error %v does not name the node", err)
	}
}

func TestMetadataPatchSendsOnlyDifferences(t *testing.T) {
	have := metav1.ObjectMeta{UID: "u", Annotations: map[string]string{"same": "1", "changed": "1", "gone": "1"}}
	for _, c := range []struct {
		name string
		m    Metadata
		want string
	}{
		{"nothing differs", Metadata{Annotations: map[string]*string{"same": Value("1"), "absent": nil}}, ""},
		{"change, add, delete", Metadata{Annotations: map[string]*string{"same": Value("1"), "changed": Value("2"), "new": Value(""), "gone": nil}},
			`{"metadata":{"annotations":{"changed":"2","gone":null,"new":""},"uid":"u"}}`},
	} {
		got, err := c.m.patch(have)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzNode(f *testing.F) {
	f.Add(`{"default":["10.244.1.0/24"]}`)
	f.Add(`{"default":{"mode":"local","vlan-id":"4096"}}`)
	f.Fuzz(func(t *testing.T, value string) {
		for _, name := range []string{AnnotationNodeSubnets, AnnotationL3Gateway, AnnotationHostAddresses, AnnotationPrimaryIfAddr} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{name: value}}}
			node, err := Node(n)
			if err == nil && name == AnnotationNodeSubnets {
				again, err := parseNodeSubnets(FormatNodeSubnets(node.Subnets))
				if err != nil || !cmp.Equal(again, node.Subnets, comparers) && len(node.Subnets) > 0 {
					t.Errorf("%q does not round-trip: %v %v", value, again, err)
				}
			}
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationPodNetworks: value}}}
		_, _, _ = PodNetwork(p)
	})
}
