package master

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var plain = nb.Owner{Feature: "plain", Object: web}

// translatePlainly has web translated on its own node as long as no EgressIP translates it.
func (w *world) translatePlainly(node string) {
	w.t.Helper()
	var rows []nb.Row
	for _, a := range []string{webV4, webV6} {
		rows = append(rows, nb.Row{ID: a, Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter(node)}, Yields: true,
			Model: &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.3", LogicalIP: a}})
	}
	if _, err := w.db.Apply(context.Background(), plain, rows); err != nil {
		w.t.Fatal(err)
	}
}

// plainly returns the addresses to which its node translates web.
func (w *world) plainly() string {
	var out []string
	for _, r := range w.db.Rows(plain) {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

// TestOneTranslationOnOwnNode: if each pod has a translation on its node's router, that
// of the EgressIP replaces it, and it returns later, even if the EgressIP is deleted while
// no master runs.
func TestOneTranslationOnOwnNode(t *testing.T) {
	const own, elsewhere = "ovn-worker", "ovn-worker2"
	w := newWorld(t, egress(prod, prodIPs[:1]))
	told := make(chan struct{})
	w.localSNATs = func() <-chan struct{} { return told }
	w.translatePlainly(own)
	w.pod(web, own, webV4, webV6)
	label := func(is bool) func(*corev1.Node) {
		return func(n *corev1.Node) {
			if delete(n.Labels, kube.LabelEgressAssignable); is {
				n.Labels[kube.LabelEgressAssignable] = ""
			}
		}
	}
	w.changeNode(elsewhere, label(false))
	close(told)
	w.start()
	w.programmed(prod)
	at := func(nats, node string) {
		t.Helper()
		w.eventually(fmt.Sprintf("translations %q, the node's of %s", nats, node), func() bool { return w.nats(web) == nats && w.plainly() == node })
	}
	at(own+":172.18.0.33", webV6)
	w.changeNode(elsewhere, label(true))
	w.changeNode(own, label(false))
	at(elsewhere+":172.18.0.33", webV4+" "+webV6)
	w.changeNode(own, label(true))
	w.changeNode(elsewhere, label(false))
	at(own+":172.18.0.33", webV6)
	w.programmed(prod)

	w.stop()
	w.nb.Restart()
	told = make(chan struct{})
	w.writes()
	w.start()
	w.programmed(prod)
	if got := w.writes(); len(got) > 0 {
		t.Errorf("a restart wrote %s", got)
	}
	at(own+":172.18.0.33", webV6)
	w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = "db" })
	w.eventually("the policy to go", func() bool { return w.hops(web, webV4) == "none" })
	w.eventually("the translation to be kept", func() bool {
		w.master.podStates.mu.Lock()
		defer w.master.podStates.mu.Unlock()
		st := w.master.podStates.byKey[web]
		return w.master.podStates.keptSNATs[web] && len(st.waits) == 0
	})
	at(own+":172.18.0.33", webV6)
	w.translatePlainly(own)
	close(told)
	at("", webV4+" "+webV6)
	w.eventually("it to be forgotten", func() bool {
		w.master.podStates.mu.Lock()
		defer w.master.podStates.mu.Unlock()
		return len(w.master.podStates.byKey) == 0
	})
}
