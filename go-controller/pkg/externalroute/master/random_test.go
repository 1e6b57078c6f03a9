package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// history is a random sequence of actions of users, kubelets and the network.
type history struct {
	*world
	db     *nbfake.Writer
	rng    *rand.Rand
	events []string
	born   int             // number of objects created so far
	there  map[string]bool // the existing objects
}

func (h *history) pick(from ...string) string { return from[h.rng.IntN(len(from))] }

func (h *history) some(p float64) bool { return h.rng.Float64() < p }

func (h *history) say(format string, args ...any) {
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

// must fails the test if a user's request fails.
func (h *history) must(request func(ctx context.Context) error) {
	h.t.Helper()
	h.faults.Do(func() {
		err := request(context.Background())
		for apierrors.IsConflict(err) { // the master was faster
			err = request(context.Background())
		}
		if err != nil {
			h.t.Fatal(err)
		}
	})
}

// event performs one action.
func (h *history) event() {
	h.born++
	switch h.rng.IntN(10) {
	case 0, 1, 2:
		h.anyPolicy(h.pick("p", "q"))
	case 3, 4:
		h.anyPod(h.pick("red", "blue"), h.rng.IntN(2), h.rng.IntN(2))
	case 5, 6:
		h.anyGateway(h.rng.IntN(2))
	case 7:
		ns := namespace(h.pick("red", "blue"))
		annotations := map[string]string{}
		if h.some(0.5) {
			annotations[kube.AnnotationRoutingExternalGWs] = h.pick("172.18.0.53", "172.18.0.53,172.18.0.51", "gateway")
		}
		ns.Labels["gws"] = h.pick("true", "true", "false")
		h.say("namespace %s %v %v", ns.Name, ns.Labels, annotations)
		h.must(func(ctx context.Context) error {
			have, err := h.kube.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			ns.Annotations, ns.ResourceVersion = maps.Clone(annotations), have.ResourceVersion
			if used, ok := have.Annotations[kube.AnnotationGatewaysInUse]; ok {
				ns.Annotations[kube.AnnotationGatewaysInUse] = used
			}
			_, err = h.kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
			return err
		})
	case 8:
		h.anyNode(h.rng.IntN(2))
	case 9:
		addr := h.pick("10.244.0.3", "10.244.1.4")
		var steered []netip.Addr
		if h.some(0.5) {
			steered = []netip.Addr{netip.MustParseAddr(addr)}
		}
		h.say("steered by others %v at %s", steered, addr)
		h.pods.Set(addr, steered)
	}
}

func (h *history) anyPolicy(name string) {
	policies := h.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes()
	if h.there[name] && h.some(0.3) {
		h.say("no policy %s", name)
		h.there[name] = false
		h.must(func(ctx context.Context) error { return policies.Delete(ctx, name, metav1.DeleteOptions{}) })
		return
	}
	ips := [][]string{{"172.18.0.51"}, {"172.18.0.51", "172.18.0.52"}, {"172.18.0.53", "10.244.7.7"}, nil}[h.rng.IntN(4)]
	next := hops(ips...)
	dynamic := h.some(0.5)
	if dynamic {
		next.Dynamic = []v1.DynamicHop{{
			PodSelector:           metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
			NamespaceSelector:     metav1.LabelSelector{MatchLabels: map[string]string{"name": "gw"}},
			NetworkAttachmentName: "net1",
		}}
	}
	selects := []map[string]string{anyGWs, {"name": "red"}, {"name": "nobody"}}[h.rng.IntN(3)]
	h.say("policy %s of %v: %v dynamic %v", name, selects, ips, dynamic)
	if h.there[name] {
		p := h.policy(name)
		p.Spec = policy(name, selects, next).Spec
		p.Generation++
		p.ResourceVersion = "" // overwrite concurrent writes
		h.must(func(ctx context.Context) error {
			_, err := policies.Update(ctx, p, metav1.UpdateOptions{})
			return err
		})
		return
	}
	h.there[name] = true
	p := policy(name, selects, next)
	p.UID = types.UID(fmt.Sprint(name, h.born))
	h.must(func(ctx context.Context) error {
		_, err := policies.Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

// putPod creates, changes or deletes a pod.
func (h *history) putPod(p *corev1.Pod, gone bool) {
	key := kube.PodKey(p)
	there := h.there[key]
	pods := h.kube.CoreV1().Pods(p.Namespace)
	h.there[key] = !gone
	h.must(func(ctx context.Context) (err error) {
		switch {
		case gone && there:
			err = pods.Delete(ctx, p.Name, metav1.DeleteOptions{})
		case gone:
		case there:
			_, err = pods.Update(ctx, p, metav1.UpdateOptions{})
		default:
			p.UID = types.UID(fmt.Sprint(key, h.born))
			_, err = pods.Create(ctx, p, metav1.CreateOptions{})
		}
		return err
	})
}

func (h *history) anyPod(namespace string, on, j int) {
	p := pod(namespace, on, j)
	if h.some(0.2) {
		p.Status.Phase = corev1.PodSucceeded
	}
	gone := h.some(0.3)
	h.say("pod %s/%s %s gone %v", namespace, p.Name, p.Status.Phase, gone)
	h.putPod(p, gone)
}

func (h *history) anyGateway(j int) {
	p := pod("gw", j, 9)
	p.Annotations[kube.AnnotationNetworkStatus] = []string{
		`[{"name":"gw/net1","ips":["172.18.0.61"]}]`, `[{"name":"gw/net1","ips":["172.18.0.51","172.18.0.62"]}]`, `no json`}[h.rng.IntN(3)]
	if h.some(0.4) {
		p.Annotations[kube.AnnotationRoutingNamespaces], p.Annotations[kube.AnnotationRoutingNetwork] = h.pick("blue", "red,blue"), "net1"
	}
	if h.some(0.2) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	gone := h.some(0.2)
	h.say("gateway %s %v ready %s gone %v", p.Name, p.Annotations, p.Status.Conditions[0].Status, gone)
	h.putPod(p, gone)
}

func (h *history) anyNode(i int) {
	n := node(i)
	nodes := h.kube.CoreV1().Nodes()
	gone := h.some(0.2)
	if h.some(0.3) {
		delete(n.Annotations, kube.AnnotationGatewayLRPIfAddr)
	}
	h.say("node %s gone %v annotations %d", n.Name, gone, len(n.Annotations))
	absent := h.there["no "+n.Name]
	h.there["no "+n.Name] = gone
	h.must(func(ctx context.Context) (err error) {
		switch {
		case gone && !absent:
			err = nodes.Delete(ctx, n.Name, metav1.DeleteOptions{})
		case gone:
		case absent:
			_, err = nodes.Create(ctx, n, metav1.CreateOptions{})
		default:
			_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		}
		return err
	})
}

// trouble disturbs the master meanwhile.
func (h *history) trouble() {
	switch h.rng.IntN(12) {
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
	}
}

// state returns the final state, as far as it does not depend on the history: the rows,
// and the master's part of each policy and namespace.
func (w *world) state(db *nbfake.Writer) string {
	var out strings.Builder
	out.WriteString(db.Dump())
	list, _ := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().List(context.Background(), metav1.ListOptions{})
	for _, p := range list.Items {
		fmt.Fprintf(&out, "%s: hops %v namespaces %d pods %d", p.Name, p.Status.Hops, p.Status.Namespaces, p.Status.Pods)
		for _, c := range p.Status.Conditions {
			fmt.Fprintf(&out, " %s=%s/%s/%d %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
		}
		out.WriteString("\n")
	}
	spaces, _ := w.kube.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	for _, n := range spaces.Items {
		fmt.Fprintf(&out, "%s: %q\n", n.Name, n.Annotations[kube.AnnotationGatewaysInUse])
	}
	return out.String()
}

// same returns a world with the same objects as users created them, and an empty database.
func (w *world) same(t *testing.T, db *nbfake.Writer) *world {
	f := newWorld(t, db)
	ctx := context.Background()
	spaces, _ := w.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	for _, o := range spaces.Items {
		delete(o.Annotations, kube.AnnotationGatewaysInUse)
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
	list, _ := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().List(ctx, metav1.ListOptions{})
	for _, o := range list.Items {
		o.Status = v1.AdminPolicyBasedExternalRouteStatus{}
		f.create(&o)
	}
	steered, _ := w.pods.Addrs()
	f.pods.Set("all", steered)
	return f
}

// TestRandomOrders: whatever happens in whatever order, with a failing API server and
// database, lost watches and restarts in between, the final state equals the one that a
// new master makes of the last objects, and a restarted master
// writes nothing.
func TestRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			db := fake()
			h := &history{world: newWorld(t, db, node(0), node(1), namespace("red"), namespace("blue"), namespace("gw")), db: db,
				rng: rng, there: map[string]bool{}}
			h.faults = fakeapi.NewFaults(rng)
			h.faults.Inject(h.kube)
			h.faults.Inject(h.routes)
			broken := rand.New(rand.NewPCG(rng.Uint64(), 0))
			h.start()
			share := []float64{0, 0.1, 0.3}[rng.IntN(3)]
			h.faults.Set(share)
			db.FailWith(func(nb.Owner) error {
				if broken.Float64() < share {
					return errors.New("no leader")
				}
				return nil
			})
			for range 60 {
				h.event()
				h.trouble()
			}
			h.faults.Set(0)
			db.FailWith(nil)
			for range 3 {
				fakeapi.Settle()
			}
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"))
			}
			end, writes, patches := h.state(db), db.Writes(), h.patchCount()
			fakeapi.Settle()
			h.stop()
			h.start()
			fakeapi.Settle()
			if db.Writes() != writes || h.patchCount() != patches {
				fail("%d transactions, and patches %q after the end:\n%s\nthen:\n%s", db.Writes()-writes, h.patches[patches:], end, h.state(db))
			}
			scratch := fake()
			fresh := h.same(t, scratch)
			fresh.start()
			fakeapi.Settle()
			if got := fresh.state(scratch); got != end {
				fail("the end:\n%s\nfrom scratch:\n%s", end, got)
			}
		})
	})
}
