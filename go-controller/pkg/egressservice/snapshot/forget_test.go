package snapshot

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// caches are the objects that a reader sees; a test changes them as an informer does.
type caches struct {
	*Reader
	egress, services cache.Indexer
}

// shared returns two EgressServices, the older "a" and the younger "b", that select the same pod.
func shared(t *testing.T) (caches, *v1.EgressService, *v1.EgressService) {
	t.Helper()
	core, own := informers.NewSharedInformerFactory(fakeapi.NewClientset(), 0), externalversions.NewSharedInformerFactory(egressfake.NewSimpleClientset(), 0)
	in := Informers{EgressServices: own.EgressService().V1().EgressServices(), Services: core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(), Pods: core.Core().V1().Pods()}
	r, err := NewReader(in, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, topology.GatewayLocal, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := caches{r, in.EgressServices.Informer().GetIndexer(), in.Services.Informer().GetIndexer()}
	add := func(to cache.Indexer, obj any) {
		if err := to.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	add(in.Pods.Informer().GetIndexer(), &corev1.Pod{ObjectMeta: meta("pod", nil), Spec: corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.244.0.5"}}}})
	var made []*v1.EgressService
	for i, name := range []string{"a", "b"} {
		svc := &corev1.Service{ObjectMeta: meta(name, nil), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("5.5.5.%d", i)}}
		s := sliceOf(name)
		s.Name = name
		eg := &v1.EgressService{ObjectMeta: meta(name, nil)}
		eg.UID, eg.CreationTimestamp = types.UID(name), metav1.NewTime(time.Unix(int64(i), 0))
		add(w.services, svc)
		add(in.EndpointSlices.Informer().GetIndexer(), s)
		add(w.egress, eg)
		made = append(made, eg)
	}
	return w, made[0], made[1]
}

// has checks whether an EgressService has the pod.
func (w caches) has(t *testing.T, eg *v1.EgressService, want bool) {
	t.Helper()
	s, _, err := w.Decode(eg)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(s.Endpoints) == 1; got != want {
		t.Errorf("%s has the pod: %t, want %t; conflicts %v", s.Key, got, want, s.Conflicts)
	}
}

// TestDeletedDoesNotComeBack: an EgressService that is decoded from a list that was read before its deletion claims no pods:
// nothing would remove its claim.
func TestDeletedDoesNotComeBack(t *testing.T) {
	w, a, b := shared(t)
	if err := w.Prime(); err != nil {
		t.Fatal(err)
	}
	w.has(t, b, false)
	list, err := w.Objects()
	if err != nil || len(list) != 2 {
		t.Fatalf("%d EgressServices, %v", len(list), err)
	}
	if err := w.egress.Delete(a); err != nil {
		t.Fatal(err)
	}
	if others := w.Forget("ns/a"); len(others) != 1 || others[0] != "ns/b" {
		t.Errorf("the deletion affects %v", others)
	}
	if _, err := w.decodeAll(list); err != nil {
		t.Fatal(err)
	}
	w.has(t, b, true)
}

// TestReplacedDoesNotComeBack: the same applies to a previous state of an EgressService, which selects no pods any more.
func TestReplacedDoesNotComeBack(t *testing.T) {
	w, a, b := shared(t)
	list, err := w.Objects()
	if err != nil {
		t.Fatal(err)
	}
	refused := a.DeepCopy()
	refused.Generation, refused.Spec.Network = 2, "/"
	if err := w.egress.Update(refused); err != nil {
		t.Fatal(err)
	}
	w.has(t, refused, false)
	if _, err := w.decodeAll(list); err != nil {
		t.Fatal(err)
	}
	w.has(t, b, true)
}

// slowServices makes the first reader of Service "a" pause after it has read it.
type slowServices struct {
	corelisters.ServiceLister
	pauses      *atomic.Bool // somebody has read it
	read, pause chan struct{}
}

func (s slowServices) Services(namespace string) corelisters.ServiceNamespaceLister {
	return slowNamespace{s.ServiceLister.Services(namespace), s}
}

type slowNamespace struct {
	corelisters.ServiceNamespaceLister
	slowServices
}

func (s slowNamespace) Get(name string) (*corev1.Service, error) {
	svc, err := s.ServiceNamespaceLister.Get(name)
	if name == "a" && s.pauses.CompareAndSwap(false, true) {
		close(s.read)
		<-s.pause
	}
	return svc, err
}

// TestLastReadCounts: if two workers decode an EgressService at the same time, what the one that read last has found
// counts, even if the other one is slower: the event of the change has been handled already.
func TestLastReadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := shared(t)
		slow := slowServices{w.Reader.services, &atomic.Bool{}, make(chan struct{}), make(chan struct{})}
		w.Reader.services = slow
		ended := make(chan struct{}, 2)
		decode := func() {
			if _, _, err := w.Decode(a); err != nil {
				t.Error(err)
			}
			ended <- struct{}{}
		}
		go decode()
		<-slow.read
		if err := w.services.Delete(&corev1.Service{ObjectMeta: meta("a", nil)}); err != nil {
			t.Fatal(err)
		}
		go decode() // by the event of the deletion
		synctest.Wait()
		close(slow.pause)
		for range 2 {
			<-ended
		}
		w.has(t, b, true)
	})
}
