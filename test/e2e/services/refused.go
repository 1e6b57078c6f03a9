package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	apiPort = 6443
	sshPort = 22
)

// event waits for an Event about a Service with the given reason and all the words in its message.
func (w *world) event(t *testing.T, service, reason string, words ...string) {
	t.Helper()
	err := lab.Until(t.Context(), settle, fmt.Sprintf("an Event %s with %q", reason, words), func(ctx context.Context) error {
		list, err := w.Kube.CoreV1().Events(lab.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Service,involvedObject.name=" + service})
		if err != nil {
			return err
		}
		var said []string
		for _, e := range list.Items {
			said = append(said, e.Reason+": "+e.Message)
			if e.Reason == reason && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Message, word) }) {
				return nil
			}
		}
		return fmt.Errorf("there are %q", said)
	})
	if err != nil {
		t.Error(err)
	}
}

// addressesOfOthers checks that a Service does not get addresses that belong to something else,
// while it gets the external addresses that belong to nobody.
func (w *world) addressesOfOthers(t *testing.T) {
	victim := w.make(t, "victim", nobody, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	api4, api6 := w.address(lab.ControlPlane, true), w.address(lab.ControlPlane, false)
	other4, other6 := w.address(worker2, true), w.address(worker2, false)
	refused := map[string]string{
		api4.String(): lab.ControlPlane, api6.String(): lab.ControlPlane, other4.String(): worker2, other6.String(): worker2,
		victim.clusterIP(true).String(): "Service range", victim.clusterIP(false).String(): "Service range",
		"fd69::3": "masquerade range", "100.64.0.2": "join range",
		w.pods["c0"].Address(true).String(): "pod range",
	}
	s := w.make(t, "others", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeClusterIP
		for ip := range refused {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, ip)
		}
		for _, a := range external {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
		}
		for _, p := range []int32{apiPort, sshPort} {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("tcp-", p), Port: p,
				TargetPort: intstr.FromInt32(lab.ServePort), Protocol: corev1.ProtocolTCP})
		}
	})
	both := []string{"s1", "s2"}
	w.announce(t, worker1)
	w.try(t, "outside to its own address", way{machine(lab.Outside), s.external, both, nil})
	w.try(t, "host to its own address", way{machine(worker2), s.external, both, nil})
	w.try(t, "pod to its own address", way{pod("c1"), s.external, both, w.of("c1")})
	for ip, why := range refused {
		reason := "InternalAddress"
		if strings.HasPrefix(why, "ovn-") {
			reason = "NodeAddress"
		}
		w.event(t, s.Name, reason, "spec.externalIPs", ip, why)
	}
	if out, err := lab.Run(t.Context(), append(w.Kubectl(), "get", "--raw", "/readyz")...); err != nil || strings.TrimSpace(out) != "ok" {
		t.Errorf("kubectl: %q, %v", out, err)
	}
	for _, c := range []client{machine(lab.Outside), machine(worker1), machine(lab.ControlPlane), pod("c0"), pod("c1")} {
		for _, a := range []netip.Addr{api4, api6} {
			// The API server speaks TLS, and answers plain HTTP with 400.
			if server, _, err := w.get(t.Context(), c, netip.AddrPortFrom(a, apiPort)); err == nil || !strings.Contains(err.Error(), "400") {
				t.Errorf("%s at the address of the API server: %s, %v", c.name, server, err)
			}
		}
		for _, a := range []netip.Addr{api4, other4, other6} {
			if err := w.refused(t.Context(), c, netip.AddrPortFrom(a, sshPort)); err != nil {
				t.Errorf("%s at port 22 of a node: %v", c.name, err)
			}
		}
	}
	w.try(t, "pod to another Service", way{pod("c1"), victim.cluster, nil, nil})
	w.try(t, "host to another Service", way{machine(worker1), victim.cluster, nil, nil})
}

// sharedAddress checks that if two Services request the same port of an address, the older one gets
// it, and the younger one when the older is deleted.
func (w *world) sharedAddress(t *testing.T) {
	ask := func(name, server string, ports ...int32) service {
		s := w.make(t, name, func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Selector = corev1.ServiceTypeClusterIP, nil
			for _, a := range external {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
			}
			s.Spec.Ports = nil
			for _, p := range ports {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("tcp-", p), Port: p, Protocol: corev1.ProtocolTCP})
			}
		})
		api := w.Kube.DiscoveryV1().EndpointSlices(lab.Namespace)
		for _, is4 := range []bool{true, false} {
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%t", name, is4), Namespace: lab.Namespace,
					Labels:          map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "e2e"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: s.UID}}},
				AddressType: discoveryv1.AddressTypeIPv6,
				Endpoints:   []discoveryv1.Endpoint{endpoint(w.pods[server].Node, w.pods[server].Address(is4), ready)},
			}
			if is4 {
				slice.AddressType = discoveryv1.AddressTypeIPv4
			}
			for _, p := range ports {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("tcp-", p)),
					Port: new(int32(lab.ServePort)), Protocol: new(corev1.ProtocolTCP)})
			}
			if _, err := api.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	w.announce(t, worker1)
	at := func(port uint16) func(bool) netip.AddrPort {
		return func(is4 bool) netip.AddrPort { return netip.AddrPortFrom(lab.OfFamily(external, is4), port) }
	}
	older := ask("shared-a", "s1", servicePort)
	w.try(t, "the older before", way{machine(lab.Outside), older.external, []string{"s1"}, nil})
	younger := ask("shared-b", "s2", servicePort, 8081)
	w.try(t, "the younger's other port", way{machine(lab.Outside), at(8081), []string{"s2"}, nil})
	w.event(t, younger.Name, "AddressTaken", "spec.externalIPs", netip.AddrPortFrom(external[0], servicePort).String()+"/TCP", lab.Namespace+"/shared-a")
	for _, c := range []client{machine(lab.Outside), machine(worker2), pod("c1")} {
		w.try(t, "the older after by "+c.name, way{c, older.external, []string{"s1"}, nil})
	}
	if err := w.Kube.CoreV1().Services(lab.Namespace).Delete(t.Context(), older.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []client{machine(lab.Outside), machine(worker2), pod("c1")} {
		w.try(t, "the younger when the older is gone by "+c.name, way{c, at(servicePort), []string{"s2"}, nil})
	}
}

// healthPortTaken checks that a health check port that is in use affects nothing else.
func (w *world) healthPortTaken(t *testing.T) {
	const port = 31999
	ctx := t.Context()
	if _, err := w.RunHostServer(ctx, "squatter", worker1, nil, port); err != nil {
		t.Fatal(err)
	}
	gone := false
	t.Cleanup(func() {
		if !gone {
			_ = w.DeletePod(context.Background(), "squatter")
		}
	})
	s := w.make(t, "health-taken", loadBalancer, externalLocal, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = port })
	w.event(t, s.Name, "HealthPortInUse", "spec.healthCheckNodePort", fmt.Sprint(port), worker1)
	w.announce(t, worker1)
	w.try(t, "all else of the Service", way{machine(lab.Outside), s.external, []string{"s1"}, outside})

	w.restartDaemon(t, worker1, "ovnkube-node", "service-node-write")
	for _, command := range []string{"iptables", "ip6tables"} {
		if _, err := w.Kin.Exec(ctx, worker1, command, "-t", "nat", "-F", "OVN-KUBE-NODEPORT"); err != nil {
			t.Fatal(err)
		}
	}
	other := w.make(t, "health-other")
	w.try(t, "another Service after the restart", way{machine(lab.Outside), w.port(other, worker1), []string{"s1", "s2"}, nil})
	if err := lab.Until(ctx, time.Minute, "the rules that were flushed", func(ctx context.Context) error {
		out, err := w.Kin.Exec(ctx, worker1, "iptables-save", "-t", "nat")
		if err != nil {
			return err
		}
		if !strings.Contains(out, fmt.Sprintf("--dport %d", s.nodePort())) {
			return fmt.Errorf("there is no rule for port %d", s.nodePort())
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := w.DeletePod(ctx, "squatter"); err != nil {
		t.Fatal(err)
	}
	gone = true
	url := "http://" + netip.AddrPortFrom(w.address(worker1, true), port).String() + "/healthz"
	if err := lab.Until(ctx, settle, "the health port", func(ctx context.Context) error {
		out, err := w.Call(ctx, lab.Outside, false, "get", url)
		if err == nil && !strings.Contains(out, `"localEndpoints": 1`) {
			err = fmt.Errorf("it says %s", out)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// providersAddresses checks that pods do not leave with addresses of nodes, or of the load balancer
// itself, that a provider wrote to the status.
func (w *world) providersAddresses(t *testing.T) {
	ctx := t.Context()
	s := w.make(t, "provider", loadBalancer)
	proxy := corev1.LoadBalancerIPModeProxy
	node := w.address(lab.ControlPlane, true)
	status := s.Service.DeepCopy()
	status.Status.LoadBalancer.Ingress = append([]corev1.LoadBalancerIngress{
		{IP: node.String()}, {IP: w.address(worker2, false).String()}, {IP: "9.9.9.9", IPMode: &proxy},
	}, status.Status.LoadBalancer.Ingress...)
	if _, err := w.Kube.CoreV1().Services(lab.Namespace).UpdateStatus(ctx, status, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	api := w.Egress.EgressServiceV1().EgressServices(lab.Namespace)
	if _, err := api.Create(ctx, &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Delete(context.Background(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	var host string
	if err := lab.Until(ctx, time.Minute, "the EgressService to be served", func(ctx context.Context) error {
		eg, err := api.Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		host = eg.Status.Host
		c := meta.FindStatusCondition(eg.Status.Conditions, v1.ConditionIngressRefused)
		switch {
		case !meta.IsStatusConditionTrue(eg.Status.Conditions, v1.ConditionProgrammed):
		case c == nil || c.Status != metav1.ConditionTrue:
		case !strings.Contains(c.Message, node.String()) || !strings.Contains(c.Message, lab.ControlPlane):
		case !strings.Contains(c.Message, "9.9.9.9") || !strings.Contains(c.Message, "Proxy"):
		default:
			return nil
		}
		return fmt.Errorf("status %+v", eg.Status)
	}); err != nil {
		t.Fatal(err)
	}
	w.announce(t, host)
	for _, p := range []string{"s1", "s2"} {
		for i, to := range lab.OutsideAddresses {
			if err := lab.Until(ctx, settle, p+" to leave with the good address", func(ctx context.Context) error {
				seen, err := w.SeenFromPod(ctx, p, to)
				if err == nil && seen != external[i] {
					err = fmt.Errorf("it is seen as %s", seen)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []client{machine(lab.Outside), machine(worker1), pod("c0")} {
		if server, _, err := w.get(ctx, c, netip.AddrPortFrom(node, apiPort)); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s at the API server: %s, %v", c.name, server, err)
		}
	}
	for _, n := range nodes {
		out, err := w.Kin.Exec(ctx, n, "iptables-save", "-t", "filter")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "-A OVN-KUBE-STRAY -d "+node.String()+"/32") {
			t.Errorf("%s drops what is for the API server:\n%s", n, out)
		}
	}
}
