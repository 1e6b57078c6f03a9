package metallb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// Names and numbers from the files in testdata.
const (
	namespace = "some-namespace"
	service   = "example-service"
	nodesAS   = 64501
)

var (
	ingress = netip.MustParseAddr("172.19.0.100")
	outside = lab.OutsideAddresses[0]
)

// example is the documented example: an address from a pool, advertised by BGP to an outside router
// by the node that serves the EgressService and by no other.
type example struct {
	*cluster
	router   lab.Router
	pods     []string
	watchers []*watcher
	captures map[string]*lab.Capture // by machine
}

func (c *cluster) example(t *testing.T) {
	router, err := c.AddRouter(t.Context(), nodesAS)
	if err != nil {
		t.Fatal(err)
	}
	// The outside host reaches the pool only through the router.
	if _, err := c.Kin.Exec(t.Context(), lab.Outside, "ip", "route", "replace", "172.19.0.0/24", "via", router.Addresses[0].String()); err != nil {
		t.Fatal(err)
	}
	c.apply(t, "peer.yaml", "service.yaml")
	e := &example{cluster: c, router: router, captures: map[string]*lab.Capture{}}
	host := e.host(t, "")
	// Endpoints that survive the failure of the host, one of them on a node that will become the
	// host.
	for _, node := range nodes {
		if node != host {
			e.runPod(t, node)
		}
	}
	e.sessions(t)
	e.advertise(t, host)
	e.serve(t)
	next := e.powerFailure(t, host)
	e.cordon(t, next)
	e.judge(t)
	// Without the Service, no node advertises its address.
	c.kubectl(t, "delete", "namespace", namespace, "--wait=false")
	e.advertised(t)
}

// host waits until a node other than not is the host and programmed, and returns it.
func (e *example) host(t *testing.T, not string) (host string) {
	t.Helper()
	until(t, "the EgressService to be programmed", func(ctx context.Context) error {
		eg, err := e.Egress.EgressServiceV1().EgressServices(namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if host = eg.Status.Host; host == "" || host == not || !meta.IsStatusConditionTrue(eg.Status.Conditions, v1.ConditionProgrammed) {
			return fmt.Errorf("status %+v", eg.Status)
		}
		return nil
	})
	svc, err := e.Kube.CoreV1().Services(namespace).Get(t.Context(), service, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := svc.Status.LoadBalancer.Ingress; len(got) != 1 || got[0].IP != ingress.String() {
		t.Errorf("ingress addresses of the Service: %+v, want %s", got, ingress)
	}
	return host
}

func (e *example) runPod(t *testing.T, node string) {
	t.Helper()
	var grace int64
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node, Labels: map[string]string{"app": "example"}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "probe", Image: lab.ProbeImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{"serve", "-port", fmt.Sprint(lab.ServePort)},
			}},
		},
	}
	if _, err := e.Kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, "wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s", "pod/"+pod.Name)
	e.pods = append(e.pods, pod.Name)
}

// advertise checks that the label decides which node advertises; without the selector all nodes do.
func (e *example) advertise(t *testing.T, host string) {
	t.Helper()
	e.advertised(t)
	e.apply(t, "advertisement.yaml")
	e.advertised(t, host)
	e.kubectl(t, "patch", "bgpadvertisement", "example-bgp-adv", "-n", "metallb-system", "--type=json",
		"-p", `[{"op":"remove","path":"/spec/nodeSelectors"}]`)
	e.advertised(t, nodes...)
	e.apply(t, "advertisement.yaml")
	e.advertised(t, host)
}

// advertised waits until exactly these nodes are the router's next hops for the address.
func (e *example) advertised(t *testing.T, by ...string) {
	t.Helper()
	want := []netip.Addr{}
	for _, node := range by {
		addresses, err := e.NodeAddresses(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, addresses[0])
	}
	slices.SortFunc(want, netip.Addr.Compare)
	until(t, fmt.Sprintf("the router to hear of %s from %v", ingress, by), func(ctx context.Context) error {
		have, err := e.NextHops(ctx, e.router, ingress)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("next hops are %v, want %v", have, want)
		}
		return err
	})
}

// sessions waits until the router has a session with every node.
func (e *example) sessions(t *testing.T) {
	t.Helper()
	until(t, "BGP sessions with all nodes", func(ctx context.Context) error {
		peers, err := e.BGPPeers(ctx, e.router)
		if err == nil && len(peers) != len(nodes) {
			err = fmt.Errorf("there are sessions with %v", peers)
		}
		return err
	})
}

// speaks waits until a speaker runs on the node that started after the given time: for a while
// after a boot, the API server still has the status of the previous one.
func (e *example) speaks(t *testing.T, node string, after time.Time) {
	t.Helper()
	until(t, "the speaker of "+node, func(ctx context.Context) error {
		list, err := e.Kube.CoreV1().Pods("metallb-system").List(ctx, metav1.ListOptions{
			LabelSelector: "component=speaker", FieldSelector: "spec.nodeName=" + node,
		})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			for _, c := range pod.Status.ContainerStatuses {
				// The API has a precision of a second.
				if c.Ready && c.State.Running != nil && !c.State.Running.StartedAt.Time.Before(after.Truncate(time.Second)) {
					return nil
				}
			}
		}
		return fmt.Errorf("it did not start again since %s", after)
	})
}

// serve waits until both directions work, and starts to watch them.
func (e *example) serve(t *testing.T) {
	t.Helper()
	// From now on, nothing may leave with another address.
	if _, err := e.Egress.EgressServiceV1().EgressServices(namespace).Patch(t.Context(), service, types.MergePatchType,
		[]byte(`{"spec":{"onUnavailable":"Drop"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range e.pods {
		until(t, pod+" to be seen as "+ingress.String(), func(ctx context.Context) error {
			out, err := lab.Run(ctx, append(e.Kubectl(), "exec", "-n", namespace, pod, "--", "/probe", "get", lab.URL(outside, "/clientip"))...)
			if seen := strings.TrimSpace(out); err == nil && seen != ingress.String() {
				err = fmt.Errorf("it was seen as %q", seen)
			}
			return err
		})
	}
	for _, machine := range append([]string{lab.Outside}, nodes...) {
		e.capture(t, machine)
	}
	e.watchers = append(e.watchers, e.watchFromOutside(t, e.pods))
	for _, pod := range e.pods {
		e.watchers = append(e.watchers, e.watchFromPod(t, namespace, pod))
	}
	e.going(t, time.Now())
}

func (e *example) going(t *testing.T, after time.Time) {
	t.Helper()
	for _, w := range e.watchers {
		w.going(t, after)
	}
}

// powerFailure kills the host: the next one serves both directions, and still does when the first
// is back.
func (e *example) powerFailure(t *testing.T, host string) (next string) {
	e.inspect(t, host) // what was captured goes with the power
	began := time.Now()
	if err := e.Kin.Node(t.Context(), "kill", host); err != nil {
		t.Fatal(err)
	}
	next = e.host(t, host)
	assigned := time.Since(began)
	e.advertised(t, next)
	advertised := time.Since(began)
	e.going(t, time.Now())
	t.Logf("%s lost its power: %s was programmed after %s, the router's only way after %s", host, next,
		assigned.Round(time.Millisecond), advertised.Round(time.Millisecond))
	e.gaps(t, "power failure", figures.MetalLBFailover, began)
	// Once back, the node has a session again, but takes nothing from the other.
	booted := time.Now()
	if err := e.Kin.Node(t.Context(), "start", host); err != nil {
		t.Fatal(err)
	}
	e.capture(t, host)
	e.speaks(t, host, booted)
	e.sessions(t)
	e.advertised(t, next)
	return next
}

// cordon makes the host unschedulable: another node takes over while the host is still alive.
func (e *example) cordon(t *testing.T, host string) {
	began := time.Now()
	e.kubectl(t, "cordon", host)
	next := e.host(t, host)
	e.advertised(t, next)
	e.going(t, time.Now())
	t.Logf("%s was cordoned: %s took over", host, next)
	e.gaps(t, "planned move", figures.MetalLBMove, began)
	e.kubectl(t, "uncordon", host)
}

// gaps records the longest times without an answer since the given time, for connections opened by
// pods and for those from outside.
func (e *example) gaps(t *testing.T, what string, bound figures.Bound, after time.Time) {
	t.Helper()
	gaps := map[string][]time.Duration{}
	for _, w := range e.watchers {
		gap := w.gap(t, after)
		t.Logf("%s: at most %s without an answer", w.name, gap.Round(time.Millisecond))
		gaps[w.direction] = append(gaps[w.direction], gap)
	}
	for _, direction := range []string{fromOutside, fromPods} {
		figures.Record(t, fmt.Sprintf("MetalLB with BGP, new connections %s: %s", direction, what), bound, gaps[direction]...)
	}
}

// judge checks all answers and packets.
func (e *example) judge(t *testing.T) {
	t.Helper()
	for _, w := range e.watchers {
		got, err := w.answers()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range got {
			if !slices.Contains(w.want, a.text) {
				t.Errorf("%s at %s: %q, want one of %v", w.name, a.at, a.text, w.want)
			}
		}
		t.Logf("%s: %d answers", w.name, len(got))
	}
	for machine := range e.captures {
		e.inspect(t, machine)
	}
}
