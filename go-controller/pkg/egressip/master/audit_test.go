package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/auditlog"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// startAudited is start with a recorder, which stops with the master.
func (w *world) startAudited(l *auditlog.Log) {
	recorder, end := l.Start(w.t)
	w.audit = recorder
	w.start()
	ctx, cancel := context.WithCancel(context.Background())
	go recorder.CompleteAfter(ctx, w.master.Synced()...)
	stop := w.stop
	w.stop = sync.OnceFunc(func() {
		stop()
		cancel()
		end()
	})
	w.t.Cleanup(w.stop)
}

// now returns the current state in the timeline.
func (w *world) now() []string {
	var all []string
	list, _ := w.egress.EgressIPV1().EgressIPs().List(context.Background(), metav1.ListOptions{})
	for _, e := range list.Items {
		for _, item := range e.Status.Items {
			all = append(all, auditlog.Assignment(e.Name, string(e.UID), item.EgressIP, cmp.Or(item.From, item.Node)))
		}
	}
	for _, o := range w.nb.Owners(egressip.Feature) {
		for own, p := range w.stateOf(o.Object).Policies {
			egress := map[netip.Addr]bool{}
			for _, hop := range p.Hops {
				egress[p.Egress[hop]] = true
			}
			for a := range egress {
				all = append(all, auditlog.Use(p.EgressIP, a.String(), o.Object, own.String()))
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestAudit: the records of an address that moves, and of pods that are created and deleted, with
// reasons; a restart adds no records.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &auditlog.Log{}, newWorld(t)
		w.startAudited(l)
		w.create(egress("prod", []v1.Address{"172.18.0.50"}, func(e *v1.EgressIP) { e.UID = "uid-prod" }))
		fakeapi.Settle()
		h := &history{world: w, rng: rand.New(rand.NewPCG(1, 1)), there: map[string]bool{}}
		h.attachNew("prod/web-0", "ovn-worker", "web", "10.244.1.5")
		fakeapi.Settle()
		from := w.holder("prod", "172.18.0.50")
		w.health.Set(from, place.Dead)
		fakeapi.Settle()
		to := w.holder("prod", "172.18.0.50")
		restart := func() {
			w.stop()
			w.startAudited(l)
			fakeapi.Settle()
		}
		restart()
		w.changePod("prod/web-0", func(p *corev1.Pod) { p.Labels["app"] = "db" })
		fakeapi.Settle()
		w.changePod("prod/web-0", func(p *corev1.Pod) { p.Labels["app"] = "web" })
		fakeapi.Settle()
		for _, node := range []string{"ovn-control-plane", "ovn-worker", "ovn-worker2"} {
			w.health.Set(node, place.Dead)
		}
		fakeapi.Settle()
		w.health.Set("ovn-worker", place.Alive)
		fakeapi.Settle()
		w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web-0"}})
		h.detach("prod/web-0")
		fakeapi.Settle()
		w.remove(egress("prod", nil))
		fakeapi.Settle()
		if open := auditlog.Open(l.Timeline(t)); len(open) > 0 { // a restart would detect it
			t.Errorf("at the end there is %q", open)
		}
		restart()
		got, want := auditlog.Text(l.Timeline(t)), []string{
			"prod 172.18.0.50 node " + from + ": Assigned until Moved",
			"prod 172.18.0.50 node " + to + ": Moved until NoNode",
			"prod 172.18.0.50 node ovn-worker: Assigned until ObjectDeleted",
			"prod 172.18.0.50 pod prod/web-0 10.244.1.5 on ovn-worker: Programmed until NotSelected",
			"prod 172.18.0.50 pod prod/web-0 10.244.1.5 on ovn-worker: Programmed until NotAssigned",
			"prod 172.18.0.50 pod prod/web-0 10.244.1.5 on ovn-worker: Programmed until PodDeleted",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), l)
		}
		w.stop()
	})
}

// TestAuditRefused: writes that the API server or the database rejects are not recorded, and writes
// accepted later only once.
func TestAuditRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &auditlog.Log{}, newWorld(t)
		var refuse atomic.Bool
		refuse.Store(true)
		w.egress.PrependReactor("patch", "egressips", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, errors.New("no leader")
		})
		w.startAudited(l)
		w.create(egress("prod", []v1.Address{"172.18.0.50"}))
		fakeapi.Settle()
		if got := auditlog.Text(l.Timeline(t)); len(got) > 0 {
			t.Errorf("recorded although it was refused: %q", got)
		}
		refuse.Store(false)
		w.nb.FailWith(func(o nb.Owner) error {
			if o.Feature == egressip.Feature {
				return errors.New("no leader")
			}
			return nil
		})
		w.pod("prod/web-0", "ovn-worker", "10.244.1.5")
		fakeapi.Settle()
		node := w.holder("prod", "172.18.0.50")
		assigned := "prod 172.18.0.50 node " + node + ": Assigned"
		if got := auditlog.Text(l.Timeline(t)); !slices.Equal(got, []string{assigned}) {
			t.Errorf("before the database takes the rows: %q", got)
		}
		w.nb.FailWith(nil)
		fakeapi.Settle()
		if got, want := auditlog.Text(l.Timeline(t)), []string{assigned,
			"prod 172.18.0.50 pod prod/web-0 10.244.1.5 on ovn-worker: Programmed"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		w.stop()
	})
}

// truth follows the statuses: the successive nodes of each address of each EgressIP.
type truth struct {
	mu  sync.Mutex
	all map[string][]string
	now map[string]string
}

func follow(t *testing.T, w *world) *truth {
	tr := &truth{all: map[string][]string{}, now: map[string]string{}}
	events, err := w.egress.Tracker().Watch(v1.SchemeGroupVersion.WithResource("egressips"), "")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			if e, ok := event.Object.(*v1.EgressIP); ok {
				tr.add(e, event.Type == watch.Deleted)
			}
		}
	}()
	t.Cleanup(func() { events.Stop(); <-ended })
	return tr
}

func (tr *truth) add(e *v1.EgressIP, deleted bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	is := map[string]string{}
	for _, item := range e.Status.Items {
		if !deleted {
			is[e.Name+" "+string(e.UID)+" "+item.EgressIP] = cmp.Or(item.From, item.Node)
		}
	}
	for k := range tr.now {
		if strings.HasPrefix(k, e.Name+" ") && is[k] == "" {
			delete(tr.now, k)
			tr.all[k] = append(tr.all[k], "")
		}
	}
	for k, node := range is {
		if tr.now[k] != node {
			tr.now[k] = node
			tr.all[k] = append(tr.all[k], node)
		}
	}
}

// TestAuditRandomOrders: whatever happens, the audit log ends with the current state, even
// if masters were killed before they had written their records. If none was killed,
// and the API server answers, the log contains every assignment.
func TestAuditRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			l := &auditlog.Log{}
			h := &history{world: newWorld(t), rng: rng, there: map[string]bool{}}
			tr := follow(t, h.world)
			h.faults = fakeapi.NewFaults(rng)
			h.faults.Inject(h.kube)
			h.faults.Inject(h.egress)
			kills := rng.IntN(2) == 0
			h.startAudited(l)
			share := []float64{0, 0.1, 0.3}[rng.IntN(3)]
			h.faults.Set(share)
			for range 60 {
				h.event()
				if h.some(0.1) {
					h.say("restart")
					<-time.After(time.Second)
					h.stop()
					h.startAudited(l)
				}
				if kills && h.some(0.05) {
					h.say("the log ends here until the restart")
					l.Kill()
				}
				if h.some(0.3) {
					synctest.Wait()
				}
			}
			h.faults.Set(0)
			if kills {
				h.stop()
				h.startAudited(l)
			}
			for range 3 {
				fakeapi.Settle()
			}
			tl := l.Timeline(t)
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s\nlog:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"), l)
			}
			if got, want := auditlog.Open(tl), h.now(); !slices.Equal(got, want) {
				fail("the log ends with\n%s\nthere is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			tr.mu.Lock()
			defer tr.mu.Unlock()
			if got := auditlog.Nodes(tl); !kills && share == 0 && !maps.EqualFunc(got, tr.all, slices.Equal) {
				for k := range tr.all {
					if !slices.Equal(got[k], tr.all[k]) {
						fail("%s: recorded %q, true %q", k, got[k], tr.all[k])
					}
				}
			}
			h.stop()
		})
	})
}
