package app

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestNodeNeighbor: only addresses on the primary network of the asking node count, not those on a secondary
// network that both nodes are attached to.
func TestNodeNeighbor(t *testing.T) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, annotations := range map[string]map[string]string{
		"self": {kube.AnnotationPrimaryIfAddr: `{"ipv4":"172.18.0.3/16","ipv6":"fc00::3/64"}`,
			kube.AnnotationHostAddresses: `["10.10.10.3/24","172.18.0.3/16","fc00::3/64"]`},
		"near": {kube.AnnotationHostAddresses: `["10.10.10.4/24","172.18.0.4/16","fc00::4/64"]`},
		"more": {kube.AnnotationPrimaryIfAddr: `{"ipv4":"172.18.0.9/16"}`, kube.AnnotationHostAddresses: `["172.18.0.7/16","172.18.0.9/16"]`},
		"far":  {kube.AnnotationHostAddresses: `["10.10.10.5/24","172.19.0.5/16","fc00::5/64"]`},
		"new":  nil,
	} {
		if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}); err != nil {
			t.Fatal(err)
		}
	}
	for other, want := range map[string][]netip.Addr{
		"near": {netip.MustParseAddr("172.18.0.4"), netip.MustParseAddr("fc00::4")},
		"more": {netip.MustParseAddr("172.18.0.9")},
		"far":  {netip.MustParseAddr("fc00::5")},
		"new":  nil,
		"gone": nil,
	} {
		if got := nodeNeighbor(corelisters.NewNodeLister(nodes), "self", other); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", other, got, want)
		}
	}
}
