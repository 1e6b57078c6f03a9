package kube_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzObjects decodes nodes, pods and EndpointSlices with arbitrary content: with all decoders, and
// the indexes of the informers, in which a panic is caught.
func FuzzObjects(f *testing.F) {
	files, err := filepath.Glob("testdata/objects/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no objects: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	core := informers.NewSharedInformerFactory(fakeapi.NewClientset(), 0)
	pods, slicesInf := core.Core().V1().Pods().Informer(), core.Discovery().V1().EndpointSlices().Informer()
	for _, err := range []error{kube.IndexPods(pods), kube.IndexPodLabels(pods), kube.IndexSlices(slicesInf), kube.IndexSliceAddresses(slicesInf)} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := panics.Counts()["index"]
		node, pod, slice := &corev1.Node{}, &corev1.Pod{}, &discoveryv1.EndpointSlice{}
		if json.Unmarshal(text, node) == nil {
			readNode(t, node)
		}
		if json.Unmarshal(text, pod) == nil {
			readPod(t, pods.GetIndexer(), pod)
		}
		if json.Unmarshal(text, slice) == nil {
			readSlice(t, slicesInf.GetIndexer(), slice)
		}
		if panics.Counts()["index"] != before {
			t.Error("an index panicked")
		}
	})
}

func readNode(t *testing.T, n *corev1.Node) {
	t.Helper()
	decoded, _ := kube.Node(n)
	decoded.ManagementAddrs()
	decoded.HasGateway()
	for _, p := range decoded.Subnets {
		topology.MACOf(topology.RouterAddr(p))
	}
	kube.KnownNodes([]*corev1.Node{n})
	_, _ = kube.EgressIPAddresses(n)
	if !kube.SameNodeAddresses(n, n) {
		t.Error("a node differs from itself")
	}
}

func readPod(t *testing.T, index cache.Indexer, p *corev1.Pod) {
	t.Helper()
	for _, a := range slices.Concat(kube.PodAddresses(p), kube.HostAddrs(p)) {
		if !a.IsValid() || a.Is4In6() {
			t.Errorf("address %v", a)
		}
	}
	_, _, _ = kube.PodNetwork(p)
	_, _ = kube.NetworkStatus(p)
	kube.RoutingNamespaces(p)
	kube.BFDEnabled(p.Annotations)
	kube.ReadyNow(p, func(string) bool { return true })
	if err := index.Add(p); err != nil {
		return
	}
	defer func() { _ = index.Delete(p) }()
	for _, a := range kube.PodAddresses(p) {
		if kube.PodAt(index, p.Namespace, a) == nil {
			t.Errorf("no pod at %s", a)
		}
	}
	kube.PodsSelected(index, p.Namespace, p.Labels)
}

func readSlice(t *testing.T, index cache.Indexer, s *discoveryv1.EndpointSlice) {
	t.Helper()
	if err := index.Add(s); err != nil {
		return
	}
	defer func() { _ = index.Delete(s) }()
	key := kube.SliceService(s)
	if key == "" {
		return
	}
	if found, err := kube.Slices(index, key); err != nil || len(found) != 1 {
		t.Errorf("%d slices of %s, %v", len(found), key, err)
	}
}
