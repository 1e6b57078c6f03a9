package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

// TestLocalKernel and TestSharedKernel try each feature once, on a cluster of two nodes: three nodes,
// or all tests, are too much for two emulated processors. "make test-kernel" runs them on the
// kernel's datapath.
func TestLocalKernel(t *testing.T)  { testKernel(t, "local") }
func TestSharedKernel(t *testing.T) { testKernel(t, "shared") }

const (
	kernelName = "kernel"
	// vrfName is a VRF device of each node, and the network behind its second device.
	vrfName  = "red"
	vrfTable = "1235"
)

var vrfIngress = addresses("5.5.5.62", "5555::3e")

// kernelTest is the tests on one cluster.
type kernelTest struct {
	*suite
	// system reports whether the cluster is on a kernel with all that it needs: Open vSwitch's
	// datapath, SCTP, VRF.
	system bool
}

func testKernel(t *testing.T, mode string) {
	all := nodes
	nodes, labtest.Nodes = all[:2], all[:2]
	t.Cleanup(func() { nodes, labtest.Nodes = all, all })
	s := start(t, mode, func(o *lab.Options) {
		o.Name, o.Nodes = fmt.Sprintf("e2e-%s-kernel-%d", mode, os.Getpid()), len(nodes)
		o.Config = configure(apiServerLog, "maxPods: 250") // for the sizes
	})
	k := &kernelTest{s, os.Getenv("KIN_DATAPATH") == "kernel"}
	before := k.steadyState(t)
	t.Run("Connectivity", k.connectivity)
	t.Run("Services", k.services)
	t.Run("EgressService", k.egressService)
	t.Run("EgressIP", k.familyAddress)
	t.Run("SecondaryNetwork", k.secondary)
	t.Run("ExternalGateways", k.throughGateways)
	if k.system {
		t.Run("VRF", k.vrf)
	}
	t.Run("Leaks", k.leaks)
	t.Run("Rates", k.rates)
	if number("KERNEL_PODS", 0) > 0 {
		t.Run("Sizes", k.sizes)
	}
	t.Run("Nothing stays", func(t *testing.T) { k.sameState(t, before) })
	t.Run("Restarts", k.restarts)
	t.Run("PowerCut", k.powerCut)
	t.Run("Datapath", func(t *testing.T) { labtest.Datapath(t, k.Lab) })
}

// services asks a Service by all protocols, and with datagrams in fragments.
func (k *kernelTest) services(t *testing.T) {
	ctx, services := t.Context(), k.Kube.CoreV1().Services(lab.Namespace)
	policy := corev1.IPFamilyPolicyRequireDualStack
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: kernelName}}
	svc.Spec.IPFamilyPolicy, svc.Spec.Selector = &policy, map[string]string{"app": kernelName}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: strings.ToLower(string(p)), Protocol: p, Port: lab.ServePort})
	}
	svc, err := services.Create(ctx, svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(ctx), kernelName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	k.serversOn(t, svc.Spec.Selector)
	for _, text := range svc.Spec.ClusterIPs {
		to := netip.AddrPortFrom(netip.MustParseAddr(text), lab.ServePort).String()
		ways := map[string][]string{"TCP": {"get", "http://" + to + "/who"}, "UDP": {"ask", to}}
		if k.system {
			ways["SCTP"], ways["UDP in fragments"] = []string{"get", "-sctp", "http://" + to + "/who"}, []string{"ask", "-size", "4000", to}
		}
		for how, command := range ways {
			for from, pod := range map[string]bool{"a": true, "b": true, "ovn-worker": false} {
				err := lab.Until(ctx, egressPatience, fmt.Sprintf("an answer by %s to %s from %s", how, from, to), func(ctx context.Context) error {
					_, err := k.Call(ctx, from, pod, command...)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// serversOn runs a labelled server pod on each node until the test ends.
func (s *suite) serversOn(t *testing.T, labels map[string]string) (pods []lab.Pod) {
	t.Helper()
	where := map[string]string{}
	for _, node := range nodes {
		where[labels["app"]+"-"+node] = node
	}
	t.Cleanup(func() { s.removePods(t, slices.Collect(maps.Keys(where))...) })
	return s.runServers(t, where, labels)
}

// egressService moves a host from one node to the other.
func (k *kernelTest) egressService(t *testing.T) {
	k.patchNode(t, lab.ControlPlane, fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, workerLabel))
	defer k.patchNode(t, lab.ControlPlane, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, workerLabel))
	k.familyService(t)
}

// secondary gives pods addresses on the second network, and moves them to the other node.
func (k *kernelTest) secondary(t *testing.T) {
	k.addShore(t)
	e := k.egressIPOf(t, k.servers["a"], k.servers["b"])
	e.choose(t, storageName, "a", "b")
	e.assignable(t, "ovn-worker")
	e.create(t, storageName, storageIPs, held)
	ashore := func() {
		for name := range e.pods {
			for i, to := range shoreIPs {
				e.leaves(t, name, to, storageIPs[i])
			}
		}
	}
	e.programmed(t, storageName)
	ashore()
	t.Run("NodeAddresses", e.secondaryInside)
	t.Run("Connections", func(t *testing.T) { e.secondaryConnections(t, "ovn-worker", lab.ControlPlane) })
	e.assignable(t, lab.ControlPlane)
	e.movedFrom(t, storageName, storageIPs[0], "ovn-worker")
	ashore()
	e.remove(t, storageName)
	e.choose(t, storageName)
	e.assignable(t)
}

// throughGateways sends the pods' traffic through two gateways, from which connections to the pods
// return.
func (k *kernelTest) throughGateways(t *testing.T) {
	g := newGatewayTest(t, k.suite)
	t.Run("Static", g.static)
	t.Run("Symmetric", g.symmetric)
	g.remove(t)
}

// vrf serves an EgressService with a VRF device, of which the nodes' second device is a part, and
// which has a default route: first by its host, then in local gateway mode by each pod's node.
func (k *kernelTest) vrf(t *testing.T) {
	k.addShore(t)
	for _, node := range nodes {
		if _, err := k.Kin.Exec(t.Context(), node, "sh", "-ec", `sysctl -qw net.ipv6.conf.`+secondDevice+`.keep_addr_on_down=1
			ip link add `+vrfName+` type vrf table `+vrfTable+`
			ip link set `+vrfName+` up
			ip link set `+secondDevice+` master `+vrfName+`
			ip -4 route add default via `+shoreIPs[0].String()+` table `+vrfTable+`
			ip -6 route add default via `+shoreIPs[1].String()+` table `+vrfTable); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// The kernel keeps the rules that it adds for the first VRF device.
			if _, err := k.Kin.Exec(context.WithoutCancel(t.Context()), node, "sh", "-ec", `ip link del `+vrfName+`
				ip -4 rule del pref 1000
				ip -6 rule del pref 1000
				sysctl -qw net.ipv6.conf.`+secondDevice+`.keep_addr_on_down=0`); err != nil {
				t.Error(err)
			}
		})
	}
	e := k.serve(t, kernelName, vrfIngress, func(eg *v1.EgressService) { eg.Spec.Network = vrfName })
	pods := k.serversOn(t, e.labels())
	host := e.programmed(t, "")
	for i, a := range e.ingress {
		via, err := k.secondAddress(t.Context(), host, a.Is4())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Kin.Exec(t.Context(), shore, "ip", "route", "replace", a.String(), "via", via.String(), "src", shoreIPs[i].String()); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range pods {
		for i, to := range shoreIPs {
			k.leaves(t, pod.Name, to, e.ingress[i])
		}
	}
	if k.mode == "shared" {
		return
	}
	patch := []byte(`{"spec":{"sourceIPBy":"Network"}}`)
	if _, err := k.Egress.EgressServiceV1().EgressServices(lab.Namespace).Patch(t.Context(), kernelName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	k.condition(t, kernelName, v1.ConditionProgrammed, metav1.ConditionTrue, "EveryNode")
	for _, pod := range pods {
		for _, to := range shoreIPs {
			own, err := k.secondAddress(t.Context(), pod.Node, to.Is4())
			if err != nil {
				t.Fatal(err)
			}
			k.leaves(t, pod.Name, to, own)
		}
	}
}

// secondAddress returns a node's own address on the second network.
func (k *kernelTest) secondAddress(ctx context.Context, node string, is4 bool) (netip.Addr, error) {
	family := map[bool]string{true: "-4", false: "-6"}[is4]
	out, err := k.Kin.Exec(ctx, node, "ip", family, "-o", "addr", "show", "dev", secondDevice, "scope", "global")
	if err != nil {
		return netip.Addr{}, err
	}
	for word := range strings.FieldsSeq(out) {
		if p, err := netip.ParsePrefix(word); err == nil {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no address: %q", out)
}

// restarts kills each process: everything is as before.
func (k *kernelTest) restarts(t *testing.T) {
	before := k.steadyState(t)
	for _, p := range processes {
		k.kill(t, p)
	}
	k.sameState(t, before)
	t.Run("Connectivity", k.connectivity)
}

// powerCut cuts the worker's power and restores it.
func (k *kernelTest) powerCut(t *testing.T) {
	const node = "ovn-worker"
	// In the virtual machine the node takes longer to boot than the five minutes after which Kubernetes
	// moves its pods.
	k.kubectl(t, "--namespace=kube-system", "patch", "deployment/coredns", "--patch", `{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`)
	k.kubectl(t, "--namespace=kube-system", "rollout", "status", "deployment/coredns")
	before := k.steadyState(t)
	if err := k.Kin.Node(t.Context(), "kill", node); err != nil {
		t.Fatal(err)
	}
	k.probed(t, node, "Unreachable")
	k.powerOn(t, node)
	k.probed(t, node, "Reachable")
	k.sameState(t, before)
	t.Run("Connectivity", k.connectivity)
}
