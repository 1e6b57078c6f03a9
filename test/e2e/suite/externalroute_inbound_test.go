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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const inboundName = "inbound"

// inboundIPs are load-balancer addresses, IPv4 first.
var inboundIPs = []netip.Addr{netip.MustParseAddr("5.5.7.7"), netip.MustParseAddr("fd05:7::7")}

// inbound checks that a Service that preserves client addresses answers each client the way its
// packets came: those behind a gateway through that gateway, others through none. It does so before
// there are gateways, and after they are gone, too.
func (g *gatewayTest) inbound(t *testing.T) {
	ctx := t.Context()
	pod, err := g.RunServer(ctx, inboundName, nodes[1], chosen(inboundName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.DeletePod(context.WithoutCancel(ctx), inboundName); err != nil {
			t.Error(err)
		}
	})
	ips := g.serveInbound(t)
	ways := append(slices.Clone(pod.Addresses), ips...)
	if err := g.RouteTo(ctx, inboundIPs, nodes[1]); err != nil {
		t.Fatal(err)
	}
	// A UDP client keeps its port while gateways come and go. It starts once the bridge has its
	// flows: before that, the host would take the connection, and keep it.
	steady := func(when string, options ...string) {
		t.Helper()
		for _, to := range ips {
			g.asks(t, when, lab.Outside, to, lab.OfFamily(lab.OutsideAddresses, to.Is4()), options...)
		}
	}
	port := []string{"-from", "41007"}
	steady("at first")
	steady("before there are gateways", port...)
	g.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, false, g.gateways...)
	steady("while there are gateways", port...)
	node, err := g.NodeAddresses(ctx, nodes[1])
	if err != nil {
		t.Fatal(err)
	}
	// A gateway drops what it gets for the client that is not behind it.
	for _, gw := range g.gateways {
		var commands, undo []string
		for _, a := range inboundIPs {
			commands = append(commands, fmt.Sprintf("ip route replace %s via %s src %s", a, lab.OfFamily(node, a.Is4()), lab.OfFamily(gw.Behind, a.Is4())))
			undo = append(undo, "ip route del "+a.String())
		}
		for _, a := range g.OfFamilies(lab.OutsideAddresses) {
			commands = append(commands, fmt.Sprintf("ip route replace blackhole %s/%d", a, a.BitLen()))
			undo = append(undo, fmt.Sprintf("ip route del blackhole %s/%d", a, a.BitLen()))
		}
		g.on(t, gw.Name, commands)
		t.Cleanup(func() { g.on(t, gw.Name, undo) })
	}
	for _, to := range ways {
		clients := map[string]netip.Addr{}
		for _, gw := range g.gateways {
			clients[gw.Name] = lab.OfFamily(gw.Behind, to.Is4())
		}
		if lab.OfFamily(inboundIPs, to.Is4()) == to {
			clients[lab.Outside] = lab.OfFamily(lab.OutsideAddresses, to.Is4())
		}
		for machine, source := range clients {
			what := fmt.Sprintf("connections of %s to %s", machine, to)
			err := lab.Until(ctx, 15*time.Second, what, func(ctx context.Context) error {
				seen, err := g.SourcesFromMachine(ctx, machine, to, 10)
				if err == nil && seen[source] != 10 {
					err = fmt.Errorf("seen as %v, want %s", seen, source)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			g.asks(t, "with gateways", machine, to, source)
		}
	}
	g.remove(t)
	steady("after the gateways have gone", port...)
}

// asks waits until a machine gets an answer by UDP from a server that saw the given source address.
func (g *gatewayTest) asks(t *testing.T, when, machine string, to, source netip.Addr, options ...string) {
	t.Helper()
	command := append(append([]string{"ask", "-timeout", "1s"}, options...), netip.AddrPortFrom(to, lab.ServePort).String())
	what := fmt.Sprintf("%s an answer by UDP to %s from %s", when, machine, to)
	err := lab.Until(t.Context(), 15*time.Second, what, func(ctx context.Context) error {
		out, err := g.Call(ctx, machine, false, command...)
		if want := inboundName + " " + source.String(); err == nil && strings.TrimSpace(out) != want {
			err = fmt.Errorf("it is %q, want %q", out, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// on runs commands on a machine.
func (g *gatewayTest) on(t *testing.T, machine string, commands []string) {
	t.Helper()
	if _, err := g.Kin.Exec(context.WithoutCancel(t.Context()), machine, "sh", "-ec", strings.Join(commands, "\n")); err != nil {
		t.Error(err)
	}
}

// serveInbound creates the Service and returns its addresses.
func (g *gatewayTest) serveInbound(t *testing.T) []netip.Addr {
	t.Helper()
	ctx, services := t.Context(), g.Kube.CoreV1().Services(lab.Namespace)
	policy := corev1.IPFamilyPolicyPreferDualStack
	svc, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: inboundName},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Selector: chosen(inboundName), IPFamilyPolicy: &policy,
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: lab.ServePort, TargetPort: intstr.FromInt32(lab.ServePort)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: lab.ServePort, TargetPort: intstr.FromInt32(lab.ServePort)},
			},
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
	ips := g.OfFamilies(inboundIPs)
	for _, a := range ips {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if _, err := services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return ips
}
