package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	blueName  = "blue"
	blueTable = "1234"
)

var (
	// blueHost is a machine on the nodes' wire, blueBehind its addresses in a network to which the
	// nodes' main tables have no route.
	blueHost    = []netip.Addr{netip.MustParseAddr("172.18.0.101"), netip.MustParseAddr("fc00:f853:ccd:e793::101")}
	blueBehind  = []netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd99::1")}
	blueIngress = []netip.Addr{netip.MustParseAddr("5.5.5.27"), netip.MustParseAddr("5555::1b")}
)

// network serves an EgressService with a network: first without the table, for which there must be
// no rule, then through the host's table, then in local gateway mode through the table on each
// pod's node.
func (s *suite) network(t *testing.T) {
	ctx := t.Context()
	t.Cleanup(func() { s.rulesEnd(t) })
	pods := s.blue(t)
	egress := s.Egress.EgressServiceV1().EgressServices(lab.Namespace)
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: blueName}}
	eg.Spec.Network = blueTable
	if _, err := egress.Create(ctx, eg, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	host := s.condition(t, blueName, v1.ConditionProgrammed, metav1.ConditionFalse, "NetworkNotFound").Host
	s.blueAnnounced(t, host)
	s.noRules(t, host)
	err := atOnce(len(blueIngress), func(i int) error {
		if seen, err := s.SeenFromMachine(ctx, blueName, blueIngress[i]); err == nil {
			return fmt.Errorf("without a table the other network got an answer from %s, which saw %s", blueIngress[i], seen)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	s.blueRoutes(t, "add")
	s.condition(t, blueName, v1.ConditionProgrammed, metav1.ConditionTrue, "Programmed")
	ingress := func(lab.Pod) ([]netip.Addr, error) { return blueIngress, nil }
	s.reach(t, pods, ingress)
	s.called(t, "by number")
	s.inside(t, pods)
	mapped := s.mapped(t, host)
	s.hostPort(t, mapped)
	s.reach(t, []lab.Pod{mapped}, ingress)
	s.called(t, "by number, with a host port")
	s.named(t)
	s.reach(t, pods, ingress)
	s.called(t, "by name")
	if _, err := s.SeenFromPod(ctx, "a", blueBehind[0]); err == nil {
		t.Error("a pod of no EgressService reached the other network")
	}
	patch := []byte(`{"spec":{"sourceIPBy":"Network"}}`)
	if _, err := egress.Patch(ctx, blueName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.mode == "shared" {
		s.condition(t, blueName, v1.ConditionAssigned, metav1.ConditionFalse, "SharedGatewayMode")
		return
	}
	if status := s.condition(t, blueName, v1.ConditionProgrammed, metav1.ConditionTrue, "EveryNode"); status.Host != v1.HostAll {
		t.Errorf("host %q", status.Host)
	}
	s.reach(t, pods, func(p lab.Pod) ([]netip.Addr, error) { return s.NodeAddresses(ctx, p.Node) })
	s.inside(t, pods)
	s.hostPort(t, mapped)
	s.direct(t)
	s.hostPort(t, mapped)
}

// bluePort is a host port that leads to a pod in the other network, and that no Service can get as
// a node port.
const bluePort = 21998

// mapped runs another pod of the Service, with a host port.
func (s *suite) mapped(t *testing.T, node string) lab.Pod {
	t.Helper()
	pod, err := s.RunHostPortServer(t.Context(), blueName+"-mapped", node, map[string]string{"app": blueName}, bluePort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DeletePod(context.WithoutCancel(t.Context()), pod.Name); err != nil {
			t.Error(err)
		}
	})
	return pod
}

// hostPort has a machine on the nodes' own network connect to a pod by its host port: replies to
// connections to a node's address take the node's main routes.
func (s *suite) hostPort(t *testing.T, pod lab.Pod) {
	t.Helper()
	addrs, err := s.NodeAddresses(t.Context(), pod.Node)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		err := lab.Until(t.Context(), leakPatience/3, "an answer by the host port of "+pod.Name, func(ctx context.Context) error {
			return s.Get(ctx, lab.Outside, fmt.Sprintf("http://%s/who", netip.AddrPortFrom(a, bluePort)))
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// blueAnnounced does what a load-balancer provider does, on the machine that is both server and
// client.
func (s *suite) blueAnnounced(t *testing.T, node string) {
	t.Helper()
	via, err := s.NodeAddresses(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range blueIngress {
		if _, err := s.Kin.Exec(t.Context(), blueName, "ip", "route", "replace", a.String(), "via", via[i].String(), "src", blueBehind[i].String()); err != nil {
			t.Fatal(err)
		}
	}
}

// direct has the machine in the other network connect through a node without such pods, whose
// kernel connects to the pods directly: their replies reach that node with the pods' own addresses.
func (s *suite) direct(t *testing.T) {
	t.Helper()
	const node = "ovn-worker2"
	s.blueAnnounced(t, node)
	s.called(t, "of every node")
	patch := []byte(`{"spec":{"internalTrafficPolicy":"Local"}}`)
	if _, err := s.Kube.CoreV1().Services(lab.Namespace).Patch(t.Context(), blueName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), leakPatience/3, "the kernel of "+node+" to go to the pods", func(ctx context.Context) error {
		for i, tool := range []string{"iptables", "ip6tables"} {
			out, err := s.Kin.Exec(ctx, node, tool, "-t", "nat", "-S", "OVN-KUBE-HOSTEP")
			if n := strings.Count(out, "-d "+netip.PrefixFrom(blueIngress[i], blueIngress[i].BitLen()).String()); err != nil || n != 3 {
				return errors.Join(err, fmt.Errorf("%d rules for %s: %s", n, blueIngress[i], out))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 { // the kernel picks one of three pods
		s.called(t, "of every node, by pods' own addresses")
	}
}

// rulesEnd waits until no node has rules of a network: they remain for a while after their use.
func (s *suite) rulesEnd(t *testing.T) {
	t.Helper()
	err := lab.Until(context.WithoutCancel(t.Context()), leakPatience, "the rules of the network to end", func(ctx context.Context) error {
		for _, node := range nodes {
			for _, family := range []string{"-4", "-6"} {
				if out, err := s.Kin.Exec(ctx, node, "ip", family, "rule", "list", "priority", "5000"); err != nil || out != "" {
					return errors.Join(err, fmt.Errorf("%s has %s", node, out))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// noRules fails the test if a node has rules of a network.
func (s *suite) noRules(t *testing.T, node string) {
	t.Helper()
	for _, family := range []string{"-4", "-6"} {
		out, err := s.Kin.Exec(t.Context(), node, "ip", family, "rule", "list", "priority", "5000")
		if err != nil {
			t.Fatal(err)
		}
		if out != "" {
			t.Errorf("rules on %s: %s", node, out)
		}
	}
}

// called has the machine in the other network connect to the Service: only the rule for the cluster
// address routes the replies there. In shared gateway mode replies leave through the gateway router
// and bypass all rules of the host.
func (s *suite) called(t *testing.T, how string) {
	t.Helper()
	if s.mode == "shared" {
		return
	}
	for _, a := range blueIngress {
		err := lab.Until(t.Context(), leakPatience/3, "an answer from "+a.String(), func(ctx context.Context) error {
			_, err := s.SeenFromMachine(ctx, blueName, a)
			return err
		})
		if err != nil {
			t.Errorf("network %s: %v", how, err)
		}
	}
}

// named gives the table a name, which the nodes learn only after it is used. (A VRF device would do
// as well, but the kernels of the test machines do not support VRFs.)
func (s *suite) named(t *testing.T) {
	t.Helper()
	const name = "blue-net"
	// The directory with table names is shared with the machine, so give each node its own.
	for _, node := range nodes {
		if _, err := s.Kin.Exec(t.Context(), node, "sh", "-ec", `cp -a /etc/iproute2 /run/iproute2
			mkdir -p /run/iproute2/rt_tables.d
			mount --bind /run/iproute2 /etc/iproute2`); err != nil {
			t.Fatal(err)
		}
	}
	patch := []byte(`{"spec":{"network":"` + name + `"}}`)
	if _, err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Patch(t.Context(), blueName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	host := s.condition(t, blueName, v1.ConditionProgrammed, metav1.ConditionFalse, "NetworkNotFound").Host
	for _, node := range nodes {
		if _, err := s.Kin.Exec(t.Context(), node, "sh", "-ec", "echo '"+blueTable+" "+name+"' >/etc/iproute2/rt_tables.d/e2e.conf"); err != nil {
			t.Fatal(err)
		}
	}
	s.condition(t, blueName, v1.ConditionProgrammed, metav1.ConditionTrue, "Programmed")
	for family, want := range map[string]int{"-4": 4, "-6": 4} { // a cluster address and three pods
		out, err := s.Kin.Exec(t.Context(), host, "ip", family, "rule", "list", "priority", "5000")
		if n := countLines(out, name); err != nil || n != want {
			t.Errorf("%d rules, want %d: %v\n%s", n, want, err, out)
		}
	}
}

// addBlue adds the machine in the other network, unless it exists.
func (s *suite) addBlue(t *testing.T) {
	t.Helper()
	if s.hasBlue {
		return
	}
	ctx := t.Context()
	if err := s.Kin.AddHost(ctx, blueName, "", blueHost[0].String(), blueHost[1].String()); err != nil {
		t.Fatal(err)
	}
	for _, a := range blueBehind {
		if _, err := s.Kin.Exec(ctx, blueName, "ip", "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Serve(ctx, blueName); err != nil {
		t.Fatal(err)
	}
	s.hasBlue = true
}

// blue creates the other network, a Service and its pods, on two nodes.
func (s *suite) blue(t *testing.T) []lab.Pod {
	ctx := t.Context()
	s.addBlue(t)
	policy := corev1.IPFamilyPolicyRequireDualStack
	svc, err := s.Kube.CoreV1().Services(lab.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: blueName},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &policy,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Selector:   map[string]string{"app": blueName}, Ports: []corev1.ServicePort{{Port: lab.ServePort}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range blueIngress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if _, err := s.Kube.CoreV1().Services(lab.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, node := range []string{lab.ControlPlane, "ovn-worker"} {
		names[blueName+"-"+node] = node
	}
	t.Cleanup(func() { s.unblue(t, slices.Collect(maps.Keys(names))) })
	return s.runServers(t, names, map[string]string{"app": blueName})
}

func (s *suite) unblue(t *testing.T, pods []string) {
	ctx := context.WithoutCancel(t.Context())
	if err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(ctx, blueName, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := s.Kube.CoreV1().Services(lab.Namespace).Delete(ctx, blueName, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	s.removePods(t, pods...)
	s.blueRoutes(t, "del")
}

// blueRoutes adds or deletes the routes in the other network's table on every node: a route to the
// network, and a default route that leads there, too.
func (s *suite) blueRoutes(t *testing.T, verb string) {
	ctx := context.WithoutCancel(t.Context())
	for _, node := range nodes {
		for i, a := range blueBehind {
			family := map[bool]string{true: "-4", false: "-6"}[a.Is4()]
			for _, to := range []string{a.String(), "default"} {
				if _, err := s.Kin.Exec(ctx, node, "ip", family, "route", verb, to, "via", blueHost[i].String(), "table", blueTable); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// reach has every pod connect to the machine in the other network, and checks which source
// addresses it saw.
func (s *suite) reach(t *testing.T, pods []lab.Pod, wanted func(lab.Pod) ([]netip.Addr, error)) {
	t.Helper()
	for _, pod := range pods {
		want, err := wanted(pod)
		if err != nil {
			t.Fatal(err)
		}
		for i, to := range blueBehind {
			err := lab.Until(t.Context(), leakPatience, fmt.Sprintf("%s to reach %s", pod.Name, to), func(ctx context.Context) error {
				have, err := s.SeenFromPod(ctx, pod.Name, to)
				if err == nil && have != want[i] {
					err = fmt.Errorf("it was seen as %s, want %s", have, want[i])
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// condition waits for a condition of an EgressService and returns its status.
func (s *suite) condition(t *testing.T, name, kind string, is metav1.ConditionStatus, reason string) (status v1.EgressServiceStatus) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, kind+" to be "+reason, func(ctx context.Context) error {
		eg, err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status = eg.Status
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c == nil || c.Status != is || c.Reason != reason || c.ObservedGeneration != eg.Generation {
			return fmt.Errorf("status %+v", status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return status
}
