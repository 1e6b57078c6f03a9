package master

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// attach does the part of pod/master for a new pod.
func (w *world) attach(key, where string, ips ...string) *corev1.Pod {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "new", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{}}, Spec: corev1.PodSpec{NodeName: where}}
	w.create(p)
	if mark := w.pending(p); mark != "" {
		w.changePod(key, func(p *corev1.Pod) { p.Annotations = map[string]string{kube.AnnotationEgressPending: mark} })
	}
	if err := w.writePort(context.Background(), p, ips...); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// pending returns the value of the pending annotation, once it is known.
func (w *world) pending(p *corev1.Pod) (mark string) {
	w.t.Helper()
	w.eventually("the annotation to be known", func() (ok bool) {
		var err error
		mark, err = w.master.Pending(p)
		return err == nil
	})
	return mark
}

// writePort does the part of pod/master for a pod that has addresses.
func (w *world) writePort(ctx context.Context, p *corev1.Pod, ips ...string) error {
	network := topology.PodNetwork{}
	for _, ip := range ips {
		network.Addrs = append(network.Addrs, topology.HostPrefix(addrs(ip)[0]))
	}
	owner, rows := portOf(kube.PodKey(p), p.Spec.NodeName, ips...)
	stats, err := w.master.Attach(ctx, p, network, owner, rows)
	if !stats.Zero() {
		w.master.Look(kube.PodKey(p))
	}
	return err
}

// detach does the part of pod/master for a deleted pod.
func (w *world) detach(key string) {
	w.t.Helper()
	if _, err := w.db.Apply(context.Background(), nb.Owner{Feature: portFeature, Object: key}, nil); err != nil {
		w.t.Fatal(err)
	}
	w.master.Look(key)
}

// isMarked reports whether a pod has the pending annotation.
func (w *world) isMarked(key string) bool {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	p, err := w.kube.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return isPending(p)
}

// TestNewPod: port, policies and translations are one transaction, and the pending annotation
// stays until chassis have them in force.
func TestNewPod(t *testing.T) {
	w := serving(t, prodIPs...)
	for _, chassis := range []string{"chassis-ovn-worker", "chassis-ovn-worker2", "chassis-ovn-control-plane"} {
		w.barrier.stop("all", true)
		w.writes()
		key, addr := "prod/on-"+chassis, "10.244.0.7"
		w.attach(key, "ovn-control-plane", addr)
		if got := w.hops(key, addr); got != "100.64.0.3 100.64.0.4" {
			t.Errorf("led to %s", got)
		}
		if got := slices.DeleteFunc(w.writes(), func(s string) bool { return !strings.HasPrefix(s, "rows") }); len(got) != 1 {
			t.Errorf("written in %q", got)
		}
		w.barrier.stop(chassis, true)
		w.barrier.stop("all", false)
		w.eventually("the other chassis", func() bool {
			w.master.podStates.mu.Lock()
			defer w.master.podStates.mu.Unlock()
			st := w.master.podStates.byKey[key]
			return st != nil && len(st.waits) == 1
		})
		if !w.isMarked(key) {
			t.Errorf("not marked before %s has it in force", chassis)
		}
		w.barrier.stop(chassis, false)
		w.eventually("the mark to go", func() bool { return !w.isMarked(key) })
	}
	w.programmed(prod)
}

// TestNewPodWaitsForItsEgressIP: a pod created together with its EgressIP is held back
// until a node holds the address, or until the timeout; then its traffic is dropped.
func TestNewPodWaitsForItsEgressIP(t *testing.T) {
	w := newWorld(t)
	w.start()
	for n := range hopOf {
		w.freeze(n, true)
	}
	w.create(egress(prod, prodIPs))
	w.eventually("a decision", func() bool { return w.holder(prod, "172.18.0.33") != "" })
	w.attach(web, "ovn-worker", webV4)
	if got := w.hops(web, webV4); got != "drop" {
		t.Errorf("led to %s before anybody is ready", got)
	}
	w.eventually("the patience to end", func() bool { return !w.isMarked(web) })
	if got := w.hops(web, webV4); got != "drop" {
		t.Errorf("led to %s before anybody is ready", got)
	}
	for n := range hopOf {
		w.freeze(n, false)
	}
	w.eventually("the next hops", func() bool { return w.hops(web, webV4) == "100.64.0.3 100.64.0.4" })
}

// TestLatePodWaitsForItsChassis: a pod that starts before its translations are in force
// does so when its chassis drops its traffic, and not while the chassis still leads it to
// a node that does not translate it.
func TestLatePodWaitsForItsChassis(t *testing.T) {
	w := serving(t, prodIPs...)
	for _, chassis := range []string{"chassis-ovn-worker", "chassis-ovn-worker2", "chassis-ovn-control-plane"} {
		w.barrier.stop(chassis, true)
	}
	const key, addr = "prod/late", "10.244.0.7"
	w.attach(key, "ovn-control-plane", addr)
	if got := w.hops(key, addr); got != "100.64.0.3 100.64.0.4" {
		t.Errorf("led to %s", got)
	}
	w.eventually("the patience to end", func() bool { return w.hops(key, addr) == "drop" })
	w.eventually("the chassis to be asked for the policies that drop", func() bool {
		w.master.podStates.mu.Lock()
		defer w.master.podStates.mu.Unlock()
		st := w.master.podStates.byKey[key]
		if st == nil || len(st.waits) != 3 {
			return false
		}
		if st.gate.state != egressip.Blocked {
			t.Fatal("may start though its chassis may lead it to where it is not translated")
		}
		return true
	})
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the mark to go", func() bool { return !w.isMarked(key) })
	if got := w.hops(key, addr); got != "drop" {
		t.Errorf("led to %s before it is translated there", got)
	}
	for _, chassis := range []string{"chassis-ovn-worker", "chassis-ovn-worker2"} {
		w.barrier.stop(chassis, false)
	}
	w.eventually("the next hops", func() bool { return w.hops(key, addr) == "100.64.0.3 100.64.0.4" })
}

// TestAttachWhileReconciled: a port is never written without the policies of its
// pod merely because the pod is being reconciled.
func TestAttachWhileReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, prodIPs...)
		w.pods.Follow() // a pod's worker waits until it is in this set
		const next, before, addr = "prod/next", "10.244.0.6", "10.244.0.7"
		owner, rows := portOf(next, "ovn-control-plane", before)
		if _, err := w.db.Apply(t.Context(), owner, rows); err != nil {
			t.Fatal(err)
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "next", UID: "new", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: "ovn-control-plane"}}
		w.create(p)
		synctest.Wait()
		attached := make(chan error, 1)
		go func() { attached <- w.writePort(t.Context(), p, addr) }()
		for _, step := range []struct{ port, led string }{{before, "none"}, {before, "none"}, {addr, "100.64.0.3 100.64.0.4"}} {
			synctest.Wait()
			if got := w.given(next, "new"); !slices.Equal(got, addrs(step.port)) || w.hops(next, addr) != step.led {
				t.Errorf("%s is led to %s, and the port has %v; want %+v", addr, w.hops(next, addr), got, step)
			}
			w.pods.Written(w.pods.Version())
		}
		if err := <-attached; err != nil {
			t.Error(err)
		}
	})
}

// TestAttachDelaysNobody: while pods wait for the rows of their EgressIP, the ports of others are
// written, however few workers there are.
func TestAttachDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, prodIPs...)
		w.pods.Follow() // a pod's worker waits until it is in this set
		const waiting, other = "prod/waiting", "prod/other"
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "waiting", UID: "new", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: "ovn-control-plane"}}
		w.create(p)
		written := make(chan string, 2)
		ports := queue.New("ports", func(ctx context.Context, key string) error {
			defer func() { written <- key }()
			if key == other {
				return nil
			}
			return w.writePort(ctx, p, "10.244.0.7")
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- ports.Run(ctx, 1) }()
		ports.Enqueue(waiting)
		synctest.Wait()
		ports.Enqueue(other)
		synctest.Wait()
		select {
		case key := <-written:
			if key != other {
				t.Errorf("%s did not wait", key)
			}
		default:
			t.Error("the other port waits, too")
		}
		for range 3 {
			w.pods.Written(w.pods.Version())
			synctest.Wait()
		}
		select {
		case key := <-written:
			if key != waiting {
				t.Errorf("%s was written again", key)
			}
		default:
			t.Errorf("%s still waits", waiting)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAttachFailed: a port whose pod's rows cannot be written fails, and can be written later.
func TestAttachFailed(t *testing.T) {
	w := serving(t, prodIPs...)
	const next, addr = "prod/next", "10.244.0.7"
	w.barrier.stop("all", true) // the pod stays pending, so that policies do not wait for translations
	p := w.attach(next, "ovn-control-plane", "10.244.0.6")
	for name, fail := range map[string]func() error{
		"refused": func() error { return errors.New("refused") }, errNotWritten.Error(): func() error { panic("nobody thought of this pod") },
	} {
		w.nb.FailWith(func(o nb.Owner) error {
			if o == egressip.Owner(next) {
				return fail()
			}
			return nil
		})
		if err := w.writePort(t.Context(), p, addr); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the outcome is %v", name, err)
		}
	}
	w.nb.FailWith(nil)
	if err := w.writePort(t.Context(), p, addr); err != nil {
		t.Error(err)
	}
	if got := w.hops(next, addr); got != "100.64.0.3 100.64.0.4" {
		t.Errorf("led to %s", got)
	}
}

// TestAttachedLate: a port that comes with an earlier state of its pod is written with the rows of the
// present one.
func TestAttachedLate(t *testing.T) {
	w := serving(t, prodIPs...)
	const next, addr = "prod/next", "10.244.0.7"
	before := w.attach(next, "ovn-control-plane", addr)
	w.changePod(next, func(p *corev1.Pod) { p.Labels["app"] = "none" })
	w.eventually("its rows to go", func() bool { return w.hops(next, addr) == "none" && w.nats(next) == "" })
	w.writes()
	if err := w.writePort(t.Context(), before, addr); err != nil {
		t.Fatal(err)
	}
	if got := w.writes(); len(got) > 0 {
		t.Errorf("wrote %q though no EgressIP selects the pod, and its port is there", got)
	}
}

// TestWaitsAfterFailure: pods wait for their chassis even if the rest of their batch cannot be written.
func TestWaitsAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, prodIPs...)
		const next = "prod/next"
		w.pods.Follow()
		w.pods.Set(next, addrs("10.244.0.7"))
		batch := newWork()
		batch.want[egressip.Owner(next)], batch.rerouted = nil, []string{next}
		w.master.await(batch.waits, next, "ovn-worker", reached{})
		if _, errs := w.master.apply(t.Context(), batch); len(errs) != 1 {
			t.Errorf("errors %v", errs)
		}
		synctest.Wait()
		if n := len(w.master.podStates.get(next).waits); n > 0 {
			t.Errorf("%d waits do not end", n)
		}
	})
}

// TestPanickingStep: a panic after the rows of a batch are written makes only its own pod fail.
func TestPanickingStep(t *testing.T) {
	w := serving(t, prodIPs...)
	batch, done := newWork(), false
	batch.write("prod/a", nil, func() { panic("nobody thought of this pod") })
	batch.write("prod/b", nil, func() { done = true })
	_, errs := w.master.apply(t.Context(), batch)
	if errs[egressip.Owner("prod/a")] == nil || errs[egressip.Owner("prod/b")] != nil || !done {
		t.Errorf("errors %v, the step of the other pod was taken: %t", errs, done)
	}
}

// TestStepsWithPort: the steps of a pod wait until its port is written.
func TestStepsWithPort(t *testing.T) {
	w := serving(t, prodIPs...)
	const next = "prod/next"
	owner, rows := portOf(next, "ovn-control-plane", "10.244.0.7")
	for _, refused := range []bool{true, false} {
		w.nb.FailWith(func(o nb.Owner) error {
			if refused && o == owner {
				return errors.New("refused")
			}
			return nil
		})
		batch, taken := newWork(), false
		batch.write(next, nil, func() { taken = true })
		batch.attach(next, &port{owner: owner, rows: rows})
		if w.master.apply(t.Context(), batch); taken == refused {
			t.Errorf("port refused %t, steps taken %t", refused, taken)
		}
	}
}

// TestUnmarked: pods whose traffic leaves unchanged need not wait.
func TestUnmarked(t *testing.T) {
	w := newWorld(t, egress(prod, []v1.Address{"10.244.0.1"}), egress("held", []v1.Address{"10.244.0.1"}, func(e *v1.EgressIP) {
		e.Spec.OnUnavailable, e.Spec.PodSelector.MatchLabels = v1.UnavailableDrop, map[string]string{"app": "db"}
	}))
	w.start()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "x", UID: "x", Labels: map[string]string{"app": "web"}}}
	if mark := w.pending(p); mark != "" {
		t.Errorf("marked %q though no address has a node", mark)
	}
	p.Labels["app"] = "db"
	if mark := w.pending(p); mark != "held" {
		t.Errorf("mark %q where traffic is to be dropped", mark)
	}
	p.Labels["app"] = "none"
	if mark := w.pending(p); mark != "" {
		t.Errorf("marked %q though nobody chooses it", mark)
	}
}

// TestStaleMark: the pending annotation of a deleted EgressIP is removed.
func TestStaleMark(t *testing.T) {
	w := newWorld(t)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "w", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{kube.AnnotationEgressPending: prod}}, Spec: corev1.PodSpec{NodeName: "ovn-worker"}}
	w.create(p)
	w.start()
	w.eventually("the mark to go", func() bool { return !w.isMarked(web) })
}
