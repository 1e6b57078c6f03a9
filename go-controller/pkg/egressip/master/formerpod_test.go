package master

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestRecreatedPod: an earlier pod of the same name may send for as long as a deleted one, so the rows
// of its address stay until its chassis has removed its port and the datapath flows, or until the timeout.
func TestRecreatedPod(t *testing.T) {
	const next = "10.244.0.77"
	for _, c := range []struct {
		name      string
		node      string // of the new pod
		app       string // its label
		confirms  bool   // whether the chassis of the earlier pod does
		restarted bool   // whether the master is
	}{
		{"on the same node", "ovn-control-plane", "web", true, false},
		{"on another node", "ovn-worker", "web", true, false},
		{"on another node, and the chassis does not confirm", "ovn-worker", "web", false, false},
		{"before a restart of the master", "ovn-worker", "web", false, true},
		{"not selected", "ovn-worker", "db", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := serving(t, "172.18.0.33")
				w.barrier.stop("chassis-ovn-control-plane", true)
				led, earlier := w.hops(web, webV4), addrs(webV4)[0]
				translated := func() (n int) {
					for site := range w.stateOf(web).NATs {
						if site.Pod == earlier {
							n++
						}
					}
					return n
				}
				before := translated()
				began := time.Now()
				w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
				w.detach(web)
				w.recreate(c.node, c.app, next)
				synctest.Wait()
				if c.restarted {
					w.stop()
					w.start()
					synctest.Wait()
				}
				stays := func(when string) {
					if got := w.hops(web, webV4); got != led || translated() != before || before == 0 || !w.pods.Has(earlier) {
						t.Errorf("%s: led to %s, want %s, with %d translations\n%s", when, got, led, translated(), w)
					}
				}
				stays("at once")
				want := led
				if c.app != "web" {
					want = "none"
				}
				if got := w.hops(web, next); got != want {
					t.Errorf("the new pod is led to %s, want %s", got, want)
				}
				if c.confirms {
					w.barrier.stop("chassis-ovn-control-plane", false)
					<-time.After(revalidateDelay - time.Millisecond)
				} else {
					<-time.After(podStartTimeout - time.Since(began) - time.Millisecond)
				}
				synctest.Wait()
				stays("while the earlier pod may send")
				w.eventually("the rows of the earlier pod to go", func() bool { return w.hops(web, webV4) == "none" && translated() == 0 && !w.pods.Has(earlier) })
				if c.confirms && time.Since(began) >= podStartTimeout {
					t.Error("the rows stayed until the timeout")
				}
				if got := w.hops(web, next); got != want {
					t.Errorf("in the end the new pod is led to %s, want %s", got, want)
				}
			})
		})
	}
}

// recreate creates the pod web again.
func (w *world) recreate(node, app, addr string) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: types.UID("next"), Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: node}}
	w.create(p)
	owner, rows := portOf(web, node, addr)
	rows[0].Model.(*nbdb.LogicalSwitchPort).Options = map[string]string{"iface-id-ver": string(p.UID)} // no other pod's
	network := topology.PodNetwork{Addrs: []netip.Prefix{topology.HostPrefix(addrs(addr)[0])}}
	if _, err := w.master.Attach(w.t.Context(), p, network, owner, rows); err != nil {
		w.t.Fatal(err)
	}
	w.master.Look(web)
}
