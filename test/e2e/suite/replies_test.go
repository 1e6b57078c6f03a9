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
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// speakPort is the port that pods serve on, and speak from.
	speakPort = 5060
	// spokenPort is whom they speak to, of whom nobody has asked them.
	spokenPort = 9997
	// firstReport is the first of the ports of clients' reports.
	firstReport = 9100
)

var (
	repliesIngress = addresses("5.5.5.21", "5555::21")
	repliesLB      = addresses("5.5.6.21", "5556::21")
	repliesIPs     = addresses("172.18.0.221", "fc00:f853:ccd:e793::221")
)

// replies has pods of the egress features serve a Service that keeps its clients'
// addresses, and speak from the port they serve on to somebody who has not asked them.
// Clients' connections go on whatever becomes of the pods, and not one packet comes
// out that is no reply and has another source than it is to have.
func (s *suite) replies(t *testing.T) {
	t.Run("EgressService", func(t *testing.T) {
		e := s.serve(t, "speaker", repliesIngress, func(eg *v1.EgressService) { eg.Spec.OnUnavailable = v1.UnavailableDrop })
		host := e.programmed(t, "")
		r := &repliesTest{suite: s, labels: e.labels(), right: repliesIngress}
		r.run(t, func(pods int) { e.steered(t, pods) }, host)
	})
	t.Run("EgressIP", func(t *testing.T) {
		client, err := versioned.NewForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		ips := &egressIPTest{suite: s, client: client.EgressIPV1().EgressIPs(), pods: map[string]lab.Pod{}}
		ips.assignable(t, lab.ControlPlane)
		ips.create(t, "speaker", repliesIPs, held)
		r := &repliesTest{suite: s, labels: chosen("speaker"), right: repliesIPs}
		r.run(t, func(int) { ips.programmed(t, "speaker") }, "")
		ips.remove(t, "speaker")
		ips.assignable(t)
	})
}

// repliesTest is the test under way for pods with certain labels.
type repliesTest struct {
	*suite
	labels  map[string]string
	right   []netip.Addr // the sources that their packets are to have
	capture *capture
	clients map[string]*lab.Client // by whom they connect to
	pods    []string
}

func (r *repliesTest) run(t *testing.T, settled func(pods int), host string) {
	ctx := t.Context()
	r.capture = newFilteredCapture(t, r.suite, fmt.Sprintf("dst port %d", spokenPort), r.right)
	for _, node := range nodes[1:] {
		name := "speaker-" + node
		if err := r.StartSpeaker(ctx, name, node, r.labels, speakPort, lab.OutsideAddresses, spokenPort); err != nil {
			t.Fatal(err)
		}
		r.pods = append(r.pods, name)
		t.Cleanup(func() { r.end(t, name) })
		if err := r.SetReady(ctx, name, true); err != nil {
			t.Fatal(err)
		}
	}
	// One that sends from whatever port shows that there is a way out at all.
	usual := "usual-" + r.pods[0]
	if err := r.StartSender(ctx, lab.Sender{Name: usual, Node: nodes[1], Labels: r.labels, To: lab.OutsideAddresses, Port: spokenPort}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end(t, usual) })
	for _, name := range append(slices.Clone(r.pods), usual) {
		if _, err := r.WaitPod(ctx, name, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	settled(len(r.pods) + 1)
	service := r.service(t)
	r.capture.arrives(t, spokenPort, time.Now())
	r.capture.inspect(t) // what came before there was a Service, too

	// A client that comes before a node has the Service's flows goes another way, and
	// its connection would not outlive their coming.
	r.asked(t, service)
	r.connect(t, service)
	before := r.steadyState(t)
	r.counted(t, r.counts(t))
	r.step(t, "ovnkube restarts", func() {
		for _, node := range nodes[1:] {
			r.restartAndSettle(t, nodeProcess(node), "ovnkube-node", "service-node")
		}
		r.restartAndSettle(t, processes[0], "ovnkube-master", "service")
		r.sameState(t, before)
	})
	r.step(t, "pods are not ready", func() { r.unready(t, service) })
	r.step(t, "pods are on their way out", func() { r.drain(t, service) })
}

// step does something to the pods, after which clients' connections still live and
// nothing has leaked.
func (r *repliesTest) step(t *testing.T, what string, f func()) {
	t.Helper()
	r.reset(t)
	f()
	r.capture.arrives(t, spokenPort, time.Now())
	r.alive(t, what)
	r.capture.inspect(t)
}

// service makes a Service of the pods that keeps clients' addresses.
func (r *repliesTest) service(t *testing.T) *corev1.Service {
	t.Helper()
	ctx, services := t.Context(), r.Kube.CoreV1().Services(lab.Namespace)
	policy := corev1.IPFamilyPolicyRequireDualStack
	port := func(name string, p corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: p, Port: speakPort, TargetPort: intstr.FromInt32(speakPort)}
	}
	svc, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "spoken-to"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Selector: r.labels, IPFamilyPolicy: &policy, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{port("tcp", corev1.ProtocolTCP), port("udp", corev1.ProtocolUDP)},
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
	for _, a := range repliesLB {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if svc, err = services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.RouteTo(ctx, repliesLB, nodes[2]); err != nil {
		t.Fatal(err)
	}
	return svc
}

// ways are the sockets by which clients outside come to the pods, by protocol.
func (r *repliesTest) ways(t *testing.T, svc *corev1.Service, protocol corev1.Protocol) []netip.AddrPort {
	t.Helper()
	var out []netip.AddrPort
	for _, p := range svc.Spec.Ports {
		if p.Protocol != protocol {
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
		for _, a := range repliesLB {
			out = append(out, netip.AddrPortFrom(a, speakPort))
		}
	}
	return out
}

// connect has clients outside open connections that last.
func (r *repliesTest) connect(t *testing.T, svc *corev1.Service) {
	t.Helper()
	r.clients = map[string]*lab.Client{}
	for i, to := range r.ways(t, svc, corev1.ProtocolTCP) {
		c, err := r.StartClient(lab.Outside, firstReport+i, to)
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

func (r *repliesTest) eachClient(t *testing.T, what string, f func(context.Context, *lab.Client) error) {
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

func (r *repliesTest) reset(t *testing.T) {
	t.Helper()
	r.eachClient(t, "to begin again", func(ctx context.Context, c *lab.Client) error {
		_, err := c.Report(ctx, true)
		return err
	})
}

// alive waits until every client gets echoes, over the connection it had before.
func (r *repliesTest) alive(t *testing.T, what string) {
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

// asked asks by UDP: the answer comes to a socket that takes it from nobody else.
func (r *repliesTest) asked(t *testing.T, svc *corev1.Service) {
	t.Helper()
	for _, to := range r.ways(t, svc, corev1.ProtocolUDP) {
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

// refused tells whether a new client is: none of the pods is to serve any more.
func (r *repliesTest) refused(t *testing.T, svc *corev1.Service) {
	t.Helper()
	var asking sync.WaitGroup
	for _, to := range r.ways(t, svc, corev1.ProtocolUDP) {
		asking.Go(func() {
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
		})
	}
	asking.Wait()
}

// unready has the pods cease to be ready, and begin again.
func (r *repliesTest) unready(t *testing.T, svc *corev1.Service) {
	t.Helper()
	for _, ready := range []bool{false, true} {
		for _, name := range r.pods {
			if err := r.SetReady(t.Context(), name, ready); err != nil {
				t.Fatal(err)
			}
		}
		if ready {
			r.asked(t, svc)
		} else {
			r.refused(t, svc)
			r.alive(t, "not ready")
		}
	}
}

// drain has the pods end, which takes them some time.
func (r *repliesTest) drain(t *testing.T, svc *corev1.Service) {
	t.Helper()
	for _, name := range r.pods {
		if err := r.SetReady(t.Context(), name, false); err != nil {
			t.Fatal(err)
		}
		if err := r.Kube.CoreV1().Pods(lab.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.refused(t, svc)
}

// end deletes a pod at once.
func (r *repliesTest) end(t *testing.T, name string) {
	if err := r.EndPod(context.WithoutCancel(t.Context()), name); err != nil {
		t.Error(err)
	}
}

// counts reads how many packets nodes have dropped.
func (r *repliesTest) counts(t *testing.T) (sum int) {
	t.Helper()
	for _, node := range nodes[1:] {
		address, err := r.nodeAddress(t.Context(), node, true)
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.Call(t.Context(), node, false, "get", fmt.Sprintf("http://%s:9410/metrics", address))
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

// counted waits until nodes have counted more packets than before.
func (r *repliesTest) counted(t *testing.T, before int) {
	t.Helper()
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
