package master

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// guard makes the informer of a factory wait at a gate.
func guard(g *fakeapi.Gate, factory externalversions.SharedInformerFactory) {
	if g == nil {
		return
	}
	factory.InformerFor(&v1.EgressService{}, func(cs versioned.Interface, resync time.Duration) cache.SharedIndexInformer {
		services := cs.EgressServiceV1().EgressServices(metav1.NamespaceAll)
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return services.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				all, err := services.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return g.Filter(all), nil
			},
		}, &v1.EgressService{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
}

// revoked is a world in which only ovn-worker can be the host, and serves, before the events of EgressServices are
// held back.
func revoked(t *testing.T) (*world, *silence, *fakeapi.Gate) {
	t.Helper()
	w, s, g := newWorld(t, demoObjects()...), &silence{}, &fakeapi.Gate{}
	w.silent, w.gate = s.of, g
	s.Store("")
	w.health.Set("ovn-worker2", place.Dead)
	w.start()
	w.served(demo, "ovn-worker")
	w.eventually("the condition", func() bool { return w.programmed(demo) })
	fakeapi.Settle()
	g.Hold(t)
	return w, s, g
}

// statusNow returns the status in the API server.
func (w *world) statusNow() v1.EgressServiceStatus {
	w.t.Helper()
	eg, err := w.egress.EgressServiceV1().EgressServices("default").Get(context.Background(), "demo-svc", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return eg.Status
}

// unserved checks that ovn-worker is the host and has not acknowledged, and that nothing says otherwise.
func (w *world) unserved(when string) {
	w.t.Helper()
	fakeapi.Settle()
	if s := w.statusNow(); s.Host != "ovn-worker" || s.Programmed != nil || w.programmed(demo) {
		w.t.Errorf("%s: the status is %+v", when, s)
	}
	if rows := w.nb.DumpFeature(egressservice.Feature); rows != "" {
		w.t.Errorf("%s: traffic is led to a host that has acknowledged nothing:\n%s", when, rows)
	}
}

// TestRevokedDoesNotCount: an acknowledgement that was revoked when the EgressService had no host does not count when
// the same host is assigned again, even if the master's own write is not visible yet.
func TestRevokedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, g := revoked(t)
		s.Store("ovn-worker")
		w.update(service("demo-svc"))
		w.eventually("the end", func() bool { h := w.statusNow(); return h.Host == "" && h.Programmed == nil })
		w.update(service("demo-svc", demoIngress...))
		w.unserved("before the master sees its writes")
		g.Open()
		w.unserved("afterwards")
		s.Store("")
		w.update(slice("demo-svc", append(demoPods, "10.244.0.3")...))
		w.served(demo, "ovn-worker")
		w.stop()
	})
}

// TestRevokedDoesNotCountLater: the same applies when the master sees a state that is newer than the one it knew,
// but older than its own write.
func TestRevokedDoesNotCountLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, g := revoked(t)
		before := w.statusNow().Programmed.Digest
		w.update(slice("demo-svc", append(demoPods, "10.244.0.3")...))
		w.eventually("the next acknowledgement", func() bool { return w.statusNow().Programmed.Digest != before })
		synctest.Wait()
		s.Store("ovn-worker")
		w.update(service("demo-svc"))
		w.eventually("the end", func() bool { h := w.statusNow(); return h.Host == "" && h.Programmed == nil })
		w.update(service("demo-svc", demoIngress...))
		w.unserved("before the master sees anything")
		g.Pass()
		w.unserved("when the master sees the acknowledgement")
		g.Open()
		w.unserved("afterwards")
		w.stop()
	})
}

// TestAcknowledgementWithoutHost: an acknowledgement in a status without a host is revoked when a host is assigned,
// and does not count before.
func TestAcknowledgementWithoutHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, g := revoked(t)
		g.Open()
		w.stop()
		eg := egress("demo-svc")
		eg.Status.Programmed = w.statusNow().Programmed
		w.update(eg)
		w.nb = nbfake.New()
		w.nb.AnyParent = true
		w.db = w.nb
		s.Store("ovn-worker")
		w.forgetWrites()
		w.start()
		w.unserved("with an acknowledgement of an earlier time")
		for _, write := range w.writes() {
			if strings.Contains(write, `"is":"`+egressservice.ReasonProgrammed+`"`) {
				t.Errorf("wrote %s", write)
			}
		}
		w.stop()
	})
}
