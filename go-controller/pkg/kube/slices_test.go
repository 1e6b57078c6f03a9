package kube_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestServicesAt: Services are found by the addresses of their endpoints, in one namespace or in
// all, with an index that has one entry for each address.
func TestServicesAt(t *testing.T) {
	inf := informers.NewSharedInformerFactory(fakeapi.NewClientset(), 0).Discovery().V1().EndpointSlices().Informer()
	if err := kube.IndexSliceAddresses(inf); err != nil {
		t.Fatal(err)
	}
	add := func(namespace, service string, addrs ...string) {
		err := inf.GetIndexer().Add(&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: addrs}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add("red", "a", "10.244.0.5", "fd00:10:244::5", "nonsense")
	add("red", "b", "10.244.0.6")
	add("blue", "c", "::ffff:10.244.0.5")
	for what, want := range map[string][]string{
		"red 10.244.0.5": {"red/a"}, "blue 10.244.0.5": {"blue/c"}, " 10.244.0.5": {"blue/c", "red/a"},
		"red fd00:10:244::5": {"red/a"}, "green 10.244.0.5": nil, " 10.244.0.7": nil,
	} {
		var namespace, addr string
		if _, err := fmt.Sscanf(what, "%s %s", &namespace, &addr); err != nil {
			namespace, addr = "", what[1:]
		}
		got := kube.ServicesAt(inf.GetIndexer(), namespace, netip.MustParseAddr(addr))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", what, got, want)
		}
	}
	if entries := inf.GetIndexer().ListIndexFuncValues("address"); len(entries) != 3 {
		t.Errorf("the index has %v", entries)
	}
}
