package master

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestInsideFirst: no policy reroutes a pod before its traffic to nodes is exempt,
// which another component writes.
func TestInsideFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, prodIPs...)
		w.pods.Follow()
		const next, addr = "prod/next", "10.244.0.7"
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.attach(next, "ovn-control-plane", addr)
		}()
		synctest.Wait()
		if got := w.hops(next, addr); got != "none" || !w.pods.Has(addrs(addr)[0]) {
			t.Errorf("led to %q before the policies of what is inside know of it (told: %t)", got, w.pods.Has(addrs(addr)[0]))
		}
		w.pods.Written(w.pods.Version())
		<-done
		if got := w.hops(next, addr); got != "100.64.0.3 100.64.0.4" {
			t.Errorf("led to %q", got)
		}
		if all, _ := w.pods.Addrs(); !slices.Contains(all, addrs(addr)[0]) {
			t.Errorf("the pods are %v", all)
		}
	})
}
