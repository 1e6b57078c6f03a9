package master

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// base translates a pod on its node as long as no EgressIP does.
type base struct {
	c    *Controller
	pod  string
	node string

	mu      sync.Mutex
	rows    map[netip.Addr]bool
	stopped bool
}

func (b *base) look(string, string) {
	translates := map[netip.Addr]bool{}
	b.mu.Lock()
	all := make([]netip.Addr, 0, len(b.rows))
	for a := range b.rows {
		all = append(all, a)
	}
	b.mu.Unlock()
	for _, a := range all {
		translates[a] = b.c.OwnsLocalSNAT(b.pod, b.node, a)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.rows {
		if !b.stopped {
			b.rows[a] = !translates[a]
		}
	}
}

func (b *base) translated(_, node string, a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return node == b.node && b.rows[a]
}

func (b *base) stop(stopped bool) {
	b.mu.Lock()
	b.stopped = stopped
	b.mu.Unlock()
	if !stopped {
		b.look("", "")
	}
}

// never is a database that tells of translations that go while there is no other.
type never struct {
	database
	t *testing.T
	w *world
}

func (d *never) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	before := d.w.stateOf(web).NATs
	stats, errs := d.database.ApplyAll(ctx, want)
	after := d.w.stateOf(web).NATs
	for site := range before {
		if _, stays := after[site]; !stays && site.Node == d.w.base.node && !d.w.base.translated(web, site.Node, site.Pod) {
			d.t.Errorf("%s has no translation on %s", site.Pod, site.Node)
		}
	}
	return stats, errs
}

// TestOneTranslationOnOwnNode: where each pod has a translation on its node's router,
// that and the EgressIP's take turns, and there is one all the time.
func TestOneTranslationOnOwnNode(t *testing.T) {
	const own, elsewhere = "ovn-worker", "ovn-worker2"
	w := newWorld(t, egress(prod, prodIPs[:1]))
	w.base = &base{pod: web, node: own, rows: map[netip.Addr]bool{addrs(webV4)[0]: true, addrs(webV6)[0]: true}}
	w.db = &never{w.db, t, w}
	w.pod(web, own, webV4, webV6)
	label := func(is bool) func(*corev1.Node) {
		return func(n *corev1.Node) {
			if delete(n.Labels, kube.LabelEgressAssignable); is {
				n.Labels[kube.LabelEgressAssignable] = ""
			}
		}
	}
	w.changeNode(elsewhere, label(false))
	w.start()
	w.programmed(prod)
	at := func(nats string, four bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("translations %q, the node's %v", nats, four), func() bool {
			return w.nats(web) == nats && w.base.translated(web, own, addrs(webV4)[0]) == four && w.base.translated(web, own, addrs(webV6)[0])
		})
	}
	at(own+":172.18.0.33", false)

	w.base.stop(true)
	w.changeNode(elsewhere, label(true))
	w.changeNode(own, label(false))
	w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[elsewhere] })
	w.eventually("the pod to be given back", func() bool { return !w.master.OwnsLocalSNAT(web, own, addrs(webV4)[0]) })
	w.base.stop(false)
	at(elsewhere+":172.18.0.33", true)

	w.changeNode(own, label(true))
	w.changeNode(elsewhere, label(false))
	at(own+":172.18.0.33", false)
	w.programmed(prod)

	w.stop()
	w.writes()
	w.start()
	w.programmed(prod)
	if got := w.writes(); len(got) > 0 {
		t.Errorf("a restart wrote %s", got)
	}
	at(own+":172.18.0.33", false)

	w.base.stop(true)
	w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = "db" })
	w.eventually("the policy to go", func() bool { return w.hops(web, webV4) == "none" })
	w.eventually("the pod to be given back", func() bool { return !w.master.OwnsLocalSNAT(web, own, addrs(webV4)[0]) })
	w.base.stop(false)
	at("", true)
	w.eventually("it to be forgotten", func() bool {
		w.master.mu.Lock()
		defer w.master.mu.Unlock()
		return len(w.master.states) == 0
	})
}

// TestNewPodHasOneTranslation: nobody else translates a pod that may not send yet.
func TestNewPodHasOneTranslation(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs[:1]))
	w.base = &base{pod: "prod/new", node: "ovn-worker", rows: map[netip.Addr]bool{addrs("10.244.1.9")[0]: false}}
	w.start()
	w.programmed(prod)
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID, p.Spec.NodeName, p.Labels = "prod", "new", "new", "ovn-worker", map[string]string{"app": "web"}
	if w.master.Pending(p) == "" {
		t.Fatal("not to be marked")
	}
	if !w.master.OwnsLocalSNAT("prod/new", "ovn-worker", addrs("10.244.1.9")[0]) {
		t.Error("somebody else may translate it before it has policies")
	}
}
