package suite

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// startsEvery is the interval at which pods are created: 20 a second.
	startsEvery = 50 * time.Millisecond
	// churnEvery is the interval at which the EgressIP's pods change meanwhile.
	churnEvery = 200 * time.Millisecond
	// firstAnswer is how long a pod may be without an answer once it has started, in addition to
	// twice the time of other pods: packets of a pod that is not served yet are dropped while its
	// EgressIP changes.
	firstAnswer = 2 * time.Second
	// waveLabel is the label of the pods of a wave.
	waveLabel = "e2e-wave"
)

// starts creates many pods of an EgressIP on another network, 20 a second, while the EgressIP's
// pods change all the time. They must start about as fast as other pods do at the time, and be
// served from the start.
func (e *egressIPTest) starts(t *testing.T, count int) {
	e.choose(t, storageName, "egress-0")
	end := e.churnPods(t) // during both waves: the nodes share this machine's processors
	plain, plainGap := e.wave(t, "plain", count, nil, lab.OutsideAddresses)
	figures.Record(t, "pods: p95 of the time to start", figures.Start, plain)
	served, servedGap := e.wave(t, "served", count, chosen(storageName), shoreIPs)
	changes := end()
	t.Logf("%d pods, %d changes of others of their EgressIP", count, changes)
	figures.Record(t, "pods of an EgressIP on another network: p95 of the time to start", figures.StartServed(plain), served)
	if allowed := 2*plainGap + time.Duration(float64(firstAnswer)*figures.Slowness()); servedGap > allowed {
		t.Errorf("a pod of the EgressIP was without an answer for %s, others for %s", servedGap, plainGap)
	}
	e.choose(t, storageName, "egress-0", "egress-1")
}

// churnPods has the EgressIP select a pod and deselect it, repeatedly, until end is called, which
// returns how often.
func (e *egressIPTest) churnPods(t *testing.T) (end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		n := 0
		for tick := time.NewTicker(churnEvery); ; n++ {
			value := []string{`"` + storageName + `"`, "null"}[n%2]
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, egressLabel, value)
			if _, err := e.Kube.CoreV1().Pods(lab.Namespace).Patch(ctx, "egress-1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				done <- n
				return
			}
		}
	}()
	return func() int {
		cancel()
		return <-done
	}
}

// wave creates pods that query addresses, deletes them once all are ready, and returns the 95th
// percentile of the time until they were ready, and the longest time that one of them was without
// an answer after it had started.
func (e *egressIPTest) wave(t *testing.T, name string, count int, labels map[string]string, to []netip.Addr) (p95, gap time.Duration) {
	t.Helper()
	made, names := map[string]time.Time{}, make([]string, count)
	watch, err := e.Kube.CoreV1().Pods(lab.Namespace).Watch(t.Context(), metav1.ListOptions{LabelSelector: waveLabel + "=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	t.Cleanup(func() { e.deletePods(t, names) })
	all := map[string]string{waveLabel: name}
	for k, v := range labels {
		all[k] = v
	}
	tick := time.NewTicker(startsEvery)
	defer tick.Stop()
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", name, i)
		made[names[i]] = time.Now()
		if err := e.StartPulse(t.Context(), startsEvery, names[i], nodes[i%len(nodes)], all, to); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	var took []time.Duration
	limit := time.After(leakPatience + time.Duration(count)*2*time.Second)
	for len(made) > 0 {
		select {
		case event, ok := <-watch.ResultChan():
			pod, is := event.Object.(*corev1.Pod)
			if !ok || !is {
				t.Fatalf("the watch ended: %+v", event)
			}
			began, waits := made[pod.Name]
			ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if waits && ready {
				took = append(took, time.Since(began))
				delete(made, pod.Name)
			}
		case <-limit:
			t.Fatalf("%d of %d pods are not ready", len(made), count)
		}
	}
	gap = e.longestGap(t, names, to)
	e.deletePods(t, names)
	slices.Sort(took)
	p95 = took[(count*95+99)/100-1]
	t.Logf("%d pods %s: median %s, p95 %s, worst %s to start, then up to %s without an answer",
		count, name, took[count/2].Round(time.Millisecond), p95.Round(time.Millisecond), took[count-1].Round(time.Millisecond), gap)
	return p95, gap
}

// longestGap returns the longest time that one of several pods was without an answer since it had
// started.
func (e *egressIPTest) longestGap(t *testing.T, pods []string, to []netip.Addr) (longest time.Duration) {
	t.Helper()
	for _, name := range pods {
		reports, err := e.Pulses(t.Context(), name, false)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, addr := range to {
			r := reports[addr]
			if r.Echoed == 0 {
				t.Errorf("%s has got no answer from %s", name, addr)
			}
			longest = max(longest, r.MaxGap())
		}
	}
	return longest
}
