package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
)

// answering answers after a delay, or never while it is silent.
type answering struct {
	took   time.Duration
	silent atomic.Bool
}

func (a *answering) Probe(ctx context.Context, node string, _ netip.Addr) error {
	if node == "n1" && a.silent.Load() {
		<-ctx.Done()
		return errors.New("silent")
	}
	<-time.After(a.took)
	return nil
}

// publishing is a leader with its tracker of three nodes, in a bubble.
type publishing struct {
	t       *testing.T
	kube    *fake.Clientset
	prober  *answering
	timeout time.Duration
}

// lead makes a leader publish for a while.
func (w *publishing) lead(d time.Duration, during ...func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	tracker := health.NewTracker(w.prober, w.timeout)
	targets := map[string][]netip.Addr{}
	for i := range 3 {
		targets[fmt.Sprintf("n%d", i+1)] = []netip.Addr{netip.AddrFrom4([4]byte{10, 244, byte(i), 2})}
	}
	tracker.SetTargets(targets)
	p := NewPublisher(w.kube, "ovn-kubernetes", tracker, w.timeout)
	done := make(chan error, 2)
	for _, run := range []func(context.Context) error{tracker.Run, p.Run} {
		go func() { done <- run(ctx) }()
	}
	<-time.After(d)
	synctest.Wait()
	for _, f := range during {
		f()
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// wrote returns how often the ConfigMap was written since the last call.
func (w *publishing) wrote() (n int) {
	for _, a := range w.kube.Actions() {
		switch a.GetVerb() {
		case "patch":
			n++
		case "get":
		default:
			w.t.Errorf("a %s of %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	w.kube.ClearActions()
	return n
}

// report returns what is published.
func (w *publishing) report() string {
	w.t.Helper()
	object, err := w.kube.CoreV1().ConfigMaps("ovn-kubernetes").Get(w.t.Context(), reachability.ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "nothing"
	}
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := reachability.Decode(object.Data[reachability.Key])
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for name, n := range r.Nodes {
		all = append(all, fmt.Sprintf("%s %s %d", name, n.State, n.LatencyMilliseconds))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func inBubble(t *testing.T, timeout time.Duration, f func(*publishing)) {
	synctest.Test(t, func(t *testing.T) {
		f(&publishing{t: t, kube: fake.NewClientset(), prober: &answering{took: 4 * time.Millisecond}, timeout: timeout})
	})
}

const wellKnown = "n1 Reachable 5, n2 Reachable 5, n3 Reachable 5"

// TestPublish: a leader publishes once, and then changes only; the next leader does not rewrite
// what is already there.
func TestPublish(t *testing.T) {
	inBubble(t, time.Second, func(w *publishing) {
		w.lead(60*time.Second, func() {
			if got, n := w.report(), w.wrote(); got != wellKnown || n != 1 {
				t.Errorf("published %q in %d writes", got, n)
			}
		})
		w.lead(60*time.Second, func() {
			if got, n := w.report(), w.wrote(); got != wellKnown || n != 0 {
				t.Errorf("the next leader published %q in %d writes", got, n)
			}
			w.prober.silent.Store(true)
			<-time.After(3 * time.Second)
			synctest.Wait()
			if got, n := w.report(), w.wrote(); got != "n1 Unreachable 0, n2 Reachable 5, n3 Reachable 5" || n != 1 {
				t.Errorf("after a loss it published %q in %d writes", got, n)
			}
			w.prober.silent.Store(false)
			<-time.After(reachability.Pause)
			synctest.Wait()
			if got, n := w.report(), w.wrote(); got != wellKnown || n != 1 {
				t.Errorf("when it was back it published %q in %d writes", got, n)
			}
			<-time.After(2*reachability.Refresh + reachability.Pause)
			synctest.Wait()
			if n := w.wrote(); n != 2 {
				t.Errorf("%d writes in two quiet intervals", n)
			}
		})
	})
}

// TestPublishUnprobed: if nothing is probed, nothing is published about any node.
func TestPublishUnprobed(t *testing.T) {
	inBubble(t, 0, func(w *publishing) {
		w.lead(time.Minute, func() {
			if got, n := w.report(), w.wrote(); got != "" || n != 1 {
				t.Errorf("published %q in %d writes", got, n)
			}
		})
	})
}

// TestPublishRefused: a failed write is retried later, and unreadable content is rewritten.
func TestPublishRefused(t *testing.T) {
	inBubble(t, time.Second, func(w *publishing) {
		var refuse atomic.Bool
		refuse.Store(true)
		w.kube.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, reachability.ConfigMap, errors.New("no rule"))
		})
		w.lead(2*time.Minute, func() {
			if n := w.wrote(); n < 2 || n > 20 {
				t.Errorf("tried %d times in two minutes", n)
			}
			refuse.Store(false)
			<-time.After(time.Minute) // it is retried at least every half minute
			synctest.Wait()
			if got := w.report(); got != wellKnown {
				t.Errorf("published %q", got)
			}
		})
		object, err := w.kube.CoreV1().ConfigMaps("ovn-kubernetes").Get(t.Context(), reachability.ConfigMap, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		object.Data[reachability.Key] = "{"
		if err := w.kube.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, object, "ovn-kubernetes"); err != nil {
			t.Fatal(err)
		}
		w.lead(time.Minute, func() {
			if got := w.report(); got != wellKnown {
				t.Errorf("published %q where there was something else", got)
			}
		})
	})
}
