package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// onHost has a pod on the host network be the gateway for pods on other nodes: the gateway is its
// node.
func (g *gatewayTest) onHost(t *testing.T) {
	const node = "ovn-worker2"
	ctx := t.Context()
	for _, a := range g.OfFamilies(lab.Beyond) {
		address := netip.PrefixFrom(a, a.BitLen()).String()
		if _, err := g.Kin.Exec(ctx, node, "ip", "addr", "add", address, "dev", "lo"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := g.Kin.Exec(context.WithoutCancel(ctx), node, "ip", "addr", "del", address, "dev", "lo"); err != nil {
				t.Error(err)
			}
		})
	}
	labels := map[string]string{"e2e-gateway": "on-host"}
	if _, err := g.RunOnHost(ctx, "on-host", node, labels); err != nil {
		t.Fatal(err)
	}
	next := v1.ExternalNextHops{Dynamic: []v1.DynamicHop{{PodSelector: metav1.LabelSelector{MatchLabels: labels}}}}
	status := g.policy(t, next)
	addresses, err := g.NodeAddresses(ctx, node)
	if err != nil {
		t.Fatal(err)
	}
	var resolved []string
	for _, h := range status.Hops {
		if h.Pod != lab.Namespace+"/on-host" {
			t.Errorf("hop %+v", h)
		}
		resolved = append(resolved, h.IP)
	}
	for _, a := range addresses {
		if !slices.Contains(resolved, a.String()) {
			t.Errorf("hops %v, want the address %s of the host", resolved, a)
		}
	}
	for family, is4 := range g.families() {
		source, err := g.nodeAddress(ctx, g.servers["a"].Node, is4)
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Until(ctx, 20*time.Second, "pod a to use "+node+" over "+family, func(ctx context.Context) error {
			seen, err := g.through(ctx, "a", is4, 3)
			if err == nil && (len(seen) != 1 || seen[node] != source) {
				err = fmt.Errorf("went through %v", seen)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := g.DeletePod(ctx, "on-host"); err != nil {
		t.Fatal(err)
	}
	err = lab.Until(ctx, 20*time.Second, "the hops of the pod that went to go", func(ctx context.Context) error {
		p, err := g.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Get(ctx, policyName, metav1.GetOptions{})
		if err == nil && len(p.Status.Hops) > 0 {
			err = fmt.Errorf("hops are %+v", p.Status.Hops)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

var precedenceIngress = []netip.Addr{netip.MustParseAddr("5.5.5.25"), netip.MustParseAddr("5555::19")}

// precedence gives external gateways to pods of an EgressService: the gateways take precedence, and
// the EgressService serves its pods again when they are gone.
func (g *gatewayTest) precedence(t *testing.T) {
	const name = "precedence"
	ctx := t.Context()
	g.remove(t)
	g.label(t, `"e2e-precedence"`)
	policy := corev1.IPFamilyPolicyPreferDualStack
	svc, err := g.Kube.CoreV1().Services(lab.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &policy,
			Selector: map[string]string{"app": "e2e-precedence"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range g.OfFamilies(precedenceIngress) {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if _, err := g.Kube.CoreV1().Services(lab.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	egress := g.Egress.EgressServiceV1().EgressServices(lab.Namespace)
	if _, err := egress.Create(ctx, &egressv1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := egress.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := g.Kube.CoreV1().Services(lab.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		g.label(t, "null")
	})
	status := g.condition(t, name, egressv1.ConditionProgrammed, metav1.ConditionTrue, "Programmed")
	if err := g.RouteTo(ctx, g.OfFamilies(precedenceIngress), status.Host); err != nil {
		t.Fatal(err)
	}
	g.seenOutside(t, precedenceIngress, "a", "b")
	g.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, false, g.gateways...)
	g.remove(t)
	g.seenOutside(t, precedenceIngress, "a", "b")
}

// label makes the servers endpoints of a Service; "null" undoes it.
func (g *gatewayTest) label(t *testing.T, value string) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":{"app":` + value + `}}}`)
	for _, name := range []string{"a", "b"} {
		if _, err := g.Kube.CoreV1().Pods(lab.Namespace).Patch(context.WithoutCancel(t.Context()), name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// seenOutside waits until servers are seen outside with these addresses.
func (g *gatewayTest) seenOutside(t *testing.T, as []netip.Addr, servers ...string) {
	t.Helper()
	for _, name := range servers {
		for _, is4 := range g.families() {
			to, err := pick(lab.OutsideAddresses, is4)
			if err != nil {
				t.Fatal(err)
			}
			want, err := pick(as, is4)
			if err != nil {
				t.Fatal(err)
			}
			err = lab.Until(t.Context(), 20*time.Second, fmt.Sprintf("pod %s to be seen as %s", name, want), func(ctx context.Context) error {
				seen, err := g.SeenFromPod(ctx, name, to)
				if err == nil && seen != want {
					err = fmt.Errorf("it is seen as %s", seen)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// documented returns the guide's example of a kind.
func documented(t *testing.T, kind string) string {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "external-gateways.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(guide), "```") {
		if body, ok := strings.CutPrefix(block, "yaml\n"); ok && i%2 == 1 && strings.Contains(body, "kind: "+kind+"\n") {
			return body
		}
	}
	t.Fatalf("the guide has no example of a %s", kind)
	return ""
}

// rights checks that a user who has only the role from the guide can configure external gateways,
// and do nothing else.
func (g *gatewayTest) rights(t *testing.T) {
	const user = "gateway-admin"
	ctx := t.Context()
	g.remove(t)
	before := g.mayDo(t, user)
	role, err := g.WriteFile("role.yaml", documented(t, "ClusterRole"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Run(ctx, append(g.Kubectl(), "apply", "-f", role)...); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "external-gateway-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	if _, err := g.Kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := g.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, user, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := g.Kube.RbacV1().ClusterRoles().Delete(ctx, binding.RoleRef.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	var more []string
	err = lab.Until(ctx, 20*time.Second, "the rights to be known", func(context.Context) error {
		more = slices.DeleteFunc(g.mayDo(t, user), func(r string) bool { return slices.Contains(before, r) })
		if len(more) == 0 {
			return fmt.Errorf("the user may do %v", before)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"verbs":["get","list","watch","create","update","patch","delete"],"apiGroups":["k8s.ovn.org"],"resources":["adminpolicybasedexternalroutes"]}`
	if !slices.Equal(more, []string{want}) {
		t.Errorf("the role lets its user do %v", more)
	}
	config := g.RESTConfig()
	config.Impersonate.UserName = user
	routes, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	asUser := &gatewayTest{suite: g.suite, routes: routes}
	if status := asUser.policy(t, hops(v1.HopOptions{}, g.gateways[0])); !meta.IsStatusConditionTrue(status.Conditions, v1.ConditionReady) {
		t.Errorf("status %+v", status)
	}
	g.uses(t, 20*time.Second, false, g.gateways[0])
	asUser.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, false, g.gateways...)
	g.refused(t, asUser)
	asUser.remove(t)
}

// mayDo lists what a user may do in the servers' namespace.
func (g *gatewayTest) mayDo(t *testing.T, user string) []string {
	t.Helper()
	config := g.RESTConfig()
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: lab.Namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, r := range review.Status.ResourceRules {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, string(text))
	}
	return rules
}

// refused tries what the user must not be able to do.
func (g *gatewayTest) refused(t *testing.T, asUser *gatewayTest) {
	t.Helper()
	ctx := t.Context()
	config := g.RESTConfig()
	config.Impersonate.UserName = "gateway-admin"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	annotate := []byte(`{"metadata":{"annotations":{"k8s.ovn.org/routing-external-gws":"172.18.0.151"}}}`)
	_, inStatus := asUser.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Patch(ctx, policyName, types.MergePatchType,
		[]byte(`{"status":{"pods":7}}`), metav1.PatchOptions{}, "status")
	_, namespace := client.CoreV1().Namespaces().Patch(ctx, lab.Namespace, types.MergePatchType, annotate, metav1.PatchOptions{})
	_, pod := client.CoreV1().Pods(lab.Namespace).Patch(ctx, "a", types.MergePatchType, annotate, metav1.PatchOptions{})
	_, list := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	for what, err := range map[string]error{"write the status": inStatus, "annotate a namespace": namespace,
		"annotate a pod": pod, "list pods": list} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the user may %s: %v", what, err)
		}
	}
}
