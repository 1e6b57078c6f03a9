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
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// outageFor is how long the API server is down: kube-controller-manager waits 50 seconds for
	// the status of a kubelet.
	outageFor = 75 * time.Second
	// outageOver is how long it may take until all nodes and pods are ready again.
	outageOver = 2 * time.Minute
	// outageAfter is how long the test keeps watching after that.
	outageAfter = 10 * time.Second
)

// outage has the API server down for so long that Kubernetes afterwards considers all nodes lost
// and all pods not ready, with the traffic of Faults: nothing may be given up. The gateways are
// those of a pod, and the host of the EgressService must have an endpoint.
func (s *suite) outage(t *testing.T) {
	f := s.newFaultTest(t)
	g := newGatewayTest(t, s)
	f.outageGateways(t, g)
	if _, err := f.Kube.CoreV1().Services(lab.Namespace).Patch(t.Context(), faultName, types.MergePatchType,
		[]byte(`{"spec":{"externalTrafficPolicy":"Local"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.flow(t)
	for range number("OUTAGES", 1) {
		f.suffers(t, "outage of the API server", none, func() { f.beAway(t, g) })
		f.inspect(t)
	}
	t.Logf("longest time without an echo, of connections that were open and of new ones, in milliseconds:\n%s", f.table.String())
}

// outageGateways makes a pod the gateways, which is one only because of its labels and annotations.
func (f *faultTest) outageGateways(t *testing.T, g *gatewayTest) {
	t.Helper()
	var all []netip.Addr
	for _, gw := range f.gateways {
		all = append(all, gw.Addresses...)
	}
	g.gatewayPod(t, fmt.Sprintf(`{"labels":{"e2e-gateway":"true"},"annotations":{"k8s.v1.cni.cncf.io/network-status":"%s"}}`, networkStatus(all...)))
	t.Cleanup(func() {
		_, err := f.Kube.CoreV1().Pods(lab.Namespace).Patch(context.WithoutCancel(t.Context()), "b2", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"e2e-gateway":null},"annotations":{"k8s.v1.cni.cncf.io/network-status":null}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	policies := g.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes()
	policy, err := policies.Get(t.Context(), faultName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy.Spec.NextHops = routev1.ExternalNextHops{Dynamic: []routev1.DynamicHop{{
		PodSelector:           metav1.LabelSelector{MatchLabels: map[string]string{"e2e-gateway": "true"}},
		NetworkAttachmentName: "uplink", HopOptions: policy.Spec.NextHops.Static[0].HopOptions,
	}}}
	if _, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), egressPatience, "the hops to be those of the pod", func(ctx context.Context) error {
		now, err := policies.Get(ctx, faultName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(now.Status.Hops) != len(all) || slices.ContainsFunc(now.Status.Hops, func(h routev1.HopStatus) bool { return h.Pod == "" }) {
			return fmt.Errorf("status %+v", now.Status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// beAway takes the API server down, and watches who has what until everything is ready again.
func (f *faultTest) beAway(t *testing.T, g *gatewayTest) {
	t.Helper()
	before, err := f.whoHasWhat(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Service(t.Context(), "stop", lab.ControlPlane, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	waited := pause(t.Context(), outageFor)
	if err := f.Service(context.WithoutCancel(t.Context()), "start", lab.ControlPlane, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if waited != nil {
		t.Fatal(waited)
	}
	began, said := time.Now(), map[string]time.Duration{}
	note := func(what string) {
		if _, known := said[what]; !known {
			said[what] = time.Since(began).Round(time.Millisecond)
			t.Logf("%s after the API server was back: %s", said[what], what)
		}
	}
	var lost, unready, unlisted, well int
	var ready time.Time
	err = lab.Until(t.Context(), outageOver, "all to be ready again", func(ctx context.Context) error {
		now, err := f.whoHasWhat(ctx, g)
		if err != nil {
			return err
		}
		if now != before {
			note("CHANGED: " + now)
		}
		var why []string
		if lost, unready, unlisted, why, err = f.notReady(ctx); err != nil {
			return err
		}
		if len(why) > 0 {
			note(strings.Join(why, ", "))
		}
		for text, n := range map[string]int{"nodes are not ready": lost, "pods are not ready": unready, "endpoints are not ready": unlisted} {
			if n > 0 {
				note(text)
			}
		}
		if lost+unready+unlisted > 0 {
			ready = time.Time{}
			return fmt.Errorf("%d nodes, %d pods and %d endpoints are not ready", lost, unready, unlisted)
		}
		if well++; ready.IsZero() {
			ready = time.Now()
		}
		// At first Kubernetes has not reported anything as lost yet.
		if len(said) == 0 || time.Since(ready) < outageAfter {
			return fmt.Errorf("all was ready %d times", well)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Endpoints may be ready again before Kubernetes has looked at them.
	for _, what := range []string{"nodes are not ready", "pods are not ready"} {
		if _, ok := said[what]; !ok {
			t.Errorf("Kubernetes never said that %s: this was no outage", what)
		}
	}
	t.Logf("all was ready after %s", ready.Sub(began).Round(time.Millisecond))
	for what := range said {
		if strings.HasPrefix(what, "CHANGED") {
			t.Errorf("before: %s\n%s", before, what)
		}
	}
}

// whoHasWhat returns where egress addresses are, and which gateways are used.
func (f *faultTest) whoHasWhat(ctx context.Context, g *gatewayTest) (string, error) {
	var all []string
	for _, name := range []string{faultName, farName} {
		ip, err := f.egress.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		for _, item := range ip.Status.Items {
			all = append(all, fmt.Sprintf("%s at %s", item.EgressIP, item.Node))
		}
	}
	eg, err := f.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(ctx, faultName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	all = append(all, "EgressService at "+eg.Status.Host)
	policy, err := g.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Get(ctx, faultName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, h := range policy.Status.Hops {
		all = append(all, "gateway "+h.IP)
	}
	return strings.Join(all, ", "), nil
}

// notReady counts what Kubernetes reports as not ready: nodes, and why, pods of the test, and
// endpoints of the EgressService.
func (f *faultTest) notReady(ctx context.Context) (lost, unready, unlisted int, why []string, err error) {
	list, err := f.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, 0, nil, err
	}
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				lost++
				why = append(why, fmt.Sprintf("%s is %s since %s, last heard at %s", list.Items[i].Name, c.Status,
					c.LastTransitionTime.Format(time.TimeOnly), c.LastHeartbeatTime.Format(time.TimeOnly)))
			}
		}
	}
	pods, err := f.Kube.CoreV1().Pods(lab.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, 0, nil, err
	}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				unready++
			}
		}
	}
	slices, err := f.Kube.DiscoveryV1().EndpointSlices(lab.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + faultName})
	if err != nil {
		return 0, 0, 0, nil, err
	}
	for i := range slices.Items {
		for _, e := range slices.Items[i].Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				unlisted++
			}
		}
	}
	return lost, unready, unlisted, why, nil
}
