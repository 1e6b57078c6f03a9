package master

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// history is a random sequence of actions of users, kubelets and the network.
type history struct {
	*world
	rng    *rand.Rand
	events []string
	born   int             // number of objects created so far
	there  map[string]bool // the existing objects: "pod ns/web-1"
}

var workers = []string{"ovn-worker", "ovn-worker2"}

func (h *history) pick(from ...string) string { return from[h.rng.IntN(len(from))] }

func (h *history) some(p float64) bool { return h.rng.Float64() < p }

func (h *history) say(format string, args ...any) {
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

// event performs one action.
func (h *history) event() {
	h.born++
	switch h.rng.IntN(10) {
	case 0, 1, 2:
		h.egressIP(fmt.Sprintf("ip-%d", h.rng.IntN(3)))
	case 3, 4, 5:
		h.anyPod(h.pick("prod", "dev")+"/"+h.pick("web-0", "web-1"), h.rng.IntN(2))
	case 6:
		name := h.pick("prod", "dev")
		environment := h.pick("production", "development")
		h.say("namespace %s is %s", name, environment)
		h.update(namespace(name, map[string]string{"environment": environment}))
	case 7:
		name, state := h.pick(workers...), []place.Reach{place.Alive, place.Alive, place.Dead, place.Unknown}[h.rng.IntN(4)]
		h.say("%s is %s", name, state)
		h.health.Set(name, state)
	case 8:
		h.anyNode(h.rng.IntN(2))
	case 9:
		if h.there["service"] {
			h.say("no service")
			h.remove(loadBalancer("taker", ""))
		} else {
			addr := h.pick("172.18.0.51", "192.0.2.7")
			h.say("service at %s", addr)
			h.create(loadBalancer("taker", addr))
		}
		h.there["service"] = !h.there["service"]
	}
}

func (h *history) egressIP(name string) {
	there := h.there[name]
	if there && h.some(0.3) {
		h.say("no egress %s", name)
		h.remove(egress(name, nil))
		h.there[name] = false
		return
	}
	ips := [][]v1.Address{{"172.18.0.50"}, {"172.18.0.51", "172.18.0.52"}, {"172.19.0.50"}, {"172.18.0.50", "fc00:f853:ccd:e793::50"}}[h.rng.IntN(4)]
	app, unavailable := h.pick("web", "web", "db"), h.some(0.3)
	e := egress(name, ips, func(e *v1.EgressIP) {
		e.Spec.PodSelector.MatchLabels["app"] = app
		if unavailable {
			e.Spec.OnUnavailable = v1.UnavailableDrop
		}
		e.UID, e.Generation = types.UID(fmt.Sprint(name, h.born)), 1
		e.CreationTimestamp = metav1.Time{Time: born.Add(time.Duration(h.born) * time.Second)}
	})
	h.say("egress %s %v of %s drop %v", name, ips, app, unavailable)
	if !there {
		h.there[name] = true
		h.create(e)
		return
	}
	h.changeEgressIP(name, func(have *v1.EgressIP) { have.Spec = e.Spec })
}

// anyPod creates, changes or deletes a pod, and does the part of pod/master for it.
func (h *history) anyPod(key string, worker int) {
	number := len("10.244.0.5") + strings.Index("prod/web-0 prod/web-1 dev/web-0 dev/web-1", key)
	switch {
	case !h.there[key]:
		h.there[key] = true
		app := h.pick("web", "web", "db")
		h.say("pod %s on %s app %s", key, workers[worker], app)
		h.attachNew(key, workers[worker], app, fmt.Sprintf("10.244.%d.%d", worker+1, number), fmt.Sprintf("fd00:10:244:%d::%d", worker+2, number))
	case h.some(0.5):
		app := h.pick("web", "db")
		h.say("pod %s app %s", key, app)
		h.changePod(key, func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} })
	default:
		h.there[key] = false
		h.say("no pod %s", key)
		namespace, name, _ := strings.Cut(key, "/")
		h.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		if h.some(0.5) {
			<-time.After(time.Duration(h.rng.IntN(8)) * time.Second)
		}
		h.detach(key)
	}
}

// attachNew is attach for a pod with its own UID, retried until it is written.
func (h *history) attachNew(key, where, app string, ips ...string) {
	namespace, name, _ := strings.Cut(key, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint(key, h.born)),
		Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: where}}
	h.create(p)
	synctest.Wait() // pod/master has it from the same informer
	if mark := h.pending(p); mark != "" {
		h.changePod(key, func(p *corev1.Pod) { p.Annotations = map[string]string{kube.AnnotationEgressPending: mark} })
	}
	for h.writePort(context.Background(), p, ips...) != nil {
	}
}

func (h *history) anyNode(i int) {
	name := workers[i]
	if !h.there["no "+name] && h.some(0.1) {
		h.say("no node %s", name)
		h.there["no "+name] = true
		h.remove(node(name, i+1))
		return
	}
	n := node(name, i+1, func(n *corev1.Node) {
		n.Spec.Unschedulable = h.some(0.2)
		if h.some(0.2) {
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		if h.some(0.2) {
			delete(n.Labels, kube.LabelEgressAssignable)
		}
	})
	h.say("node %s cordoned %v ready %s labels %v", name, n.Spec.Unschedulable, n.Status.Conditions[0].Status, n.Labels)
	if h.there["no "+name] {
		h.there["no "+name] = false
		n.UID = types.UID(fmt.Sprint(name, h.born))
		h.create(n)
		return
	}
	n.UID = ""
	h.update(n)
}

// trouble disturbs the master and the nodes meanwhile.
func (h *history) trouble() {
	switch h.rng.IntN(14) {
	case 0:
		h.say("watches are lost")
		h.faults.Cut()
		synctest.Wait()
	case 1:
		h.say("restart")
		h.stop()
		h.start()
	case 2:
		h.say("a moment")
		<-time.After(time.Duration(h.rng.IntN(3000)) * time.Millisecond)
	case 3, 4:
		synctest.Wait()
	case 5:
		name, frozen := h.pick(workers...), h.some(0.5)
		h.say("agent of %s frozen %v", name, frozen)
		h.freeze(name, frozen)
	case 6:
		name, stopped := "chassis-"+h.pick(workers...), h.some(0.5)
		h.say("%s stopped %v", name, stopped)
		h.barrier.stop(name, stopped)
	}
}

// state returns the final state, as far as it does not depend on the history: the rows
// and the statuses.
func (w *world) state() string {
	var out strings.Builder
	out.WriteString(w.nb.DumpFeature(egressip.Feature))
	list, _ := w.egress.EgressIPV1().EgressIPs().List(context.Background(), metav1.ListOptions{})
	for _, e := range list.Items {
		fmt.Fprintf(&out, "%s: items %v words %v", e.Name, e.Status.Items, e.Status.Programmed)
		for _, c := range e.Status.Conditions {
			fmt.Fprintf(&out, " %s=%s/%s", c.Type, c.Status, c.Reason)
		}
		out.WriteString("\n")
	}
	pods, _ := w.kube.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	for _, p := range pods.Items {
		fmt.Fprintf(&out, "%s/%s: marked %v\n", p.Namespace, p.Name, isPending(&p))
	}
	return out.String()
}

// same returns a world with the same objects and ports, but without egress rows.
func (w *world) same(t *testing.T) *world {
	f := newWorld(t)
	ctx := context.Background()
	for name := range f.health.States() {
		f.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range []string{"prod", "dev"} {
		f.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, state := range w.health.States() {
		f.health.Set(name, state)
	}
	spaces, _ := w.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	for _, o := range spaces.Items {
		f.create(&o)
	}
	nodes, _ := w.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	for _, o := range nodes.Items {
		f.create(&o)
	}
	pods, _ := w.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	for _, o := range pods.Items {
		f.create(&o)
	}
	services, _ := w.kube.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	for _, o := range services.Items {
		f.create(&o)
	}
	list, _ := w.egress.EgressIPV1().EgressIPs().List(ctx, metav1.ListOptions{})
	for _, o := range list.Items {
		f.create(&o)
	}
	for _, o := range w.nb.Owners(portFeature) {
		if _, err := f.nb.Apply(ctx, o, w.nb.Rows(o)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestRandomOrders: whatever happens in whatever order, with a failing API server and
// database, lost watches, agents and chassis that stall, and
// restarts in between, the final state equals the one that a master starting without rows
// makes of the last objects, and a restarted master writes nothing.
func TestRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{world: newWorld(t), rng: rng, there: map[string]bool{}}
			h.faults = fakeapi.NewFaults(rng)
			h.faults.Inject(h.kube)
			h.faults.Inject(h.egress)
			broken := rand.New(rand.NewPCG(rng.Uint64(), 0))
			h.start()
			share := []float64{0, 0.1, 0.3}[rng.IntN(3)]
			h.faults.Set(share)
			h.nb.FailWith(func(o nb.Owner) error {
				if o.Feature == egressip.Feature && broken.Float64() < share {
					return errors.New("no leader")
				}
				return nil
			})
			for range 60 {
				h.event()
				h.trouble()
			}
			h.faults.Set(0)
			h.nb.FailWith(nil)
			for _, name := range workers {
				h.freeze(name, false)
				h.barrier.stop("chassis-"+name, false)
			}
			for range 3 {
				fakeapi.Settle()
			}
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"))
			}
			end, writes := h.state(), h.nb.Writes()
			h.writes()
			fakeapi.Settle()
			if got := h.writes(); len(got) > 0 {
				fail("not at rest:\n%s", strings.Join(got, "\n"))
			}
			h.stop()
			h.start()
			fakeapi.Settle()
			if got := h.writes(); len(got) > 0 || h.nb.Writes() != writes {
				fail("a restart wrote:\n%s\nat the end:\n%s\nafter it:\n%s", strings.Join(got, "\n"), end, h.state())
			}
			fresh := h.same(t)
			fresh.start()
			fakeapi.Settle()
			if got := fresh.state(); got != end {
				fail("the end:\n%s\nfrom scratch:\n%s", end, got)
			}
		})
	})
}
