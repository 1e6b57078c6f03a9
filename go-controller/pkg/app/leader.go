package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// leaseName is the name of the Lease for which the masters of a cluster compete.
const leaseName = "ovn-kubernetes-master"

// errLostLease ends the process: its caches by contract do not have what another leader has written
// since, so it has to start from scratch.
var errLostLease = errors.New("lost the lease of the leader")

// lead waits for the lease and runs work while it is held. It returns nil when ctx is done, and an
// error if work fails or ends by itself, or if the lease is lost. The lease is released after work
// has returned, never before.
//
// A lease that already has this identity is taken without waiting for it to expire.
func lead(ctx context.Context, env *Env, identity string, work func(context.Context) error) error {
	electing, stopElecting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElecting()
	won, ended := make(chan struct{}), make(chan struct{})
	wait := waits.Begin(waits.Wait{Part: "leader election", For: "the lease of the leader"})
	defer wait.End()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            leaseName,
		Lock:            newLock(env.Kube, env.Config.Kubernetes.ConfigNamespace, identity),
		LeaseDuration:   env.Config.MasterHA.LeaseDuration,
		RenewDeadline:   env.Config.MasterHA.RenewDeadline,
		RetryPeriod:     env.Config.MasterHA.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(won) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				klog.InfoS("Leader elected", "leader", leader, "self", identity)
				wait.For("the lease of the leader, which " + leader + " has")
			},
		},
	})
	if err != nil {
		return fmt.Errorf("prepare leader election: %w", err)
	}
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	select {
	case <-ctx.Done():
		stopElecting()
		<-ended
		return nil
	case <-won:
	}
	wait.End()
	return holdLease(ctx, env, identity, work, ended, stopElecting)
}

// holdLease runs work as the leader; ended is closed when the lease is lost or released.
func holdLease(ctx context.Context, env *Env, identity string, work func(context.Context) error, ended <-chan struct{}, giveBack func()) error {
	env.Metrics.SetLeader(true)
	defer env.Metrics.SetLeader(false)
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	done := make(chan error, 1)
	go func() { done <- work(working) }()
	superseded := make(chan error, 1)
	go watchLease(working, env, identity, superseded)
	select {
	case err := <-done:
		giveBack()
		<-ended
		return err
	case err := <-superseded:
		return err
	case <-ended:
		// work is not waited for: another master has the lease, and the process ends.
		return errLostLease
	}
}

// lookInterval is how often a leader checks whether it still is one. The election itself only
// checks when it renews, and only gives up after its deadline.
const lookInterval = time.Second

// watchLease reports on superseded that another master leads.
func watchLease(ctx context.Context, env *Env, identity string, superseded chan<- error) {
	ticker := time.NewTicker(min(lookInterval, env.Config.MasterHA.RetryPeriod))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(ctx, env.Config.MasterHA.RenewDeadline)
		err := confirmLeader(limited, env, identity)
		cancel()
		if errors.Is(err, errLostLease) {
			superseded <- err
			return
		}
	}
}

// confirmLeader returns nil if the lease has the identity, errLostLease if it has another one, and
// a different error if that is unknown.
func confirmLeader(ctx context.Context, env *Env, identity string) error {
	asked := time.Now()
	lease, err := env.Kube.CoordinationV1().Leases(env.Config.Kubernetes.ConfigNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the lease of the leader: %w", err)
	}
	switch holder := lease.Spec.HolderIdentity; {
	case holder == nil || *holder == "":
		return errors.New("lease of the leader has no holder")
	case *holder != identity:
		return fmt.Errorf("%w: %s leads", errLostLease, *holder)
	}
	env.leader.confirmed(asked)
	return nil
}

// lock is a lease whose namespace is created if it is missing, so that a binary that was started
// without manifests works.
type lock struct {
	*resourcelock.LeaseLock
	namespaces interface {
		Create(context.Context, *corev1.Namespace, metav1.CreateOptions) (*corev1.Namespace, error)
	}
}

func newLock(cs kubernetes.Interface, namespace, identity string) *lock {
	return &lock{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
			Client:     cs.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		namespaces: cs.CoreV1().Namespaces(),
	}
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.LeaseLock.Create(ctx, r)
	if !apierrors.IsNotFound(err) {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.LeaseMeta.Namespace}}
	if _, err := l.namespaces.Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s of the leader's lease: %w", ns.Name, err)
	}
	return l.LeaseLock.Create(ctx, r)
}
