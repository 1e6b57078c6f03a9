package app

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestOwnLeaseIsTakenAtOnce: a master that was killed does not wait for the lease
// that it has held itself.
func TestOwnLeaseIsTakenAtOnce(t *testing.T) {
	now := metav1.NowMicro()
	cs := fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n1"), LeaseDurationSeconds: new(int32(3600)),
			AcquireTime: &now, RenewTime: &now},
	})
	env := testEnv(cs)
	env.Config.MasterHA.LeaseDuration, env.Config.MasterHA.RenewDeadline = time.Hour, time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	working, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- lead(ctx, env, "n1", func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			return nil
		})
	}()
	eventually.Receive(t, "work", working)
	cancel()
	if err := eventually.Receive(t, "end", ended); err != nil {
		t.Error(err)
	}
}
