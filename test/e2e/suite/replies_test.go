package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// speakPort is the port that pods serve on and send from.
	speakPort = 5060
	// spokenPort is the destination port of the unsolicited packets that pods of the first feature
	// send; those of the next feature send to the next port.
	spokenPort = 9997
	// firstReport is the first of the clients' report ports.
	firstReport = 9100
)

var (
	repliesIngress = addresses("5.5.5.28", "5555::1c")
	repliesIPs     = addresses("172.18.0.221", "fc00:f853:ccd:e793::221")
)

// replies has pods of the egress features serve a Service that preserves client addresses, and send
// unsolicited packets from the same port. Clients' connections must continue whatever happens to
// the pods, and every packet that leaves and is not a reply must have the right source.
func (s *suite) replies(t *testing.T) {
	e := s.serve(t, "speaker", repliesIngress, func(eg *v1.EgressService) { eg.Spec.OnUnavailable = v1.UnavailableDrop })
	e.programmed(t, "")
	ips := s.egressIPOf(t)
	t.Cleanup(func() { ips.assignable(t) })
	ips.assignable(t, lab.ControlPlane)
	ips.create(t, "speaker", repliesIPs, held)
	all := repliesTest{
		{suite: s, name: "service", labels: e.labels(), right: repliesIngress, spoken: spokenPort, reports: firstReport,
			ingress: addresses("5.5.6.21", "5556::21"), settled: func(pods int) { e.steered(t, pods) }},
		{suite: s, name: "address", labels: chosen("speaker"), right: repliesIPs, spoken: spokenPort + 1, reports: firstReport + 50,
			ingress: addresses("5.5.6.22", "5556::22"), settled: func(int) { ips.programmed(t, "speaker") }},
	}
	t.Cleanup(func() { all.end(t) })
	for _, r := range all {
		r.start(t)
	}
	for _, r := range all {
		r.begin(t)
	}
	before := s.steadyState(t)
	for _, r := range all {
		r.counted(t)
	}
	t.Run("Errors", all.errors)
	all.step(t, "ovnkube restarts", func() {
		for _, node := range nodes[1:] {
			s.restartAndSettle(t, nodeProcess(node), "ovnkube-node", "service-node")
		}
		s.restartAndSettle(t, processes[0], "ovnkube-master", "service")
		s.sameState(t, before)
	})
	all.step(t, "pods are not ready", func() { all.unready(t) })
	all.step(t, "pods are on their way out", func() { all.drain(t) })
	ips.remove(t, "speaker")
}

// repliesTest has the pods of all features.
type repliesTest []*replying

// replying has the pods of one feature, with their Service and its clients.
type replying struct {
	*suite
	name    string
	labels  map[string]string
	right   []netip.Addr // the right sources of their packets
	spoken  uint16       // the port that they send to
	reports int          // the first of the clients' report ports
	ingress []netip.Addr // of the Service
	settled func(pods int)

	capture *capture
	service *corev1.Service
	clients map[string]*lab.Client // by destination
	pods    []string
}

// start starts the pods.
func (r *replying) start(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	r.capture = newFilteredCapture(t, r.suite, fmt.Sprintf("dst port %d", r.spoken), r.spoken, r.right)
	for _, node := range nodes[1:] {
		name := r.name + "-" + node
		if err := r.StartSpeaker(ctx, name, node, r.labels, speakPort, lab.OutsideAddresses, r.spoken); err != nil {
			t.Fatal(err)
		}
		r.pods = append(r.pods, name)
		if err := r.SetReady(ctx, name, true); err != nil {
			t.Fatal(err)
		}
	}
	// A pod that sends from arbitrary ports shows that traffic gets out at all.
	if err := r.StartSender(ctx, lab.Sender{Name: r.usual(), Node: nodes[1], Labels: r.labels, To: lab.OutsideAddresses, Port: r.spoken}); err != nil {
		t.Fatal(err)
	}
}

// usual is the name of the pod that sends from arbitrary ports.
func (r *replying) usual() string { return "usual-" + r.name }

// begin waits for the pods and has clients connect.
func (r *replying) begin(t *testing.T) {
	t.Helper()
	for _, name := range append(slices.Clone(r.pods), r.usual()) {
		if _, err := r.WaitPod(t.Context(), name, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	r.settled(len(r.pods) + 1)
	r.serveLocally(t)
	r.capture.arrives(t, r.spoken, time.Now())
	r.capture.inspect(t) // including packets from before there was a Service

	// A client that connects before a node has the Service's flows would take another path, and its
	// connection would break when the flows come.
	r.asked(t)
	r.connect(t)
}

// step does something to the pods, and then checks that clients' connections are alive and no
// packet had a wrong source.
func (all repliesTest) step(t *testing.T, what string, f func()) {
	t.Helper()
	for _, r := range all {
		r.reset(t)
	}
	f()
	for _, r := range all {
		r.capture.arrives(t, r.spoken, time.Now())
		r.alive(t, what)
		r.capture.inspect(t)
	}
}

// serveLocally creates a Service for the pods that preserves client addresses.
func (r *replying) serveLocally(t *testing.T) {
	t.Helper()
	ctx, services := t.Context(), r.Kube.CoreV1().Services(lab.Namespace)
	policy := corev1.IPFamilyPolicyRequireDualStack
	port := func(name string, p corev1.Protocol, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: p, Port: number, TargetPort: intstr.FromInt32(number)}
	}
	svc, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "spoken-to-" + r.name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Selector: r.labels, IPFamilyPolicy: &policy, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{port("tcp", corev1.ProtocolTCP, speakPort), port("udp", corev1.ProtocolUDP, speakPort), port("closed", corev1.ProtocolUDP, closedPort)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(ctx), svc.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, a := range r.ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if svc, err = services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.RouteTo(ctx, r.ingress, nodes[2]); err != nil {
		t.Fatal(err)
	}
	r.service = svc
}

// ways returns the addresses and ports at which outside clients reach a port of the Service.
func (r *replying) ways(t *testing.T, port string) []netip.AddrPort {
	t.Helper()
	var out []netip.AddrPort
	for _, p := range r.service.Spec.Ports {
		if p.Name != port {
			continue
		}
		for _, is4 := range []bool{true, false} {
			for _, node := range nodes[1:] {
				to, err := r.nodeAddress(t.Context(), node, is4)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, netip.AddrPortFrom(to, uint16(p.NodePort)))
			}
		}
		for _, a := range r.ingress {
			out = append(out, netip.AddrPortFrom(a, uint16(p.Port)))
		}
	}
	return out
}

// connect has outside clients open long-lived connections.
func (r *replying) connect(t *testing.T) {
	t.Helper()
	r.clients = map[string]*lab.Client{}
	for i, to := range r.ways(t, "tcp") {
		c, err := r.StartClient(lab.Outside, r.reports+i, to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		r.clients[to.String()] = c
	}
	r.eachClient(t, "to be connected", func(ctx context.Context, c *lab.Client) error {
		report, err := c.Report(ctx, false)
		if err == nil && report.Echoed == 0 {
			err = fmt.Errorf("report %+v", report)
		}
		return err
	})
}

func (r *replying) eachClient(t *testing.T, what string, f func(context.Context, *lab.Client) error) {
	t.Helper()
	for to, c := range r.clients {
		err := lab.Until(t.Context(), 30*time.Second, "the client of "+to+" "+what, func(ctx context.Context) error { return f(ctx, c) })
		if err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func (r *replying) reset(t *testing.T) {
	t.Helper()
	r.eachClient(t, "to begin again", func(ctx context.Context, c *lab.Client) error {
		_, err := c.Report(ctx, true)
		return err
	})
}

// alive waits until every client gets echoes, over the connection that it had before.
func (r *replying) alive(t *testing.T, what string) {
	t.Helper()
	for to, c := range r.clients {
		first, err := c.Report(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Until(t.Context(), 10*time.Second, "echoes from "+to, func(ctx context.Context) error {
			now, err := c.Report(ctx, false)
			if err == nil && (now.Echoed <= first.Echoed || now.Reconnects > 0) {
				err = fmt.Errorf("%s: %+v, then %+v", what, first, now)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// asked makes requests by UDP: the client's socket accepts the answer only from the address that it
// asked.
func (r *replying) asked(t *testing.T) {
	t.Helper()
	for _, to := range r.ways(t, "udp") {
		client, err := pick(lab.OutsideAddresses, to.Addr().Is4())
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Until(t.Context(), 20*time.Second, "an answer of "+to.String(), func(ctx context.Context) error {
			out, err := r.Call(ctx, lab.Outside, false, "ask", "-timeout", "1s", to.String())
			if err == nil && !strings.HasSuffix(strings.TrimSpace(out), " "+client.String()) {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// refused waits until new clients get no answer: none of the pods should serve any more.
func (all repliesTest) refused(t *testing.T) {
	t.Helper()
	var asking sync.WaitGroup
	for _, r := range all {
		for _, to := range r.ways(t, "udp") {
			asking.Go(func() { r.refused(t, to) })
		}
	}
	asking.Wait()
}

func (r *replying) refused(t *testing.T, to netip.AddrPort) {
	err := lab.Until(t.Context(), 20*time.Second, "nobody to answer at "+to.String(), func(ctx context.Context) error {
		out, err := r.Call(ctx, lab.Outside, false, "ask", "-timeout", "1s", to.String())
		if err == nil {
			return fmt.Errorf("somebody says %q", out)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// unready makes the pods not ready, and then ready again.
func (all repliesTest) unready(t *testing.T) {
	for _, ready := range []bool{false, true} {
		for _, r := range all {
			r.setReady(t, ready)
		}
		if ready {
			for _, r := range all {
				r.asked(t)
			}
			continue
		}
		all.refused(t)
		for _, r := range all {
			r.alive(t, "not ready")
		}
	}
}

func (r *replying) setReady(t *testing.T, ready bool) {
	t.Helper()
	for _, name := range r.pods {
		if err := r.SetReady(t.Context(), name, ready); err != nil {
			t.Fatal(err)
		}
	}
}

// drain deletes the pods, which take some time to terminate.
func (all repliesTest) drain(t *testing.T) {
	for _, r := range all {
		r.setReady(t, false)
		for _, name := range r.pods {
			if err := r.Kube.CoreV1().Pods(lab.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	all.refused(t)
}

// end deletes all pods, at the same time.
func (all repliesTest) end(t *testing.T) {
	var names []string
	for _, r := range all {
		names = append(append(names, r.pods...), r.usual())
	}
	ctx := context.WithoutCancel(t.Context())
	if err := atOnce(len(names), func(i int) error { return all[0].EndPod(ctx, names[i]) }); err != nil {
		t.Error(err)
	}
}

// counts returns how many packets the nodes have dropped.
func (r *replying) counts(t *testing.T) (sum int) {
	t.Helper()
	for _, node := range nodes[1:] {
		address, err := r.nodeAddress(t.Context(), node, true)
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.scrape(t.Context(), node, fmt.Sprintf("%s:9410", address))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			value, ok := strings.CutPrefix(strings.TrimSpace(line), "ovnkube_node_service_port_packets_dropped_total{")
			if !ok {
				continue
			}
			_, number, _ := strings.Cut(value, " ")
			n, err := strconv.ParseFloat(number, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(n)
		}
	}
	return sum
}

// counted waits until the nodes have dropped more packets than before.
func (r *replying) counted(t *testing.T) {
	t.Helper()
	before := r.counts(t)
	err := lab.Until(t.Context(), 20*time.Second, "nodes to count what they drop", func(context.Context) error {
		if now := r.counts(t); now <= before {
			return errors.New("they have counted " + strconv.Itoa(now))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
