package master

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// networked is a world in which every host reports a problem with the network of demo-svc, and the first host.
func networked(t *testing.T) (*world, string, *silence) {
	t.Helper()
	w, s := newWorld(t, append(demoObjects()[1:], egress("demo-svc", func(e *v1.EgressService) { e.Spec.Network = "blue" }))...), &silence{}
	w.limit, w.silent, w.problem = limit, s.of, "the routing table of network blue has no IPv6 route"
	w.start()
	const host = "ovn-worker"
	w.served(demo, host)
	w.eventually("the problem to be reported", func() bool { return w.reason("demo-svc") == egressservice.ReasonNetworkNotFound })
	return w, host, s
}

// TestHostWithProblemStays: a host without the network serves, and follows each change, without another word about it.
func TestHostWithProblemStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, host, _ := networked(t)
		<-time.After(3 * limit)
		w.served(demo, host)
		fakeapi.Settle()
		w.forgetWrites()
		w.update(slice("demo-svc", append(slices.Clone(demoPods), "10.244.1.9")...))
		<-time.After(3 * limit)
		w.served(demo, host)
		if got := w.statusWrites(); len(got) > 0 {
			t.Errorf("the status was written: %q", got)
		}
		if got := w.reason("demo-svc"); got != egressservice.ReasonNetworkNotFound {
			t.Errorf("reason %s", got)
		}
	})
}

// TestHostWithProblemFails: a host that once has reported a problem is replaced like any other when it
// does not acknowledge a change.
func TestHostWithProblemFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, host, s := networked(t)
		s.Store(host)
		w.update(slice("demo-svc", append(slices.Clone(demoPods), "10.244.1.9")...))
		w.served(demo, other(host))
		w.event("Node " + other(host) + " serves the egress traffic instead of " + host + ": has not acknowledged in time what it was given")
	})
}
