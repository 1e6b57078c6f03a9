package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestOwnLeaseIsTakenAtOnce: a master that was killed does not wait for a lease that it held
// itself.
func TestOwnLeaseIsTakenAtOnce(t *testing.T) {
	now := metav1.NowMicro()
	cs := fakeapi.NewClientset(&coordinationv1.Lease{
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

// TestLeaderThatSeesAnotherStops: a leader that was suspended for longer than its lease finds that
// another one holds it, and does not wait for its deadline.
func TestLeaderThatSeesAnotherStops(t *testing.T) {
	cs := fakeapi.NewClientset()
	env := testEnv(cs)
	env.Config.MasterHA = config.LeaderElection{LeaseDuration: 2 * time.Hour, RenewDeadline: time.Hour, RetryPeriod: 100 * time.Millisecond}
	var taken atomic.Bool
	now := metav1.NowMicro()
	cs.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch {
		case !taken.Load():
			return false, nil, nil
		case a.GetVerb() == "get":
			return true, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n1_b"), LeaseDurationSeconds: new(int32(7200)),
					AcquireTime: &now, RenewTime: &now},
			}, nil
		default:
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), leaseName, errors.New("changed"))
		}
	})
	working, stopped, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- lead(t.Context(), env, "n1_a", func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			close(stopped)
			return nil
		})
	}()
	eventually.Receive(t, "work", working)
	if err := confirmLeader(t.Context(), env, "n1_a"); err != nil {
		t.Errorf("the leader is not confirmed: %v", err)
	}
	taken.Store(true)
	if err := eventually.Receive(t, "lead", ended); !errors.Is(err, errLostLease) {
		t.Errorf("lead: %v", err)
	}
	eventually.Receive(t, "stop of work", stopped)
	if err := confirmLeader(t.Context(), env, "n1_a"); !errors.Is(err, errLostLease) {
		t.Errorf("the former leader is confirmed: %v", err)
	}
}
