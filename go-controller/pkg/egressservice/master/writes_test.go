package master

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// statusWrites returns the master's writes of statuses, and forgets all writes.
func (w *world) statusWrites() []string {
	statuses := slices.DeleteFunc(w.writes(), func(line string) bool { return !strings.HasPrefix(line, "egressservices/") })
	w.forgetWrites()
	return statuses
}

// TestStatusWrites: the master writes a status twice when a host is assigned, the host and that it serves,
// even if the hosts need much longer than the acknowledgement timeout for all that they are assigned: as
// long as a host acknowledges one after the other, it keeps the rest.
func TestStatusWrites(t *testing.T) {
	const services = 60
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit = limit
		w.silent = func(string, string) bool {
			<-time.After(4 * limit / services) // one after the other
			return false
		}
		var keys []string
		for i := range services {
			name := fmt.Sprintf("svc-%d", i)
			for _, o := range []runtime.Object{egress(name), service(name, fmt.Sprintf("5.5.5.%d", i+1)), slice(name, fmt.Sprintf("10.244.0.%d", i+10))} {
				w.create(o)
			}
			keys = append(keys, "default/"+name)
		}
		settled := func(what string) {
			t.Helper()
			w.eventually(what, func() bool { return !slices.ContainsFunc(keys, func(key string) bool { return !w.programmed(key) }) })
			fakeapi.Settle()
		}
		w.start()
		settled("all to be served")
		if got := w.statusWrites(); len(got) != 2*services {
			t.Errorf("%d writes for %d EgressServices:\n%s", len(got), services, strings.Join(got, "\n"))
		}
		moved := 0
		for _, key := range keys {
			if host, _, _ := w.hosts(key); host == "ovn-worker" {
				moved++
			}
		}
		w.health.Set("ovn-worker", place.Dead)
		<-time.After(time.Second)
		settled("all to be served by the other one")
		if got := w.statusWrites(); len(got) != 2*moved {
			t.Errorf("%d writes for %d EgressServices that lost their host:\n%s", len(got), moved, strings.Join(got, "\n"))
		}
	})
}
