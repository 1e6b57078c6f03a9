package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestNothingUnconfirmed: reports of ovn-controller cause work only if an endpoint has gone before.
func TestNothingUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, topology.GatewayShared)
		w.create(object("a", "10.96.0.1", corev1.ProtocolUDP, 30001))
		w.serve("a", "172.18.0.3@n2", "172.18.0.4@n3")
		w.start()
		flushes := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.flushes
		}
		report := func(times int) {
			for range times {
				w.applied()
				fakeapi.Settle()
			}
		}
		report(100) // of what was written before the start
		quiet := flushes()
		report(100)
		if n := flushes() - quiet; n > 0 {
			t.Errorf("connections were read %d times although nothing changed", n)
		}
		w.serve("a", "172.18.0.4@n3")
		fakeapi.Settle()
		for range 2 {
			anew := w.track("10.96.0.1:80", "172.18.0.3:8080") // by what OVN still has
			report(1)
			if w.tracked(anew) {
				t.Error("the entry is still there once OVN has followed")
			}
		}
		// The later reports come, the fewer of them cause work, since other changes cause most of them.
		<-time.After(time.Minute)
		fakeapi.Settle()
		quiet = flushes()
		for range 60 {
			w.applied()
			<-time.After(time.Second)
		}
		if n := flushes() - quiet; n > 3 {
			t.Errorf("connections were read %d times in a minute of reports", n)
		}
		<-time.After(10 * time.Minute)
		report(100)
		quiet = flushes()
		report(100)
		if n := flushes() - quiet; n > 0 {
			t.Errorf("connections were read %d times after the change was confirmed", n)
		}
		w.stop()
	})
}

// TestAddedWhileFlowsSettle: an entry is right that leads to an endpoint which was added while the node waited for flows to
// take effect.
func TestAddedWhileFlowsSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, topology.GatewayShared)
		w.create(object("a", "10.96.0.1", corev1.ProtocolUDP, 30001))
		w.serve("a", "172.18.0.3@n2", "172.18.0.4@n3")
		waits, settled := make(chan struct{}), make(chan struct{})
		w.start()
		slow := func(f func()) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.slow = f
		}
		slow(func() {
			waits <- struct{}{}
			<-settled
		})
		w.serve("a", "172.18.0.4@n3")
		<-waits
		w.serve("a", "172.18.0.4@n3", "172.18.0.5@n3")
		synctest.Wait()
		added, gone := w.track("10.96.0.1:80", "172.18.0.5:8080"), w.track("10.96.0.1:80", "172.18.0.3:8080")
		slow(nil)
		close(settled)
		fakeapi.Settle()
		if !w.tracked(added) || w.tracked(gone) {
			t.Errorf("the entry of the new endpoint is there: %t, and that of the former one: %t", w.tracked(added), w.tracked(gone))
		}
		w.stop()
	})
}
