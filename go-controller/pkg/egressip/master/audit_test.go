package master

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// auditLog is the audit log of a world, of all its masters.
type auditLog struct {
	mu     sync.Mutex
	lines  bytes.Buffer
	killed bool // what is written goes nowhere
}

func (l *auditLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		return len(p), nil
	}
	return l.lines.Write(p)
}

func (*auditLog) Sync() error   { return nil }
func (*auditLog) Full() bool    { return false }
func (*auditLog) Rotate() error { return nil }

func (l *auditLog) timeline(t testing.TB) *audit.Timeline {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	records, problems, err := audit.Read(bytes.NewReader(l.lines.Bytes()), "log")
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return audit.NewTimeline(records)
}

// startAudited is start with a recorder, which ends with the master.
func (w *world) startAudited(l *auditLog) {
	l.mu.Lock()
	l.killed = false
	l.mu.Unlock()
	w.audit = audit.NewRecorder("master", time.Now, l)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	recorder := w.audit
	go func() { ended <- recorder.Run(ctx) }()
	w.start()
	go recorder.CompleteAfter(ctx, w.master.Synced()...)
	stop := w.stop
	w.stop = sync.OnceFunc(func() {
		stop()
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
}

// now is what is there, as the timeline has it.
func (w *world) now() []string {
	var all []string
	list, _ := w.egress.EgressIPV1().EgressIPs().List(context.Background(), metav1.ListOptions{})
	for _, e := range list.Items {
		for _, item := range e.Status.Items {
			all = append(all, fmt.Sprintf("%s %s %s on %s", e.Name, e.UID, item.EgressIP, item.Node))
		}
	}
	for _, o := range w.nb.Owners(egressip.Feature) {
		for own, p := range w.stateOf(o.Object).Policies {
			egress := map[netip.Addr]bool{}
			for _, hop := range p.Hops {
				egress[p.Egress[hop]] = true
			}
			for a := range egress {
				all = append(all, fmt.Sprintf("%s %s of %s %s", p.EgressIP, a, o.Object, own))
			}
		}
	}
	slices.Sort(all)
	return all
}

func open(tl *audit.Timeline) []string {
	var all []string
	for _, p := range tl.Periods {
		switch {
		case p.End != nil:
		case p.Pod == nil:
			all = append(all, fmt.Sprintf("%s %s %s on %s", p.Object.Name, p.Object.UID, p.Address, p.Node))
		default:
			all = append(all, fmt.Sprintf("%s %s of %s %s", p.Object.Name, p.Address, p.Pod.Key(), p.Pod.Address))
		}
	}
	slices.Sort(all)
	return all
}

// TestAudit: what is recorded of an address that moves, of pods that come and go, and
// why; a restart records nothing else.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &auditLog{}, newWorld(t)
		w.startAudited(l)
		w.create(egress("prod", []v1.Address{"172.18.0.50"}, func(e *v1.EgressIP) { e.UID = "uid-prod" }))
		fakeapi.Settle()
		h := &history{world: w, rng: rand.New(rand.NewPCG(1, 1)), there: map[string]bool{}}
		h.attachNew("prod/web-0", "ovn-worker", "web", "10.244.1.5")
		fakeapi.Settle()
		from := w.holder("prod", "172.18.0.50")
		w.health.set(from, place.Dead)
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
			w.health.set(node, place.Dead)
		}
		fakeapi.Settle()
		w.remove(egress("prod", nil))
		fakeapi.Settle()
		restart()
		var got []string
		for _, p := range l.timeline(t).Periods {
			what := "node " + p.Node
			if p.Pod != nil {
				what = fmt.Sprintf("pod %s %s on %s", p.Pod.Key(), p.Pod.Address, p.Pod.Node)
			}
			text := fmt.Sprintf("%s %s %s: %s", p.Object.UID, p.Address, what, p.Begin.Reason)
			if p.Begin.Observed {
				text += " observed"
			}
			if p.End != nil {
				text += " until " + p.End.Reason
				if p.End.Observed {
					text += " observed"
				}
			}
			got = append(got, text)
		}
		want := []string{
			"uid-prod 172.18.0.50 node " + from + ": Assigned until Moved",
			"uid-prod 172.18.0.50 pod prod/web-0 10.244.1.5 on ovn-worker: Programmed until NotSelected",
			"uid-prod 172.18.0.50 node " + to + ": Moved until NoNode",
			"uid-prod 172.18.0.50 pod prod/web-0 10.244.1.5 on ovn-worker: Programmed until NotAssigned",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), l.lines.String())
		}
		w.stop()
	})
}

// truth follows the statuses: the nodes that each address of each EgressIP had in turn.
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
			is[e.Name+" "+string(e.UID)+" "+item.EgressIP] = item.Node
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

// recorded returns the same by the records.
func recorded(tl *audit.Timeline) map[string][]string {
	all, end := map[string][]string{}, map[string]*audit.Moment{}
	for _, p := range tl.Periods {
		if p.Pod != nil {
			continue
		}
		k := p.Object.Name + " " + p.Object.UID + " " + p.Address
		if e := end[k]; e != nil && *e != p.Begin { // it did not move
			all[k] = append(all[k], "")
		}
		all[k], end[k] = append(all[k], p.Node), p.End
	}
	for k, e := range end {
		if e != nil {
			all[k] = append(all[k], "")
		}
	}
	return all
}

// TestAuditRandomOrders: whatever happens, the audit log ends with what is there, also
// where masters were killed before they had written what they recorded. Where none was,
// and the API server answers, it has every assignment there has been.
func TestAuditRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			l := &auditLog{}
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
					l.mu.Lock()
					l.killed = true
					l.mu.Unlock()
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
			tl := l.timeline(t)
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s\nlog:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"), l.lines.String())
			}
			if got, want := open(tl), h.now(); !slices.Equal(got, want) {
				fail("the log ends with\n%s\nthere is\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			tr.mu.Lock()
			defer tr.mu.Unlock()
			if got := recorded(tl); !kills && share == 0 && !maps.EqualFunc(got, tr.all, slices.Equal) {
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
