package suite

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	esv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	faultName = "faults"
	// farName is the name of the EgressIP on the second network.
	farName  = "faults-far"
	lateName = "faults-late"
	// Ports of the servers for the pods of each feature, which echo on the next port; packets to
	// these two ports must have source addresses of that feature only.
	servicePort, primaryPort, farPort, gatewayPort = 7010, 7020, 7030, 7040
	// controlPort is the port that nodes send to in order to prove that captures are running.
	controlPort = 7090
)

var (
	faultIngress = addresses("5.5.5.21", "5555::15")
	lateIngress  = addresses("5.5.5.22", "5555::16")
	faultIPs     = addresses("172.18.0.241", "fc00:f853:ccd:e793::241")
	farIPs       = addresses("192.168.50.241", "fd00:50::241")
	lateIPs      = addresses("172.18.0.242", "fc00:f853:ccd:e793::242")
)

// faultTest is the traffic on a cluster during faults.
type faultTest struct {
	*suite
	service *served
	egress  *egressIPTest
	// groups are the pods whose traffic is measured, with their relation to the node that is
	// affected: "other", "own" or "gateway".
	groups []faultGroup
	// spare is a pod that only the late EgressIP selects.
	spare lab.Pod
	// primaryServers are the servers for the pods of the EgressIP on the nodes' network.
	primaryServers []netip.AddrPort
	wires          []faultWire
	// moment is a period in which packets may have a wrong source, because the test deleted what
	// translates them. There is none if to is zero.
	moment struct{ from, to time.Time }
	// moved reports whether an address has moved, even if it is back.
	moved bool
	// deathsAtHome is how often a node had been considered dead when all addresses were last at
	// home.
	deathsAtHome int
	died         map[string]bool // log lines of masters about it
	table        strings.Builder
}

// faultWire is an interface on which packets with a wrong source are captured.
type faultWire struct {
	machine, device, filter string
	capture                 *lab.Capture
	known                   int // packets with a wrong source that were already reported
}

type faultGroup struct {
	kind string
	pod  lab.Pod
}

// newFaultTest creates servers, egress objects and pods. All addresses are on one node, and two
// nodes can hold them.
func (s *suite) newFaultTest(t *testing.T) *faultTest {
	t.Helper()
	f := &faultTest{suite: s, egress: s.egressIPOf(t), died: map[string]bool{}}
	s.addShore(t)
	t.Cleanup(func() { s.forgotten(t, slices.Concat(faultIPs, farIPs, lateIPs)) })
	g := newGatewayTest(t, s)
	f.servers(t)
	f.service = s.serve(t, faultName, faultIngress, func(eg *esv1.EgressService) { eg.Spec.OnUnavailable = esv1.UnavailableDrop })
	f.service.announce(t)
	f.egress.assignable(t, faultHome)
	t.Cleanup(func() {
		for _, node := range nodes {
			s.patchNode(t, node, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, assignableLabel))
		}
	})
	f.egress.create(t, faultName, faultIPs, held)
	f.egress.create(t, farName, farIPs, held)
	f.primaryServers = at(lab.OutsideAddresses, primaryPort)
	through := f.gatewayPod(t, g, lab.Traffic{Namespace: faultName, Name: "gateway-own", Node: faultHome, To: at(lab.Beyond, gatewayPort)})
	f.goHome(t)
	f.tap(t, through)
	var kinds []string
	var traffic []lab.Traffic
	for _, p := range []struct {
		kind, name string
		labels     map[string]string
		to         []netip.AddrPort
	}{
		{"other", "service", f.service.labels(), at(lab.OutsideAddresses, servicePort)},
		{"own", "service", f.service.labels(), at(lab.OutsideAddresses, servicePort)},
		{"other", "primary", chosen(faultName), f.primaryServers},
		{"own", "primary", chosen(faultName), f.primaryServers},
		{"other", "far", chosen(farName), at(shoreIPs, farPort)},
		{"own", "across", nil, at(f.suite.servers["b"].Addresses, lab.ServePort)},
	} {
		node := map[string]string{"other": lab.ControlPlane, "own": faultHome}[p.kind]
		kinds, traffic = append(kinds, p.kind), append(traffic, lab.Traffic{Name: p.name + "-" + p.kind, Node: node, Labels: p.labels, To: p.to})
	}
	for i, pod := range f.start(t, traffic...) {
		t.Cleanup(func() { f.egress.deletePods(t, []string{pod.Name}) })
		f.groups = append(f.groups, faultGroup{kinds[i], pod})
	}
	f.groups = append(f.groups, faultGroup{"gateway", through})
	spare, err := s.RunServer(t.Context(), "spare", lab.ControlPlane, chosen(lateName))
	if err != nil {
		t.Fatal(err)
	}
	f.spare = spare
	t.Cleanup(func() { f.egress.deletePods(t, []string{"spare"}) })
	f.flow(t)
	return f
}

// at returns the echo servers on the port after the given one.
func at(list []netip.Addr, port uint16) []netip.AddrPort {
	var all []netip.AddrPort
	for _, a := range list {
		all = append(all, netip.AddrPortFrom(a, port+1))
	}
	return all
}

// servers starts the servers outside.
func (f *faultTest) servers(t *testing.T) {
	t.Helper()
	ports := map[string][]uint16{lab.Outside: {servicePort, primaryPort, controlPort}, shore: {farPort, controlPort}}
	for _, gw := range f.gateways {
		ports[gw.Name] = []uint16{gatewayPort, controlPort}
	}
	for machine, list := range ports {
		for _, port := range list {
			if err := f.ServeAlso(t.Context(), machine, port); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// start starts pods whose traffic is measured.
func (f *faultTest) start(t *testing.T, traffic ...lab.Traffic) []lab.Pod {
	t.Helper()
	pods := make([]lab.Pod, len(traffic))
	err := atOnce(len(traffic), func(i int) (err error) {
		pods[i], err = f.RunTraffic(t.Context(), traffic[i])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// gatewayPod has the pods of a new namespace use the gateways, with their own addresses, and starts
// a pod there.
func (f *faultTest) gatewayPod(t *testing.T, g *gatewayTest, traffic lab.Traffic) lab.Pod {
	t.Helper()
	ctx := t.Context()
	f.makeNamespace(t, traffic.Namespace)
	policies := g.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes()
	t.Cleanup(func() {
		if err := policies.Delete(context.WithoutCancel(ctx), traffic.Namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	policy := &routev1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{Name: traffic.Namespace}}
	policy.Spec.From.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: traffic.Namespace}
	options := watched()
	options.SkipHostSNAT = true
	policy.Spec.NextHops = hops(options, f.gateways...)
	if _, err := policies.Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return f.start(t, traffic)[0] // deleted with the namespace
}

// makeNamespace creates a namespace in which pods can be created, and deletes it with everything in
// it when the test ends.
func (s *suite) makeNamespace(t *testing.T, name string) {
	t.Helper()
	ctx, namespaces := t.Context(), s.Kube.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		err := lab.Until(ctx, leakPatience, "the namespace to end", func(ctx context.Context) error {
			_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there: %w", err)
		})
		if err != nil {
			t.Error(err)
		}
	})
	err := lab.Until(ctx, leakPatience, "the account of pods in the namespace", func(ctx context.Context) error {
		_, err := s.Kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// away lists the egress addresses that are not at home.
func (f *faultTest) away(t *testing.T) string {
	t.Helper()
	var away []string
	for _, name := range []string{faultName, farName} {
		for a, node := range f.egress.programmed(t, name) {
			if node != faultHome {
				away = append(away, fmt.Sprintf("%s is on %s", a, node))
			}
		}
	}
	if host := f.service.programmed(t, ""); host != faultHome {
		away = append(away, "the host of the EgressService is "+host)
	}
	slices.Sort(away)
	return strings.Join(away, ", ")
}

// goHome moves all egress addresses to one node, and allows another to take them.
func (f *faultTest) goHome(t *testing.T) {
	t.Helper()
	const other = "ovn-worker2"
	f.deathsAtHome = f.deaths(t)
	if f.away(t) != "" {
		f.egress.assignable(t, faultHome)
		if f.service.programmed(t, "") != faultHome {
			f.cordon(t, other, true)
			f.service.programmed(t, other)
			f.cordon(t, other, false)
		}
		for _, name := range []string{faultName, farName} {
			f.egress.awaits(t, name, "at home", func(ip *v1.EgressIP) error {
				for _, item := range ip.Status.Items {
					if item.Node != faultHome {
						return fmt.Errorf("%s is on %s", item.EgressIP, item.Node)
					}
				}
				return has(ip, v1.ConditionProgrammed, metav1.ConditionTrue)
			})
		}
	}
	f.egress.assignable(t, faultHome, other)
}

// settledState is steadyState with all egress addresses at home: on a busy machine they may move
// while it is read.
func (f *faultTest) settledState(t *testing.T) lab.State {
	t.Helper()
	away := ""
	for range 3 {
		f.goHome(t)
		state := f.steadyState(t)
		if away = f.away(t); away == "" {
			return state
		}
	}
	t.Fatalf("they do not stay: %s", away)
	return nil
}

// tap captures packets with a wrong source on every wire: those that arrive outside, and those that
// leave the nodes. Packets with the right source are counted by the echoes.
func (f *faultTest) tap(t *testing.T, through lab.Pod) {
	t.Helper()
	t.Cleanup(func() {
		for _, w := range f.wires {
			if w.capture != nil {
				w.capture.Close()
			}
		}
	})
	// Servers answer clients on any port, including the servers' own ports and those of other features' servers.
	servers := slices.Concat(lab.OutsideAddresses, shoreIPs)
	for _, gw := range f.gateways {
		servers = append(servers, gw.Addresses...)
	}
	wrong := func(port int, right ...netip.Addr) string {
		filter := fmt.Sprintf("(dst portrange %d-%d", port, port+1)
		for _, a := range slices.Concat(servers, right) {
			filter += fmt.Sprintf(" and not src host %s", a)
		}
		return filter + ")"
	}
	const control = "dst port 7090"
	service, primary := wrong(servicePort, faultIngress...), wrong(primaryPort, faultIPs...)
	add := func(machine, device string, filters ...string) {
		f.wires = append(f.wires, faultWire{machine: machine, device: device, filter: strings.Join(append(filters, control), " or ")})
	}
	add(lab.Outside, "eth0", service, primary)
	add(shore, "eth0", wrong(farPort, farIPs...))
	for _, gw := range f.gateways {
		add(gw.Name, "eth0", wrong(gatewayPort, through.Addresses...))
	}
	for _, node := range nodes {
		add(node, "eth0", service, primary, wrong(farPort)) // no packets for the other network may leave here
		add(node, secondDevice, service, primary, wrong(farPort, farIPs...))
	}
	if err := atOnce(len(f.wires), func(i int) error { return f.listen(t.Context(), &f.wires[i]) }); err != nil {
		t.Fatal(err)
	}
}

// listen starts the capture on a wire.
func (f *faultTest) listen(ctx context.Context, w *faultWire) (err error) {
	w.known = 0
	w.capture, err = f.Capture(ctx, w.machine, w.device, w.filter)
	return err
}

// listenAgain restarts the captures on a machine that lost power.
func (f *faultTest) listenAgain(t *testing.T, machine string) {
	t.Helper()
	for i := range f.wires {
		if w := &f.wires[i]; w.machine == machine {
			w.capture.Close()
			if err := f.listen(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// inspect fails the test for packets with a wrong source since the last time. Every capture must
// also show control packets sent now: one that has ended would not show any wrong packet.
func (f *faultTest) inspect(t *testing.T) {
	t.Helper()
	began := time.Now()
	to := []netip.Addr{lab.OutsideAddresses[0], shoreIPs[0]}
	for _, gw := range f.gateways {
		to = append(to, gw.Addresses[0])
	}
	err := atOnce(len(nodes)*len(to), func(i int) error {
		_, err := f.Call(t.Context(), nodes[i/len(to)], false, "ask", netip.AddrPortFrom(to[i%len(to)], controlPort).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.wires {
		w := &f.wires[i]
		var wrong []lab.Packet
		err := lab.Until(t.Context(), egressPatience, "a packet in the capture at "+w.machine, func(ctx context.Context) error {
			packets, err := w.capture.Packets()
			if err != nil {
				return err
			}
			controls := 0
			wrong = nil
			for _, p := range packets {
				switch {
				case p.Destination.Port() != controlPort:
					wrong = append(wrong, p)
				case p.At.After(began):
					controls++
				}
			}
			if controls == 0 {
				return fmt.Errorf("none since %s", began)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		news := wrong[min(w.known, len(wrong)):]
		w.known = len(wrong)
		all := len(news)
		news = slices.DeleteFunc(slices.Clone(news), func(p lab.Packet) bool { return p.At.After(f.moment.from) && p.At.Before(f.moment.to) })
		if momentary := all - len(news); momentary > 0 {
			t.Logf("%d packets at %s had a wrong source in the moment in which they may", momentary, w.machine)
		}
		if len(news) > 0 {
			t.Errorf("%d packets at %s have a wrong source", len(news), w.machine)
		}
		for _, p := range news[:min(20, len(news))] {
			t.Log(p.At.Format(time.StampMicro), p.Text)
		}
	}
}
