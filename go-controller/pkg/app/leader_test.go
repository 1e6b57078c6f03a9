package app

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const namespace = "ovn-kubernetes"

func testEnv(cs kubernetes.Interface) *Env {
	return &Env{
		Kube: cs, HTTP: &http.Client{Transport: http.DefaultTransport}, Ready: NewChecks(), Metrics: metrics.New(version.Info{Version: "v1.2.3", Commit: "abc", Go: "go0"}),
		Config: config.Config{
			Kubernetes: config.Kubernetes{ConfigNamespace: namespace},
			MasterHA:   config.LeaderElection{LeaseDuration: time.Minute, RenewDeadline: 30 * time.Second, RetryPeriod: 100 * time.Millisecond},
		},
	}
}

func holder(t *testing.T, cs kubernetes.Interface) string {
	t.Helper()
	l, err := cs.CoordinationV1().Leases(namespace).Get(context.Background(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *l.Spec.HolderIdentity
}

// TestLeaseIsGivenBackAfterWork: the lease is held until work has returned, and released
// immediately afterwards.
func TestLeaseIsGivenBackAfterWork(t *testing.T) {
	cs := fakeapi.NewClientset()
	ctx, cancel := context.WithCancel(context.Background())
	working, stopping, mayStop := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- lead(ctx, testEnv(cs), "n1", func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			close(stopping)
			<-mayStop
			return nil
		})
	}()
	eventually.Receive(t, "work", working)
	cancel()
	eventually.Receive(t, "stop", stopping)
	if h := holder(t, cs); h != "n1" {
		t.Errorf("holder is %q while work has not returned", h)
	}
	close(mayStop)
	if err := eventually.Receive(t, "lead", ended); err != nil {
		t.Errorf("lead: %v", err)
	}
	if h := holder(t, cs); h != "" {
		t.Errorf("holder is %q after the end", h)
	}
}

func TestErrorOfWorkFreesTheLease(t *testing.T) {
	cs := fakeapi.NewClientset()
	broken := errors.New("broken")
	if err := lead(context.Background(), testEnv(cs), "n1", func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("lead: %v", err)
	}
	if h := holder(t, cs); h != "" {
		t.Errorf("holder is %q", h)
	}
}

func TestLostLeaseEndsTheMaster(t *testing.T) {
	cs := fakeapi.NewClientset()
	var stolen atomic.Bool
	cs.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if stolen.Load() {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), leaseName, errors.New("changed"))
		}
		return false, nil, nil
	})
	working, stopped := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		env := testEnv(cs)
		env.Config.MasterHA.LeaseDuration, env.Config.MasterHA.RenewDeadline = time.Second, 600*time.Millisecond
		ended <- lead(context.Background(), env, "n1", func(ctx context.Context) error {
			close(working)
			<-ctx.Done()
			close(stopped)
			return nil
		})
	}()
	eventually.Receive(t, "work", working)
	stolen.Store(true)
	if err := eventually.Receive(t, "lead", ended); !errors.Is(err, errLostLease) {
		t.Errorf("lead: %v", err)
	}
	eventually.Receive(t, "stop of work", stopped)
}

// TestStandby: a waiting master does nothing, takes over when the leader leaves, and ends cleanly
// while it waits.
func TestStandby(t *testing.T) {
	cs := fakeapi.NewClientset()
	order := make(chan string, 4)
	start := func(ctx context.Context, name string) <-chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- lead(ctx, testEnv(cs), name, func(ctx context.Context) error {
				order <- name
				<-ctx.Done()
				order <- name + " done"
				return nil
			})
		}()
		return ended
	}
	ctx1, stop1 := context.WithCancel(context.Background())
	ended1 := start(ctx1, "n1")
	got := []string{eventually.Receive(t, "n1", order)}
	ctx2, stop2 := context.WithCancel(context.Background())
	ended2 := start(ctx2, "n2")
	ctx3, stop3 := context.WithCancel(context.Background())
	ended3 := start(ctx3, "n3")
	eventually.True(t, "the masters that wait to say for whom", func() bool {
		return slices.ContainsFunc(waits.All(), func(w waits.Wait) bool {
			return w.Part == "leader election" && w.For == "the lease of the leader, which n1 has" && w.Reason == ""
		})
	})
	stop3()
	if err := eventually.Receive(t, "end of n3", ended3); err != nil {
		t.Errorf("n3: %v", err)
	}
	stop1()
	if err := eventually.Receive(t, "end of n1", ended1); err != nil {
		t.Errorf("n1: %v", err)
	}
	got = append(got, eventually.Receive(t, "order", order), eventually.Receive(t, "order", order))
	stop2()
	if err := eventually.Receive(t, "end of n2", ended2); err != nil {
		t.Errorf("n2: %v", err)
	}
	got = append(got, eventually.Receive(t, "order", order))
	if slices.ContainsFunc(waits.All(), func(w waits.Wait) bool { return w.Part == "leader election" }) {
		t.Error("somebody still waits for the lease")
	}
	if want := []string{"n1", "n1 done", "n2", "n2 done"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestNamespaceOfTheLeaseIsMade: a real API server rejects a lease in a namespace that does not
// exist.
func TestNamespaceOfTheLeaseIsMade(t *testing.T) {
	cs := fakeapi.NewClientset()
	var made atomic.Bool // reactors must not call the client they serve
	cs.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		made.Store(true)
		return false, nil, nil
	})
	cs.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !made.Load() {
			return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		}
		return false, nil, nil
	})
	err := lead(context.Background(), testEnv(cs), "n1", func(context.Context) error { return nil })
	if err != nil {
		t.Errorf("lead: %v", err)
	}
	if h := holder(t, cs); h != "" {
		t.Errorf("holder is %q", h)
	}
}
