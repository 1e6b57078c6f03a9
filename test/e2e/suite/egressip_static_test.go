package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

// staticPatience is how long the kubelet may take to recreate a mirror pod that was deleted without
// a grace period: it syncs a pod at least every minute and a half.
const staticPatience = 110 * time.Second

// staticPod deletes the mirror pod of a static pod that queries the outside host all the time: the
// pod must keep its addresses and its egress addresses, no packet may leave with others, and
// everything must be there for the next mirror pod.
func (e *egressIPTest) staticPod(t *testing.T) {
	const name, node = "static", "ovn-worker2"
	ips := addresses("172.18.0.205", "fc00:f853:ccd:e793::205")
	e.assignable(t, "ovn-worker")
	e.create(t, name, ips, held)
	e.programmed(t, name)
	c := newCapture(t, e.suite, lab.ServePort, lab.ServePort, ips)
	pod, end, err := e.RunStaticPulse(t.Context(), name, node, chosen(name), lab.OutsideAddresses)
	t.Cleanup(func() { // staticPodGone waits for the rest
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := end(ctx); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	e.static = pod.Name
	e.pulsing(t, pod.Name)
	port, said := e.port(t, pod.Name), e.said(t, pod.Name)
	ways := []struct {
		name    string
		options metav1.DeleteOptions
	}{{"Gracefully", metav1.DeleteOptions{}}, {"AtOnce", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}}}
	if !labtest.Full() {
		ways = ways[:1]
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			was, err := e.Kube.CoreV1().Pods(lab.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Pulses(t.Context(), pod.Name, true); err != nil {
				t.Fatal(err)
			}
			if err := e.Kube.CoreV1().Pods(lab.Namespace).Delete(t.Context(), pod.Name, way.options); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = lab.Until(t.Context(), staticPatience, "the next mirror to say what the pod has", func(ctx context.Context) error {
				now, err := e.Kube.CoreV1().Pods(lab.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if now.UID == was.UID {
					return fmt.Errorf("it is the mirror before, deleted %s", now.DeletionTimestamp)
				}
				if got := e.said(t, pod.Name); got != said {
					return fmt.Errorf("it says %q", got)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("the next mirror was there after %s", time.Since(began).Round(time.Millisecond))
			e.pulsing(t, pod.Name)
			reports, err := e.Pulses(t.Context(), pod.Name, false)
			if err != nil {
				t.Fatal(err)
			}
			var gaps []time.Duration
			for _, r := range reports {
				gaps = append(gaps, r.MaxGap())
			}
			figures.Record(t, "EgressIP, new connections: mirror of a static pod deleted", figures.Undisturbed, gaps...)
			c.inspect(t)
			if now := e.port(t, pod.Name); now != port {
				t.Errorf("its port has %s, not %s", now, port)
			}
			now, err := e.WaitPod(t.Context(), pod.Name, time.Minute)
			if err != nil || !slices.Equal(now.Addresses, pod.Addresses) {
				t.Errorf("it has %v, not %v: %v", now.Addresses, pod.Addresses, err)
			}
			for _, a := range pod.Addresses {
				if seen, err := e.SeenFromPod(t.Context(), pod.Name, e.servers["a"].Address(a.Is4())); err != nil || seen != a {
					t.Errorf("it is seen as %s, not %s: %v", seen, a, err)
				}
			}
		})
	}
}

// staticPodGone waits until nothing is left of a static pod whose manifest was removed.
func (e *egressIPTest) staticPodGone(t *testing.T) {
	t.Helper()
	if e.static == "" {
		return
	}
	if err := e.AwaitGone(t.Context(), e.static); err != nil {
		t.Error(err)
	}
	err := lab.Until(t.Context(), kube.MirrorGrace+egressPatience, "the port of the static pod to go", func(ctx context.Context) error {
		out, err := e.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "--bare", "--columns=name", "find", "Logical_Switch_Port",
			"name="+lab.Namespace+"_"+e.static)
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("it is there: %s", out)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// pulsing waits until a pulse currently gets answers.
func (e *egressIPTest) pulsing(t *testing.T, pod string) {
	t.Helper()
	first := map[string]int{}
	err := lab.Until(t.Context(), leakPatience, pod+" to get answers", func(ctx context.Context) error {
		reports, err := e.Pulses(ctx, pod, false)
		if err != nil {
			return err
		}
		for _, to := range lab.OutsideAddresses {
			was, known := first[to.String()]
			if !known {
				first[to.String()] = reports[to].Echoed
			}
			if !known || reports[to].Echoed < was+20 {
				return fmt.Errorf("answers from %s: %+v", to, reports[to])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
