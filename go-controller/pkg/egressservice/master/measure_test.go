package master

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// TestMeasuredFailover: each stage of a move away from a dead host is measured when it is
// reached, and the move is counted by its reason.
func TestMeasuredFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, service("demo-svc", demoIngress...), slice("demo-svc", demoPods...))
		set := metrics.New(version.Info{})
		set.SetLeader(true)
		w.measured = set.Leader()
		var quiet atomic.Bool
		w.silent = func(string, string) bool { return quiet.Load() }
		has := func(want bool, lines ...string) {
			t.Helper()
			answer := httptest.NewRecorder()
			set.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			for _, line := range lines {
				if strings.Contains(answer.Body.String(), "\n"+line+"\n") != want {
					t.Errorf("%s: present is not %t", line, want)
				}
			}
		}
		stage := func(name, value string) string {
			return `ovnkube_egress_failover_duration_seconds_` + strings.Replace(value, "{", `{kind="EgressService",stage="`+name+`"`, 1)
		}
		w.start()
		w.create(egress("demo-svc"))
		first := w.anyHost(demo)
		fakeapi.Settle()
		has(false, `ovnkube_egress_moves_total{kind="EgressService",reason="unreachable"} 0`)

		quiet.Store(true)
		w.measured.Changed(first, place.Dead, time.Now().Add(-time.Second))
		w.health.Set(first, place.Dead)
		fakeapi.Settle()
		has(true, stage("decided", "count{} 1"), stage("decided", "sum{} 1"), `ovnkube_egress_moves_total{kind="EgressService",reason="unreachable"} 1`)
		has(true, stage("acknowledged", "count{} 0"), stage("programmed", "count{} 0"))

		quiet.Store(false)
		<-time.After(time.Second)
		w.measured.Changed(first, place.Alive, time.Now()) // the move in progress continues to be measured
		w.update(egress("demo-svc"))
		w.served(demo, other(first))
		fakeapi.Settle()
		has(true, stage("acknowledged", "count{} 1"), stage("programmed", "count{} 1"))
		has(false, stage("acknowledged", "sum{} 1"))
	})
}
