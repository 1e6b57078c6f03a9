package node

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestRecordOfEarlierProcess: an address that an earlier process left stays in the record until it has been removed from
// the host, whatever else is recorded and removed meanwhile.
func TestRecordOfEarlierProcess(t *testing.T) {
	left, next, wanted := netip.MustParseAddr("10.10.10.5"), netip.MustParseAddr("fd10::6"), netip.MustParseAddr("10.10.10.7")
	client := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: self, Annotations: map[string]string{
		kube.AnnotationEgressIPAddresses: kube.FormatEgressIPAddresses([]netip.Addr{left, wanted})}}})
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	nodes.Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	r := NewRecord(self, client, nodes)
	has := func(when string, want ...netip.Addr) {
		t.Helper()
		n, err := client.CoreV1().Nodes().Get(t.Context(), self, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := kube.EgressIPAddresses(n)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: recorded are %v, want %v (%v)", when, got, want, err)
		}
	}
	set := func(key string, addrs ...netip.Addr) {
		t.Helper()
		all := map[netip.Addr]bool{}
		for _, a := range addrs {
			all[a] = true
		}
		if err := r.Set(t.Context(), key, all, false); err != nil {
			t.Fatal(err)
		}
	}
	set("next", next)
	has("another address", left, wanted, next)
	set("wanted", wanted)
	set("wanted")
	has("one that is wanted for a while", left, next)
	if err := r.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	has("removed from the host", next)
}
