package node

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// recordOf returns the record of a node on which an earlier process left addresses, and a function that checks the annotation.
func recordOf(t *testing.T, left ...netip.Addr) (*Record, func(when string, want ...netip.Addr)) {
	t.Helper()
	client := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: self, Annotations: map[string]string{
		kube.AnnotationEgressIPAddresses: kube.FormatEgressIPAddresses(left)}}})
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	nodes.Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return NewRecord(self, client, nodes), func(when string, want ...netip.Addr) {
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
}

func setRecord(t *testing.T, r *Record, key string, keep bool, addrs ...netip.Addr) {
	t.Helper()
	all := map[netip.Addr]bool{}
	for _, a := range addrs {
		all[a] = true
	}
	if err := r.Set(t.Context(), key, all, keep); err != nil {
		t.Fatal(err)
	}
}

// TestRecordOfEarlierProcess: an address that an earlier process left stays in the record until it has been removed from
// the host, whatever else is recorded and removed meanwhile.
func TestRecordOfEarlierProcess(t *testing.T) {
	left, next, wanted := netip.MustParseAddr("10.10.10.5"), netip.MustParseAddr("fd10::6"), netip.MustParseAddr("10.10.10.7")
	r, has := recordOf(t, left, wanted)
	set := func(key string, addrs ...netip.Addr) { setRecord(t, r, key, false, addrs...) }
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

// TestRecordWhileReleasing: while one EgressIP releases an address, which may still be on a link, the change of another one
// does not remove it from the record.
func TestRecordWhileReleasing(t *testing.T) {
	four, six, another := netip.MustParseAddr("10.10.10.5"), netip.MustParseAddr("fd10::5"), netip.MustParseAddr("10.10.10.7")
	r, has := recordOf(t)
	setRecord(t, r, "prod", true, four, six)
	setRecord(t, r, "prod", true) // nothing is on a link yet, or the other way round
	setRecord(t, r, "spare", true, another)
	setRecord(t, r, "spare", false, another)
	has("while it is released", four, another, six)
	setRecord(t, r, "prod", false)
	has("once it is off the host", another)
}

// TestReleasedAfterFailedStart: an address that an earlier process left on a link is off the link before this node
// reports it as released, also if this process had meant to keep it and failed.
func TestReleasedAfterFailedStart(t *testing.T) {
	for addr, link := range map[string]string{"10.10.10.5": "10.10.10.5/32", "fd10::5": "fd10::5/128"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, secondary(addr+" "+self))
			w.pod("red", "web", "10.244.1.3/24", "fd00:10:244:2::3/64")
			stop := w.start()
			w.saysEventually("prod", self+" "+addr)
			stop()
			var failed, reported atomic.Bool
			w.chains.Fail = func(contributor string) error {
				if contributor != egressip.Contributor("prod") || failed.Swap(true) {
					return nil
				}
				w.change("prod", func(e *v1.EgressIP) { give(e, addr+" "+other) })
				<-time.After(time.Minute) // in fake time: until the node knows
				return errors.New("not now")
			}
			w.api.PrependReactor("patch", "egressips", func(clienttesting.Action) (bool, runtime.Object, error) {
				reported.Store(true)
				if got := hostfake.DumpAddresses(w.addrs.Objects()); strings.Contains(got, link) {
					t.Errorf("reported as released with\n%s", got)
				}
				return false, nil, nil
			})
			w.start()
			w.saysEventually("prod")
			w.eventually("the record to be empty", func() bool { return w.recorded() == "" })
			if !failed.Load() || !reported.Load() {
				t.Errorf("failed: %v, reported: %v", failed.Load(), reported.Load())
			}
		})
	}
}

// TestWithdrawnBeforeSweep: an address that an earlier process left on a link, and that this one has prepared to take, is off the
// link before the record forgets it: nothing would recognize it afterwards.
func TestWithdrawnBeforeSweep(t *testing.T) {
	for _, addr := range []string{"10.10.10.5", "fd10::5"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, secondary(addr+" "+self))
			stop := w.start()
			w.saysEventually("prod", self+" "+addr)
			stop()
			w.change("prod", func(e *v1.EgressIP) {
				from(e, other)
				e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{addr}}}
			})
			w.start()
			w.eventually("it to be prepared", func() bool { return w.awaits(addr) })
			if got := w.recorded(); got != `["`+addr+`"]` {
				t.Errorf("recorded %s", got)
			}
			w.addrs.Fail = func(op string, a host.Address) error {
				if op == "delete" && w.recorded() == "" {
					t.Errorf("deletes %v, which is not on record", a)
				}
				return nil
			}
			w.change("prod", func(e *v1.EgressIP) { give(e, addr+" "+other) })
			w.saysEventually("prod", other+" "+addr)
			w.eventually("the record to be empty", func() bool { return w.recorded() == "" })
			if got := hostfake.DumpAddresses(w.addrs.Objects()); got != "" {
				t.Errorf("forgotten with\n%s", got)
			}
		})
	}
}
