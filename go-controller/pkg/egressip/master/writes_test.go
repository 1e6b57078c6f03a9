package master

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// statusWrites returns the master's writes of statuses since the last call.
func (w *world) statusWrites() []string {
	var statuses []string
	for _, line := range w.writes() {
		if strings.HasPrefix(line, "egressips/") {
			statuses = append(statuses, line)
		}
	}
	return statuses
}

// slowly lets the nodes act one after the other, and the chassis last, each after a second.
func (w *world) slowly(nodes ...string) {
	synctest.Wait()
	for _, n := range nodes {
		<-time.After(time.Second)
		w.freeze(n, false)
		synctest.Wait()
	}
	<-time.After(time.Second)
	w.barrier.stop("all", false)
	fakeapi.Settle()
}

// TestStatusWrites: the master writes a status for each step of the protocol, and once more when all
// is done, however many nodes acknowledge in between.
func TestStatusWrites(t *testing.T) {
	ips := []v1.Address{"172.18.0.33", "172.18.0.44"}
	for name, c := range map[string]struct {
		writes int
		change func(w *world)
	}{
		// The items; then the condition.
		"created": {2, func(w *world) {
			w.freeze("ovn-worker", true)
			w.freeze("ovn-worker2", true)
			w.barrier.stop("all", true)
			w.create(egress("next", []v1.Address{"172.18.0.77", "172.18.0.88"}, func(e *v1.EgressIP) {
				e.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"}
			}))
			w.slowly("ovn-worker", "ovn-worker2")
			w.programmed("next")
		}},
		// The items together with the entry of the dead node; then the condition.
		"node lost": {2, func(w *world) {
			lost := w.holder(prod, "172.18.0.33")
			for _, n := range []string{"ovn-worker", "ovn-worker2", "ovn-worker3"} {
				w.freeze(n, true)
			}
			w.barrier.stop("all", true)
			w.health.Set(lost, place.Dead)
			w.slowly(slices.DeleteFunc([]string{"ovn-worker", "ovn-worker2", "ovn-worker3"}, func(n string) bool { return n == lost })...)
			w.programmed(prod)
		}},
		// The items that let the old node continue, those that let it release the address, and the condition.
		"planned move": {3, func(w *world) {
			was := w.holder(prod, "172.18.0.33")
			for _, n := range []string{"ovn-worker", "ovn-worker2", "ovn-worker3"} {
				w.freeze(n, true)
			}
			w.barrier.stop("all", true)
			w.changeNode(was, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
			w.slowly("ovn-worker", "ovn-worker2", "ovn-worker3")
			w.programmed(prod)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, egress(prod, ips), node("ovn-worker3", 3))
				w.health.Set("ovn-worker3", place.Alive)
				w.pod(web, "ovn-control-plane", webV4)
				db := w.pod("prod/db", "ovn-control-plane", "10.244.0.9")
				db.Labels = map[string]string{"app": "db"}
				w.update(db)
				w.start()
				w.programmed(prod)
				fakeapi.Settle()
				w.statusWrites()
				c.change(w)
				if got := w.statusWrites(); len(got) != c.writes {
					t.Errorf("%d writes, want %d:\n%s", len(got), c.writes, strings.Join(got, "\n"))
				}
			})
		})
	}
}

// TestProgressIsReported: what a status waits for is not up to date at once, but
// before long.
func TestProgressIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress(prod, []v1.Address{"172.18.0.33"}))
		w.pod(web, "ovn-control-plane", webV4)
		w.barrier.stop("all", true)
		w.start()
		before := time.Now()
		w.eventually("the status to say that pods wait", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonWaitingForPolicies })
		if took := time.Since(before); took > progressGrace+time.Second {
			t.Errorf("it took %s", took)
		}
		w.barrier.stop("all", false)
		w.programmed(prod)
	})
}

// TestBusyNodes: nodes that acknowledge one address after the other keep the rest, even if all of
// them take much longer than the acknowledgement timeout.
func TestBusyNodes(t *testing.T) {
	const n = 40
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit = 5 * time.Second
		w.crowd(n)
		w.pace = 4 * w.limit / n
		w.start()
		w.eventually("all to be programmed", func() bool {
			for i := range n {
				if !w.is(fmt.Sprintf("egressip-%d", i), v1.ConditionProgrammed) {
					return false
				}
			}
			return true
		})
		if got := w.statusWrites(); len(got) != 2*n {
			t.Errorf("%d writes for %d EgressIPs:\n%s", len(got), n, strings.Join(got, "\n"))
		}
	})
}
