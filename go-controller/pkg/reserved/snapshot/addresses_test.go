package snapshot

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

func node(name, primary string, status ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if primary != "" {
		n.Annotations[kube.AnnotationPrimaryIfAddr] = kube.FormatPrimaryIfAddr([]netip.Prefix{netip.MustParsePrefix(primary)})
	}
	for _, a := range status {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func endpoints(key [2]string, addrs ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: key[0], Name: key[1]},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addrs}}}
}

var kubernetes = [2]string{"default", "kubernetes"}

// TestHosts: the addresses that nodes have published, those that Kubernetes knows, and those of API servers that
// are not nodes; no gateways, and no endpoints of other Services.
func TestHosts(t *testing.T) {
	core := informers.NewSharedInformerFactory(nil, 0)
	in := Informers{Nodes: core.Core().V1().Nodes(), EndpointSlices: core.Discovery().V1().EndpointSlices()}
	a, err := New(reserved.Ranges{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*corev1.Node{node("a", "172.18.0.2/16", "172.18.0.2"), node("b", "", "172.18.0.3")} {
		if err := in.Nodes.Informer().GetIndexer().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*discoveryv1.EndpointSlice{endpoints(kubernetes, "203.0.113.10", "172.18.0.2"), endpoints([2]string{"shop", "kubernetes"}, "192.0.2.1")} {
		if err := in.EndpointSlices.Informer().GetIndexer().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if a.HostsSynced() {
		t.Error("all hosts are known before they were listed")
	}
	got := a.Hosts()
	slices.SortFunc(got, netip.Addr.Compare)
	want := []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("172.18.0.3"), netip.MustParseAddr("203.0.113.10")}
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
	if one, none := a.HostsOf("b"), a.HostsOf("c"); !slices.Equal(one, want[1:2]) || len(none) > 0 {
		t.Errorf("node b has %v, and a node that is not known %v", one, none)
	}
	for _, p := range []string{"10.244.0.0/16", "203.0.113.10/32", "172.18.0.3/32"} {
		if !slices.Contains(a.Inside(), netip.MustParsePrefix(p)) {
			t.Errorf("%s is not inside: %v", p, a.Inside())
		}
	}
}

// TestHostKeys: a changed address triggers a check; heartbeats and endpoints of other Services do not.
func TestHostKeys(t *testing.T) {
	a, moved := node("a", "172.18.0.2/16"), node("a", "172.18.0.9/16")
	beat := a.DeepCopy()
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	api, other := endpoints(kubernetes, "203.0.113.10"), endpoints([2]string{"shop", "checkout"}, "10.244.1.3")
	for name, c := range map[string]struct {
		old, new any
		want     int
	}{
		"new": {nil, a, 1}, "gone": {a, nil, 1}, "moved": {a, moved, 1}, "heartbeat": {a, beat, 0},
		"API server": {nil, api, 1}, "API server moved": {api, endpoints(kubernetes, "203.0.113.11"), 1}, "API server as before": {api, api.DeepCopy(), 0},
		"another Service": {nil, other, 0},
	} {
		if got := len(hostKeys(func() []string { return []string{"key"} }, c.old, c.new)); got != c.want {
			t.Errorf("%s: %d keys, want %d", name, got, c.want)
		}
	}
}

// TestConfiguredAPIServer: the address at which the cluster is configured to reach its API servers is theirs, like those in
// their EndpointSlice. A proxy on the node itself and the cluster's own Service are not hosts.
func TestConfiguredAPIServer(t *testing.T) {
	core := informers.NewSharedInformerFactory(nil, 0)
	at := func(texts ...string) (all []netip.AddrPort) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddrPort(text))
		}
		return all
	}
	ranges := reserved.Ranges{Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	servers := NewAPIServers("", nil, ranges)
	a, err := New(ranges, Informers{Nodes: core.Core().V1().Nodes(), EndpointSlices: core.Discovery().V1().EndpointSlices(), APIServers: servers})
	if err != nil {
		t.Fatal(err)
	}
	configured := APIServerSlice(at("192.0.2.10:6443", "[2001:db8::10]:6443", "127.0.0.1:6443", "[::1]:6443", "10.96.0.1:6443"), ranges)
	if err := servers.GetIndexer().Add(configured); err != nil {
		t.Fatal(err)
	}
	if err := core.Discovery().V1().EndpointSlices().Informer().GetIndexer().Add(endpoints(kubernetes, "172.18.0.2")); err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}
	if got := a.APIServers(); !slices.Equal(got, want) {
		t.Errorf("API servers %v, want %v", got, want)
	}
	if got := a.Hosts(); !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
	for _, addr := range want[1:] {
		owners := a.Owners(addr)
		if len(owners) != 1 || owners[0].Refuse().Reason != reserved.APIServerAddress || !slices.Equal(owners[0].Ports, []uint16{6443}) {
			t.Errorf("owners of %s: %+v", addr, owners)
		}
	}
	for _, addr := range []string{"127.0.0.1", "10.96.0.1", "192.0.2.11"} {
		if owners := a.Owners(netip.MustParseAddr(addr)); len(owners) != 0 {
			t.Errorf("owners of %s: %+v", addr, owners)
		}
	}
}

// TestExtraAddress: a single address that a node has in addition to its own, as load balancer providers add, is told apart from
// the node's own, by whatever else the node is known.
func TestExtraAddress(t *testing.T) {
	n := node("a", "172.18.0.2/16", "172.18.0.3")
	n.Annotations[kube.AnnotationHostAddresses] = kube.FormatHostAddresses([]netip.Prefix{
		netip.MustParsePrefix("172.18.0.2/32"), netip.MustParsePrefix("172.18.0.3/32"), netip.MustParsePrefix("172.18.0.4/16"),
		netip.MustParsePrefix("172.18.0.5/32"), netip.MustParsePrefix("172.18.0.6/32"), netip.MustParsePrefix("172.18.0.6/24"),
		netip.MustParsePrefix("fc00::5/128"), netip.MustParsePrefix("fc00::6/64"),
	})
	for text, want := range map[string]bool{"172.18.0.2": false, "172.18.0.3": false, "172.18.0.4": false, "172.18.0.5": true,
		"172.18.0.6": false, "fc00::5": true, "fc00::6": false} {
		owners := ownersIn(n)[netip.MustParseAddr(text)]
		if len(owners) != 1 || owners[0].Kind != reserved.Node || owners[0].Extra != want {
			t.Errorf("%s: %+v, want extra %v", text, owners, want)
		}
	}
	own := n.DeepCopy()
	own.Status.Addresses = append(own.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "172.18.0.5"})
	if got := changed(n, own); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("172.18.0.5")}) {
		t.Errorf("an address that became the node's own: changed are %v", got)
	}
}
