package node

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestTableOfFormerHost: when the table of a network changes on a node that was the host before, the node looks whether it
// still needs it, once. When it is the host again, it finds the table as it is then.
func TestTableOfFormerHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		blue := func(number int) {
			w.kernel.mu.Lock()
			defer w.kernel.mu.Unlock()
			w.kernel.tables["blue"] = host.RoutingTable{Number: number}
		}
		finds := func() int {
			w.kernel.mu.Lock()
			defer w.kernel.mu.Unlock()
			return w.kernel.finds
		}
		leads := func(number int) {
			t.Helper()
			w.eventually(fmt.Sprintf("the pods to be led into table %d", number), func() bool {
				return strings.Contains(hostfake.DumpIPRules(w.ipRules.Objects()), fmt.Sprintf("from 10.244.0.5 lookup %d", number))
			})
		}
		blue(7)
		w.start()
		eg := egress("demo-svc", "ovn-worker2")
		eg.Spec.Network = "blue"
		w.update(eg)
		leads(7)
		blue(8)
		leads(8)
		w.setStatus(programmedBy("ovn-worker", true))
		w.eventually("the ip rules to go", func() bool { return !strings.Contains(hostfake.DumpIPRules(w.ipRules.Objects()), "lookup") })
		fakeapi.Settle()
		blue(9)
		<-time.After(2 * tablesInterval)
		fakeapi.Settle()
		before := finds()
		<-time.After(20 * tablesInterval)
		if n := finds() - before; n > 0 {
			t.Errorf("it was looked up %d times more", n)
		}
		w.setStatus(programmedBy("ovn-worker2", false))
		leads(9)
		blue(10)
		leads(10)
	})
}
