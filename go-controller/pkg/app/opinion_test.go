package app

import (
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestOpinionOfTheHosts: the hosts of other nodes are probed at their addresses in the hosts'
// network, and Kubernetes has given up on nodes whose status is unknown.
func TestOpinionOfTheHosts(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, ready := range map[string]corev1.ConditionStatus{
		"own": corev1.ConditionTrue, "n1": corev1.ConditionTrue, "n2": corev1.ConditionUnknown, "n3": corev1.ConditionFalse,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: ready},
		}
		if name != "n3" {
			node.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "172.18.0.2"},
				{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "fc00::2"},
			}
		}
		if err := indexer.Add(node); err != nil {
			t.Fatal(err)
		}
	}
	o := opinion(corelisters.NewNodeLister(indexer), "own")
	at := []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fc00::2")}
	if got, want := o.Hosts(), map[string][]netip.Addr{"n1": at, "n2": at}; !reflect.DeepEqual(got, want) {
		t.Errorf("hosts are %v, want %v", got, want)
	}
	for name, want := range map[string]bool{"n1": false, "n2": true, "n3": false, "nobody": false} {
		if got := o.Lost(name); got != want {
			t.Errorf("%s: lost is %t", name, got)
		}
	}
}
