package master

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// staticPort makes the port of a pod the port of a static pod, whose UID is "hash".
func (w *world) staticPort(key, where string, ips ...string) {
	w.t.Helper()
	owner, rows := portOf(key, where, ips...)
	port := rows[0].Model.(*nbdb.LogicalSwitchPort)
	port.ExternalIDs, port.Options = map[string]string{"static": "true"}, map[string]string{"iface-id-ver": "hash"}
	if _, err := w.db.Apply(context.Background(), owner, rows); err != nil {
		w.t.Fatal(err)
	}
}

// TestStaticPodKeepsItsPolicies: a static pod leaves with its egress address even while
// its mirror pod is deleted, under this master and the next one, and with the next mirror pod,
// until its port is removed.
func TestStaticPodKeepsItsPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, "172.18.0.33")
		const key, addr = "prod/static", "10.244.0.9"
		mirror := func(uid string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "prod", Name: "static", UID: types.UID(uid), Labels: map[string]string{"app": "web"},
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
			}, Spec: corev1.PodSpec{NodeName: "ovn-control-plane"}}
		}
		w.staticPort(key, "ovn-control-plane", addr)
		w.create(mirror("1"))
		w.eventually("the policy", func() bool { return w.hops(key, addr) != "none" && w.hops(key, addr) != "drop" && w.nats(key) != "" })
		led, nats := w.hops(key, addr), w.nats(key)
		kept := func(when string) {
			t.Helper()
			<-time.After(10 * podStartTimeout)
			synctest.Wait()
			if got := w.hops(key, addr); got != led || w.nats(key) != nats {
				t.Errorf("%s led to %q, translations %q, want %q, %q", when, got, w.nats(key), led, nats)
			}
			if !w.pods.Has(netip.MustParseAddr(addr)) {
				t.Errorf("%s its address is not told", when)
			}
		}
		w.remove(mirror("1"))
		kept("without a mirror")
		w.stop()
		w.start()
		kept("without a mirror, after a restart,")
		w.create(mirror("2"))
		kept("with the next mirror")
		w.remove(mirror("2"))
		kept("without the next mirror")
		w.detach(key)
		w.eventually("the rows to go", func() bool { return len(w.db.Rows(nb.Owner{Feature: "egressip", Object: key})) == 0 })
	})
}
