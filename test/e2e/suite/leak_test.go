package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/kin"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	leakService = "sender"
	leakPort    = 9999
	// leakEvents is how many failovers and restarts there are; LEAK_EVENTS
	// replaces it.
	leakEvents = 6
	// leakPatience is how long traffic may take to flow again after one.
	leakPatience = 90 * time.Second
)

var leakIngress = []string{"5.5.5.6", "5555::6"}

// leak has pods send without end while their host fails over and processes are
// killed, and looks at every packet that comes out: none may have any source but
// the load balancer's.
func (s *suite) leak(t *testing.T) {
	events := leakEvents
	if n, err := strconv.Atoi(os.Getenv("LEAK_EVENTS")); err == nil && n > 0 {
		events = n
	}
	l := &leakTest{suite: s, captures: map[string]*kin.Attached{}, restarts: map[string]int32{}}
	t.Cleanup(func() { l.end(t) })
	l.begin(t)
	l.capture(t, lab.Outside)
	for _, node := range nodes {
		l.capture(t, node)
	}
	steps := []struct {
		name string
		run  func(t *testing.T)
	}{
		{"host loses power", l.powerFailure},
		{"host's ovnkube killed", func(t *testing.T) { l.killProcess(t, nodeProcess(l.host(t))) }},
		{"host cordoned", l.cordon},
		{"master killed", func(t *testing.T) { l.killProcess(t, processes[0]) }},
		{"host reboots at once", l.reboot},
		{"host's ovnkube and master killed", func(t *testing.T) {
			l.killProcess(t, nodeProcess(l.host(t)))
			l.killProcess(t, processes[0])
		}},
	}
	var gaps []time.Duration
	for i := range events {
		step := steps[i%len(steps)]
		l.gap = 0
		t.Run(fmt.Sprintf("%d %s", i+1, step.name), step.run)
		l.flowing(t)
		if l.gap > 0 {
			gaps = append(gaps, l.gap)
		}
		if l.inspect(t); t.Failed() {
			return
		}
	}
	slices.Sort(gaps)
	t.Logf("%d events, %d packets with the right source, none with another", events, l.right)
	if len(gaps) > 0 {
		t.Logf("power failure to the first right packet by the next host: %v, worst %s", gaps, gaps[len(gaps)-1])
	}
}

// leakTest is the test under way.
type leakTest struct {
	*suite
	captures map[string]*kin.Attached
	restarts map[string]int32 // of the pod of each node, as far as waited for
	right    int
	gap      time.Duration // from the last power failure to the first packet after
}

func nodeProcess(node string) process {
	return process{name: "ovnkube node of " + node, node: node, pattern: "ovnkube .*--init-node", ready: 9410}
}

func (l *leakTest) begin(t *testing.T) {
	ctx := t.Context()
	for _, node := range nodes[1:] {
		patch := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/worker":""}}}`)
		if _, err := l.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	policy := corev1.IPFamilyPolicyRequireDualStack
	svc, err := l.Kube.CoreV1().Services(lab.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: leakService},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &policy,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Selector:   map[string]string{"app": leakService}, Ports: []corev1.ServicePort{{Port: 80}},
			// A pod of a node that restarts is served from its first packet.
			PublishNotReadyAddresses: true,
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range leakIngress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	if _, err := l.Kube.CoreV1().Services(lab.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		if _, err := l.RunSender(ctx, leakService+"-"+node, node, map[string]string{"app": leakService}, lab.OutsideAddresses, leakPort); err != nil {
			t.Fatal(err)
		}
	}
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: leakService}}
	// A node that just came back is no candidate for a moment, and the other may be
	// lost then: nothing may leave in between.
	eg.Spec.OnUnavailable = v1.UnavailableDrop
	eg.Spec.NodeSelector.MatchLabels = map[string]string{"node-role.kubernetes.io/worker": ""}
	if _, err := l.Egress.EgressServiceV1().EgressServices(lab.Namespace).Create(ctx, eg, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// All six flows leave by the host before anybody looks for others.
	l.programmed(t, "")
	l.settled(t)
}

// settled waits until three looks in a row, each for a while, show no packet with
// another source: the other nodes follow the policies a little after they are
// written.
func (l *leakTest) settled(t *testing.T) {
	t.Helper()
	clean := 0
	err := lab.Until(t.Context(), leakPatience, "the traffic to leave by its host", func(ctx context.Context) error {
		out, err := l.Kin.Exec(ctx, lab.Outside, "sh", "-c",
			fmt.Sprintf("timeout 0.5 tcpdump --immediate-mode -nni eth0 'udp dst port %d' 2>/dev/null || true", leakPort))
		if err != nil {
			return err
		}
		right, wrong, _ := sources(out)
		if right == 0 || len(wrong) > 0 {
			clean = 0
			return fmt.Errorf("%d packets are right, others are from %v", right, wrong)
		}
		if clean++; clean < 3 {
			return fmt.Errorf("clean %d times", clean)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sources counts packets in the output of tcpdump: those with the right source,
// and the others by source; and the time of the last right one.
func sources(out string) (right int, wrong map[string]int, last time.Time) {
	wrong = map[string]int{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		i := slices.IndexFunc(fields, func(f string) bool { return f == ">" })
		if i < 1 {
			continue
		}
		at := strings.LastIndex(fields[i-1], ".")
		if at < 0 {
			continue
		}
		src := fields[i-1][:at]
		if _, err := netip.ParseAddr(src); err != nil {
			continue
		}
		if !slices.Contains(leakIngress, src) {
			wrong[src]++
			continue
		}
		right++
		if seconds, err := strconv.ParseFloat(fields[0], 64); err == nil {
			last = time.UnixMicro(int64(seconds * 1e6))
		}
	}
	return right, wrong, last
}

// capture keeps what a machine's uplink sends, or the outside host receives, in a
// file of the machine.
func (l *leakTest) capture(t *testing.T, machine string) {
	t.Helper()
	filter := fmt.Sprintf("udp dst port %d", leakPort)
	if machine != lab.Outside { // a node forwards what is right by the thousand
		filter += fmt.Sprintf(" and not (src host %s or src host %s)", leakIngress[0], leakIngress[1])
	}
	a, err := l.Kin.ExecAttached(machine, "sh", "-c",
		`tcpdump --immediate-mode -ttnnl -i eth0 "$0" >/run/leak 2>/run/leak.err & cat >/dev/null; kill $!`, filter)
	if err != nil {
		t.Fatal(err)
	}
	l.captures[machine] = a
	err = lab.Until(t.Context(), 20*time.Second, "the capture on "+machine, func(ctx context.Context) error {
		_, err := l.Kin.Exec(ctx, machine, "grep", "-q", "listening on", "/run/leak.err")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inspect fails for packets with a wrong source, anywhere.
func (l *leakTest) inspect(t *testing.T) {
	t.Helper()
	for _, machine := range slices.Sorted(maps.Keys(l.captures)) {
		out, err := l.Kin.Exec(t.Context(), machine, "cat", "/run/leak")
		if err != nil {
			t.Fatal(err)
		}
		right, wrong, _ := sources(out)
		if machine == lab.Outside {
			l.right = right
		}
		if len(wrong) > 0 {
			t.Errorf("seen at %s with a wrong source: %v", machine, wrong)
			for line := range strings.Lines(out) {
				if _, wrong, _ := sources(line); len(wrong) > 0 {
					t.Logf("%s: %s", machine, line)
				}
			}
		}
	}
}

func (l *leakTest) status(ctx context.Context) (v1.EgressServiceStatus, error) {
	eg, err := l.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(ctx, leakService, metav1.GetOptions{})
	if err != nil {
		return v1.EgressServiceStatus{}, err
	}
	return eg.Status, nil
}

func (l *leakTest) host(t *testing.T) string {
	t.Helper()
	status, err := l.status(t.Context())
	if err != nil || status.Host == "" {
		t.Fatalf("no host: %+v, %v", status, err)
	}
	return status.Host
}

// programmed waits until another node than not serves, and returns it.
func (l *leakTest) programmed(t *testing.T, not string) (host string) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the EgressService to be programmed", func(ctx context.Context) error {
		status, err := l.status(ctx)
		if err != nil {
			return err
		}
		if host = status.Host; host == "" || host == not || !meta.IsStatusConditionTrue(status.Conditions, v1.ConditionProgrammed) {
			return fmt.Errorf("status %+v", status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// flowing waits until the outside host receives right packets now.
func (l *leakTest) flowing(t *testing.T) {
	t.Helper()
	l.arrives(t, time.Now())
}

// arrives waits for a right packet after a moment and returns when it came.
func (l *leakTest) arrives(t *testing.T, after time.Time) (at time.Time) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "right packets to arrive", func(ctx context.Context) error {
		out, err := l.Kin.Exec(ctx, lab.Outside, "tail", "-n", "4000", "/run/leak")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if _, _, last := sources(line); last.After(after) {
				at = last
				return nil
			}
		}
		return fmt.Errorf("none since %s", after)
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// powerFailure kills the host, waits until the other one serves, and starts it.
func (l *leakTest) powerFailure(t *testing.T) {
	host := l.host(t)
	l.release(host)
	began := time.Now() // the power goes a little later: the gap is an upper bound
	if err := l.Kin.Node(t.Context(), "kill", host); err != nil {
		t.Fatal(err)
	}
	died := time.Now()
	next := l.programmed(t, host)
	l.gap = l.arrives(t, died).Sub(began)
	t.Logf("%s took over from %s; the first packet came at most %s after the power went", next, host, l.gap)
	l.boot(t, host)
}

// boot starts the host and waits until its pod, whose addresses Kubernetes forgets
// for a moment, is served again: every pod of both families has a policy.
func (l *leakTest) boot(t *testing.T, host string) {
	t.Helper()
	l.powerOn(t, host)
	l.capture(t, host)
	want := len(nodes) * len(leakIngress)
	since := time.Now()
	err := lab.Until(t.Context(), leakPatience, "all pods to be served", func(ctx context.Context) error {
		pod, err := l.Kube.CoreV1().Pods(lab.Namespace).Get(ctx, leakService+"-"+host, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := len(pod.Status.ContainerStatuses); n != 1 || pod.Status.ContainerStatuses[0].RestartCount == l.restarts[host] {
			return fmt.Errorf("the pod did not start again since %s", since)
		}
		out, err := l.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "--bare", "--columns=match", "find", "Logical_Router_Policy",
			"action=reroute", "external_ids:EgressSVC="+lab.Namespace+"/"+leakService)
		if err != nil {
			return err
		}
		if have := len(strings.Fields(strings.ReplaceAll(out, " ", "_"))); have != want {
			return fmt.Errorf("%d policies, want %d", have, want)
		}
		l.restarts[host] = pod.Status.ContainerStatuses[0].RestartCount
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reboot takes the host's power for an instant, maybe too short for anybody to
// notice.
func (l *leakTest) reboot(t *testing.T) {
	host := l.host(t)
	l.release(host)
	if err := l.Kin.Node(t.Context(), "kill", host); err != nil {
		t.Fatal(err)
	}
	l.boot(t, host)
	l.programmed(t, "")
}

// cordon makes the host unschedulable until another one serves.
func (l *leakTest) cordon(t *testing.T) {
	host := l.host(t)
	set := func(unschedulable bool) {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
		if _, err := l.Kube.CoreV1().Nodes().Patch(t.Context(), host, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set(true)
	l.programmed(t, host)
	set(false)
}

func (l *leakTest) killProcess(t *testing.T, p process) {
	l.kill(t, p)
	l.programmed(t, "")
}

// release ends what runs on a machine for this test; it may have died with it.
func (l *leakTest) release(machine string) {
	if a := l.captures[machine]; a != nil {
		_ = a.Close()
		delete(l.captures, machine)
	}
}

func (l *leakTest) end(t *testing.T) {
	// The test's own context has ended here.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, machine := range slices.Collect(maps.Keys(l.captures)) {
		l.release(machine)
	}
	if err := l.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(ctx, leakService, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete EgressService: %v", err)
	}
	if err := l.Kube.CoreV1().Services(lab.Namespace).Delete(ctx, leakService, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete Service: %v", err)
	}
	for _, node := range nodes {
		if err := l.DeletePod(ctx, leakService+"-"+node); err != nil {
			t.Error(err)
		}
	}
}
