package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const webName = "web"

var webIPs = addresses("172.18.0.201", "172.18.0.202", "fc00:f853:ccd:e793::201", "fc00:f853:ccd:e793::202")

// primary has pods leave with addresses on the nodes' own network.
func (e *egressIPTest) primary(t *testing.T) {
	e.assignable(t, "ovn-worker", "ovn-worker2")
	e.choose(t, webName, "egress-0", "egress-1", "egress-2")
	e.create(t, webName, webIPs)
	t.Run("Spread", e.spread)
	t.Run("Explained", e.explains)
	t.Run("Neighbours", func(t *testing.T) { e.neighbours(t, lab.Outside, "breth0", e.programmed(t, webName)) })
	t.Run("InsideTheCluster", e.inside)
	t.Run("Excluded", e.excluded)
	t.Run("Services", e.replies)
	t.Run("EgressService", e.underService)
	e.in(t, "shared", "OneFamily", e.oneFamily)
	e.in(t, "shared", "Labels", e.labels)
	e.remove(t, webName)
	e.policies(t)
	e.allLeaveAs(t, e.all())
}

// spread checks the rows, which are those in the documentation, and what they do.
func (e *egressIPTest) spread(t *testing.T) {
	holders := e.programmed(t, webName)
	for i := 0; i < len(webIPs); i += 2 {
		if holders[webIPs[i]] == holders[webIPs[i+1]] {
			t.Errorf("%s has both addresses of a family: %v", holders[webIPs[i]], holders)
		}
	}
	e.allLeaveAs(t, e.all(), webIPs...)
	e.leavesAs(t, e.servers["b2"])
	e.policies(t, e.reroutes(t, holders, e.pods)...)
	for _, node := range nodes {
		var want []string
		for a, holder := range holders {
			for _, pod := range e.pods {
				if holder == node {
					want = append(want, fmt.Sprintf("snat %s %s %s", a, pod.Address(a.Is4()), topology.ManagementLSP(node)))
				}
			}
		}
		e.lists(t, lab.ControlPlane, topology.ManagementLSP(node), want, "sh", "-c",
			// lr-nat-list shows a logical port only along with a MAC address.
			fmt.Sprintf(`for nat in $(ovn-nbctl --bare --columns=nat list Logical_Router %s); do
ovn-nbctl --bare --columns=type,external_ip,logical_ip,logical_port list NAT $nat | tr '\n' ' '; echo; done`, topology.GatewayRouter(node)))
	}
}

// reroutes returns the policies for the pods, given which nodes hold the addresses.
func (e *egressIPTest) reroutes(t *testing.T, holders map[netip.Addr]string, pods map[string]lab.Pod) []string {
	t.Helper()
	all, err := e.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, is4 := range []bool{true, false} {
		var hops []string
		for a, holder := range holders {
			if a.Is4() != is4 {
				continue
			}
			for _, join := range all[holder].Join {
				if join.Addr().Is4() == is4 {
					hops = append(hops, join.Addr().String())
				}
			}
		}
		slices.Sort(hops) // as in the database, whichever node came first
		list := strings.Join(hops, ", ")
		for _, pod := range pods {
			match := map[bool]string{true: "ip4", false: "ip6"}[is4]
			want = append(want, fmt.Sprintf("100 %s.src == %s reroute %s", match, pod.Address(is4), list))
		}
	}
	return want
}

// inside checks traffic that stays in the cluster: it must not have an egress address.
func (e *egressIPTest) inside(t *testing.T) {
	pods := e.all()
	err := atOnce(len(pods), func(i int) error {
		for _, own := range pods[i].Addresses {
			for _, other := range pods {
				if other.Name == pods[i].Name {
					continue
				}
				if err := e.seenAs(t.Context(), pods[i].Name, other.Address(own.Is4()), []netip.Addr{own}); err != nil {
					return err
				}
			}
		}
		return e.reachesNodes(t.Context(), pods[i])
	})
	if err != nil {
		t.Error(err)
	}
}

// excluded adds pods that send no packets, or send them from their node's network.
func (e *egressIPTest) excluded(t *testing.T) {
	excluded := []func() (lab.Pod, error){
		func() (lab.Pod, error) { return e.RunToEnd(t.Context(), "egress-ended", "ovn-worker", chosen(webName)) },
		func() (lab.Pod, error) {
			return e.RunHostServer(t.Context(), "egress-host", "ovn-worker", chosen(webName), 8090)
		},
	}
	err := atOnce(len(excluded), func(i int) error {
		_, err := excluded[i]()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	extra, err := e.RunServer(t.Context(), "egress-extra", "ovn-worker", chosen(webName))
	if err != nil {
		t.Fatal(err)
	}
	with := map[string]lab.Pod{"egress-extra": extra}
	for name, pod := range e.pods {
		with[name] = pod
	}
	// Once the last pod has its policies, the others would have theirs, too.
	holders := e.programmed(t, webName)
	e.policies(t, e.reroutes(t, holders, with)...)
	for _, to := range lab.OutsideAddresses {
		own, err := e.nodeAddress(t.Context(), "ovn-worker", to.Is4())
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := e.SeenFromMachine(t.Context(), "ovn-worker", to); err != nil || seen != own {
			t.Errorf("the host network was seen as %s (%v), want %s", seen, err, own)
		}
	}
	e.removePods(t, "egress-ended", "egress-host", "egress-extra")
	e.policies(t, e.reroutes(t, holders, e.pods)...)
}

// oneFamily gives the EgressIP addresses of one family only, which must not affect traffic of the
// other family.
func (e *egressIPTest) oneFamily(t *testing.T) {
	for _, is4 := range []bool{true, false} {
		only := ofFamily(webIPs, is4)
		e.change(t, webName, setIPs(only))
		e.programmed(t, webName)
		e.allLeaveAs(t, e.all(), only...)
	}
	e.change(t, webName, setIPs(webIPs))
	e.programmed(t, webName)
}

// labels changes the labels of a pod and of its namespace.
func (e *egressIPTest) labels(t *testing.T) {
	e.choose(t, webName, "egress-0", "egress-1")
	e.leavesAs(t, e.pods["egress-2"])
	e.leavesAs(t, e.pods["egress-1"], webIPs...)
	e.choose(t, webName, "egress-1", "egress-2")
	e.leavesAs(t, e.pods["egress-2"], webIPs...)
	e.leavesAs(t, e.pods["egress-0"])
	e.change(t, webName, func(spec *v1.EgressIPSpec) {
		spec.NamespaceSelector.MatchLabels = map[string]string{egressLabel: "yes"}
	})
	e.leavesAs(t, e.pods["egress-2"])
	namespace := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, egressLabel, value)
		if _, err := e.Kube.CoreV1().Namespaces().Patch(t.Context(), lab.Namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	namespace(`"yes"`)
	e.leavesAs(t, e.pods["egress-2"], webIPs...)
	namespace("null")
	e.leavesAs(t, e.pods["egress-2"])
}

// underService lets an EgressService select one of the pods: it takes precedence, and the EgressIP
// serves the pod again afterwards.
func (e *egressIPTest) underService(t *testing.T) {
	const name, pod = "egress-both", "egress-1"
	behind := func(t *testing.T, app string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"labels":{"app":%s}}}`, app)
		_, err := e.Kube.CoreV1().Pods(lab.Namespace).Patch(context.WithoutCancel(t.Context()), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	s := e.serve(t, name, addresses("5.5.5.7", "5555::7"))
	t.Cleanup(func() { behind(t, "null") }) // pods behind the Service are deleted with it
	behind(t, strconv.Quote(name))
	s.programmed(t, "")
	s.steered(t, 1)
	s.announce(t)
	e.leavesAs(t, e.pods[pod], s.ingress...)
	e.leavesAs(t, e.pods["egress-0"], webIPs...)
	behind(t, "null")
	e.leavesAs(t, e.pods[pod], webIPs...)
}

// replies has outside clients connect through every node to a Service of these pods: a reply with
// an egress address would belong to no connection that they know.
func (e *egressIPTest) replies(t *testing.T) {
	ctx := t.Context()
	services := e.Kube.CoreV1().Services(lab.Namespace)
	policy := corev1.IPFamilyPolicyRequireDualStack
	svc, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: webName},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: chosen(webName),
			IPFamilyPolicy: &policy, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(lab.ServePort)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(ctx), webName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	port := uint16(svc.Spec.Ports[0].NodePort)
	for _, traffic := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
		patch := fmt.Sprintf(`{"spec":{"externalTrafficPolicy":%q}}`, traffic)
		if _, err := services.Patch(ctx, webName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		err := atOnce(2*len(nodes), func(i int) error { return e.answered(ctx, nodes[i/2], i%2 == 0, port, traffic) })
		if err != nil {
			t.Error(err)
		}
	}
}

// answered connects to a node port from outside, once the Service is served there.
func (e *egressIPTest) answered(ctx context.Context, node string, is4 bool, port uint16, traffic corev1.ServiceExternalTrafficPolicy) error {
	to, err := e.nodeAddress(ctx, node, is4)
	if err != nil {
		return err
	}
	client, err := pick(lab.OutsideAddresses, is4)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s/clientip", netip.AddrPortFrom(to, port))
	call := func(ctx context.Context) error {
		out, err := e.Call(ctx, lab.Outside, false, "get", "-count", "6", "-timeout", "2s", url)
		if err == nil && traffic == corev1.ServiceExternalTrafficPolicyLocal {
			for line := range strings.Lines(out) {
				if strings.TrimSpace(line) != client.String() {
					err = errors.Join(err, fmt.Errorf("the client was seen as %s", line))
				}
			}
		}
		return err
	}
	if err := lab.Until(ctx, 20*time.Second, fmt.Sprintf("%s, %s, to answer", url, traffic), call); err != nil {
		return err
	}
	if err := call(ctx); err != nil {
		return fmt.Errorf("%s, %s: %w", url, traffic, err)
	}
	return nil
}
