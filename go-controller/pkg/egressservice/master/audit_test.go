package master

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/auditlog"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// startAudited is start with a recorder, which stops with the master.
func (w *world) startAudited(l *auditlog.Log) {
	recorder, end := l.Start(w.t)
	w.audit = recorder
	w.start()
	ctx, cancel := context.WithCancel(context.Background())
	go recorder.CompleteAfter(ctx, w.master.Synced())
	stop := w.stop
	w.stop = sync.OnceFunc(func() {
		stop()
		cancel()
		end()
	})
	w.t.Cleanup(w.stop)
}

// now returns the current state in the log.
func (w *world) now() []string {
	var all []string
	list, _ := w.egress.EgressServiceV1().EgressServices("").List(context.Background(), metav1.ListOptions{})
	for _, eg := range list.Items {
		key := eg.Namespace + "/" + eg.Name
		s, _, err := w.master.reader.Decode(&eg)
		if err != nil {
			w.t.Fatal(err)
		}
		switch eg.Status.Host {
		case "":
		case v1.HostAll:
			all = append(all, auditlog.Assignment(eg.Name, string(eg.UID), "", v1.HostAll))
		default:
			for _, a := range s.Ingress {
				all = append(all, auditlog.Assignment(eg.Name, string(eg.UID), a.String(), eg.Status.Host))
			}
		}
		for own, hop := range egressservice.SteeringOf(w.nb.Rows(egressservice.Owner(key))) {
			to, ok := topology.AddrOf(topology.FamilyOf(own), s.Ingress)
			if hop.IsValid() && ok {
				all = append(all, auditlog.Use(eg.Name, to.String(), "default/"+pod("default", own.String(), "").Name, own.String()))
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestAudit: the records of a host that moves, an address that changes, and pods that
// are created and deleted, with reasons; a restart adds no records.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &auditlog.Log{}, newWorld(t)
		w.startAudited(l)
		for _, o := range []runtime.Object{egress("demo-svc"), service("demo-svc", "5.5.5.5"), slice("demo-svc", "10.244.0.5", "10.244.2.7")} {
			w.create(o)
		}
		fakeapi.Settle()
		status, _, _ := w.hosts(demo)
		from := status
		w.update(slice("demo-svc", "10.244.0.5"))
		fakeapi.Settle()
		w.stop()
		w.startAudited(l)
		fakeapi.Settle()
		w.silent = func(string, string) bool { return true } // until the host knows the new address, pods use the previous one
		w.update(service("demo-svc", "6.6.6.6"))
		fakeapi.Settle()
		if open := auditlog.Open(l.Timeline(t)); !slices.Contains(open, auditlog.Use("demo-svc", "5.5.5.5", "default/pod-10-244-0-5", "10.244.0.5")) {
			t.Errorf("before the host has the new address: %q", open)
		}
		w.stop()
		w.silent = nil
		w.startAudited(l)
		fakeapi.Settle()
		w.health.Set(from, place.Dead)
		fakeapi.Settle()
		to, _, _ := w.hosts(demo)
		w.remove(pod("default", "10.244.0.5", ""))
		fakeapi.Settle() // pods and slices arrive by separate watches
		w.update(slice("demo-svc"))
		fakeapi.Settle()
		w.remove(egress("demo-svc"))
		fakeapi.Settle()
		got, want := auditlog.Text(l.Timeline(t)), []string{
			"demo-svc 5.5.5.5 node " + from + ": HostAssigned until AddressRemoved",
			"demo-svc 6.6.6.6 node " + from + ": HostAssigned until HostChanged",
			"demo-svc 6.6.6.6 node " + to + ": HostChanged until ObjectDeleted",
			"demo-svc 5.5.5.5 pod default/pod-10-244-0-5 10.244.0.5 on ovn-worker: Programmed until observed",
			"demo-svc 6.6.6.6 pod default/pod-10-244-0-5 10.244.0.5 on ovn-worker: observed until PodDeleted",
			"demo-svc 5.5.5.5 pod default/pod-10-244-2-7 10.244.2.7 on ovn-worker: Programmed until NotSelected",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), l)
		}
		w.stop()
	})
}

// TestAuditRandomOrders: whatever happens, the audit log ends with the current state, even
// if masters were killed before they had written their records.
func TestAuditRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			l, h := &auditlog.Log{}, &history{world: newWorld(t), rng: rng}
			h.faults = fakeapi.NewFaults(rng)
			h.faults.Inject(h.kube)
			h.faults.Inject(h.egress)
			broken := rand.New(rand.NewPCG(rng.Uint64(), 0))
			h.startAudited(l)
			share := []float64{0, 0.1, 0.3}[rng.IntN(3)]
			h.faults.Set(share)
			h.nb.FailWith(func(nb.Owner) error {
				if broken.Float64() < share {
					return errors.New("no leader")
				}
				return nil
			})
			for range 60 {
				h.faults.Do(h.event)
				if h.some(0.1) {
					h.events = append(h.events, "restart")
					<-time.After(time.Second)
					h.stop()
					h.startAudited(l)
				}
				if h.some(0.05) {
					h.events = append(h.events, "the log ends here until the restart")
					l.Kill()
				}
				if h.some(0.3) {
					synctest.Wait()
				}
			}
			h.faults.Set(0)
			h.nb.FailWith(nil)
			h.stop()
			h.startAudited(l)
			for range 3 {
				fakeapi.Settle()
			}
			if got, want := auditlog.Open(l.Timeline(t)), h.now(); !slices.Equal(got, want) {
				t.Errorf("%s", fmt.Sprintf("the log ends with\n%s\nthere is\n%s\nhistory:\n%s\nlog:\n%s",
					strings.Join(got, "\n"), strings.Join(want, "\n"), strings.Join(h.events, "\n"), l))
			}
			h.stop()
		})
	})
}
