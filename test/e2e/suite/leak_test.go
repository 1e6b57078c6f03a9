package suite

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	leakPort = 9999
	// leakEvents is how many failovers and restarts there are; LEAK_EVENTS overrides it. A ninth
	// kind, a long power loss, is tested by FailoverLatency, with the same checks of what leaves.
	leakEvents = 8
	// leakDown is how long processes are kept from running; LEAK_DOWN overrides it.
	leakDown = 5 * time.Second
	// leakPatience is how long traffic may take to flow again afterwards.
	leakPatience = 90 * time.Second
)

var leakIngress = []netip.Addr{netip.MustParseAddr("5.5.5.6"), netip.MustParseAddr("5555::6")}

// leak has pods send continuously while their host fails over and processes are killed, and checks
// every packet that comes out: none may have a source other than the load balancer's.
func (s *suite) leak(t *testing.T) { s.noLeak(t, number("LEAK_EVENTS", leakEvents)) }

// noLeak is leak with the given number of failovers and restarts.
func (s *suite) noLeak(t *testing.T, events int) {
	down := leakDown
	if d, err := time.ParseDuration(os.Getenv("LEAK_DOWN")); err == nil && d > 0 {
		down = d
	}
	l := s.beginLeak(t, down)
	const master, node = "ovnkube-master", "ovnkube-node"
	steps := []struct {
		name string
		run  func(t *testing.T)
	}{
		{"host's ovnkube killed", func(t *testing.T) { l.killProcess(t, nodeProcess(l.host(t))) }},
		{"host cordoned", l.moveAway},
		{"master killed", func(t *testing.T) { l.killProcess(t, processes[0]) }},
		{"host's ovnkube does not run", func(t *testing.T) { l.absent(t, map[string]string{l.host(t): node}) }},
		{"host reboots at once", l.reboot},
		{"host's ovnkube and master killed", func(t *testing.T) {
			l.killProcess(t, nodeProcess(l.host(t)))
			l.killProcess(t, processes[0])
		}},
		{"master does not run", func(t *testing.T) { l.absent(t, map[string]string{lab.ControlPlane: master}) }},
		{"neither host's ovnkube nor master runs", func(t *testing.T) {
			l.absent(t, map[string]string{l.host(t): node, lab.ControlPlane: master})
		}},
		{"host loses power", l.powerFailure},
	}
	right := 0
	var gaps []time.Duration
	for i := range events {
		step := steps[i%len(steps)]
		l.gap = 0
		t.Run(fmt.Sprintf("%d %s", i+1, step.name), step.run)
		l.capture.arrives(t, 0, time.Now())
		if l.gap > 0 {
			gaps = append(gaps, l.gap)
		}
		if right = l.capture.inspect(t); t.Failed() {
			return
		}
	}
	t.Logf("%d events, %d packets with the right source, none with another", events, right)
	if len(gaps) > 0 {
		figures.Record(t, "EgressService, failover with leaks looked for", figures.EgressServiceFailover, gaps...)
	}
}

// leakTest is the test in progress.
type leakTest struct {
	*served
	capture *capture
	down    time.Duration
	gap     time.Duration // from the last power failure to the next packet
}

func nodeProcess(node string) process {
	return process{name: "ovnkube node of " + node, node: node, pattern: "ovnkube .*--init-node", ready: 9410}
}

func (s *suite) beginLeak(t *testing.T, down time.Duration) *leakTest {
	l := &leakTest{down: down}
	// A node that just came back is not a candidate for a moment, and the other may fail then:
	// nothing may leave in between.
	l.served = s.serve(t, "sender", leakIngress, func(eg *v1.EgressService) { eg.Spec.OnUnavailable = v1.UnavailableDrop })
	l.programmed(t, "")
	// From here on everything counts, including the pods' first packets.
	l.capture = newCapture(t, s, leakPort, leakPort, leakIngress)
	for _, node := range nodes {
		l.startPod(t, node)
	}
	for _, node := range nodes {
		l.runs(t, node, "")
	}
	l.steered(t, len(nodes))
	return l
}

// startPod starts the sender on a node.
func (l *leakTest) startPod(t *testing.T, node string) {
	t.Helper()
	if err := l.StartSender(t.Context(), lab.Sender{Name: l.podOn(node), Node: node, Labels: l.labels(),
		To: lab.OutsideAddresses, Port: leakPort}); err != nil {
		t.Fatal(err)
	}
}

func (l *leakTest) podOn(node string) string { return l.name + "-" + node }

// runs waits until the pod on a node runs in another container than before, and returns its ID. The
// container's status may be stale, but its ID never is.
func (l *leakTest) runs(t *testing.T, node, before string) (container string) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the pod of "+node+" to run", func(ctx context.Context) error {
		pod, err := l.Kube.CoreV1().Pods(lab.Namespace).Get(ctx, l.podOn(node), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running != nil && c.ContainerID != before {
				container = c.ContainerID
				return nil
			}
		}
		return fmt.Errorf("status %+v", pod.Status)
	})
	if err != nil {
		t.Fatal(err)
	}
	return container
}

func (l *leakTest) host(t *testing.T) string {
	t.Helper()
	eg, err := l.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(t.Context(), l.name, metav1.GetOptions{})
	if err != nil || eg.Status.Host == "" {
		t.Fatalf("no host: %+v, %v", eg.Status, err)
	}
	return eg.Status.Host
}

// powerFailure kills the host, waits until the other node serves, and starts it.
func (l *leakTest) powerFailure(t *testing.T) {
	host := l.host(t)
	container := l.runs(t, host, "")
	l.capture.release(t, host)
	began := time.Now() // the power goes a little later, so the gap is an upper bound
	if err := l.Kin.Node(t.Context(), "kill", host); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	next := l.programmed(t, host)
	l.gap = l.capture.arrives(t, 0, died).Sub(began)
	t.Logf("%s took over from %s; the first packet came at most %s after the power went", next, host, l.gap)
	l.boot(t, host, container)
}

// boot starts the host and waits until its pod is served again. The pod ran in the given container
// before, and Kubernetes forgets its addresses for a moment; in the end every pod has a policy in
// both families.
func (l *leakTest) boot(t *testing.T, host, container string) {
	t.Helper()
	l.powerOn(t, host)
	l.capture.tap(t, host)
	l.runs(t, host, container)
	l.steered(t, len(nodes))
}

// reboot cuts the host's power for a moment, perhaps too short for anything to notice.
func (l *leakTest) reboot(t *testing.T) {
	host := l.host(t)
	container := l.runs(t, host, "")
	l.capture.release(t, host)
	if err := l.Kin.Node(t.Context(), "kill", host); err != nil {
		t.Fatal(err)
	}
	l.boot(t, host, container)
	l.programmed(t, "")
}

// moveAway makes the host unschedulable until another node serves.
func (l *leakTest) moveAway(t *testing.T) {
	host := l.host(t)
	l.cordon(t, host, true)
	l.programmed(t, host)
	l.cordon(t, host, false)
}

func (l *leakTest) killProcess(t *testing.T, p process) {
	l.kill(t, p)
	l.programmed(t, "")
}

// absent keeps daemons, by node, from running for a while. Meanwhile a pod is replaced, and no
// daemon is there to serve the new one.
func (l *leakTest) absent(t *testing.T, daemons map[string]string) {
	each := func(action string) {
		for node, daemon := range daemons {
			if err := l.Service(t.Context(), action, node, daemon); err != nil {
				t.Fatal(err)
			}
		}
	}
	var where string
	for _, node := range nodes {
		if daemons[node] != "ovnkube-node" {
			where = node
		}
	}
	each("stop")
	back := time.After(l.down)
	if err := l.DeletePod(t.Context(), l.podOn(where)); err != nil {
		t.Fatal(err)
	}
	l.startPod(t, where)
	<-back
	each("start")
	l.runs(t, where, "")
	l.steered(t, len(nodes))
	l.programmed(t, "")
}
