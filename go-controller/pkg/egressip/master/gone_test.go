package master

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRemembered: the rows of a pod that is gone outlive what the datapath of its chassis
// remembers of its port: what the chassis still sends on by that would leave with the
// address of the node that translates.
func TestRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, "172.18.0.33")
		w.barrier.stop("chassis-ovn-control-plane", true)
		led, nats := w.hops(web, webV4), w.nats(web)
		w.detach(web)
		w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
		synctest.Wait()
		w.barrier.stop("chassis-ovn-control-plane", false)
		<-time.After(revalidateDelay - time.Millisecond)
		synctest.Wait()
		if got := w.hops(web, webV4); got != led || w.nats(web) != nats || nats == "" {
			t.Errorf("led to %s, translations %q, want %s, %q", got, w.nats(web), led, nats)
		}
		w.eventually("the rows to go", func() bool { return w.nats(web) == "" })
	})
}
