package suite

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// newPodsPort is the port that the first pod sends to; each pod has its own port.
	newPodsPort = 20000
	// newPodsCount is how many pods are created at once; EGRESSIP_NEWPODS overrides it.
	newPodsCount = 9
)

// newPods creates pods that send from their first instruction, several on each node at once, and
// deletes them while they send: no packet may have the address of a node or of a pod.
func (e *egressIPTest) newPods(t *testing.T) {
	const name = "fresh"
	count := number("EGRESSIP_NEWPODS", newPodsCount)
	ips := addresses("172.18.0.203", "172.18.0.204", "fc00:f853:ccd:e793::203", "fc00:f853:ccd:e793::204")
	e.assignable(t, "ovn-worker", "ovn-worker2")
	e.create(t, name, ips, held)
	e.programmed(t, name)
	c := newCapture(t, e.suite, newPodsPort, newPodsPort+uint16(count), ips)
	pods := make([]string, count)
	began := time.Now()
	for i := range pods {
		pods[i] = fmt.Sprintf("%s-%d", name, i)
		err := e.StartSender(t.Context(), lab.Sender{
			Name: pods[i], Node: nodes[i%len(nodes)], Labels: chosen(name), To: lab.OutsideAddresses, Port: newPodsPort + uint16(i),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { e.deletePods(t, pods) })
	seen := map[netip.AddrPort]time.Time{}
	err := lab.Until(t.Context(), leakPatience+time.Duration(count)*2*time.Second, "packets of all new pods", func(ctx context.Context) error {
		packets, err := c.taps[lab.Outside].Packets()
		if err != nil {
			return err
		}
		for _, p := range packets {
			if _, known := seen[p.Destination]; !known {
				seen[p.Destination] = p.At
			}
		}
		if want := count * len(lab.OutsideAddresses); len(seen) < want {
			return fmt.Errorf("%d of %d flows arrived", len(seen), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	last := time.Since(began)
	arrived := c.inspect(t)
	e.deletePods(t, pods)
	t.Logf("%d new pods, all of them heard after %s, %d packets until then, %d in all", count, last.Round(time.Millisecond), arrived, c.inspect(t))
	e.remove(t, name)
}

// deletePods deletes pods, all at once and without a grace period, so that they are gone from the
// API while they still send, and waits until they are gone.
func (e *egressIPTest) deletePods(t *testing.T, names []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			var now int64
			err := e.Kube.CoreV1().Pods(lab.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
			if err := e.DeletePod(ctx, name); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
