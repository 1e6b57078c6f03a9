package master

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestOutdatedMaster: a master that was suspended before it wrote a decision does not undo what another one has decided since.
func TestOutdatedMaster(t *testing.T) {
	for _, decided := range []string{"ovn-worker3", ""} {
		t.Run("now "+decided, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _, g := revoked(t) // and sees nothing more
				services := w.egress.EgressServiceV1().EgressServices("default")
				eg, err := services.Get(context.Background(), "demo-svc", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				eg.Status.Host = decided
				if _, err := services.UpdateStatus(context.Background(), eg, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.forgetWrites()
				w.health.Set("ovn-worker2", place.Alive)
				w.health.Set("ovn-worker", place.Dead)
				fakeapi.Settle()
				if got := w.statusNow().Host; got != decided {
					t.Errorf("the host is %q, want %q", got, decided)
				}
				if all := strings.Join(w.writes(), "\n"); strings.Count(all, "ovn-worker2") == 0 {
					t.Errorf("this master has not tried to write its decision:\n%s", all)
				}
				g.Open()
				w.eventually("its decision to count once it sees the other one", func() bool { return w.statusNow().Host == "ovn-worker2" })
				w.stop()
			})
		})
	}
}
