package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const policyName = "e2e"

// bfdInterval, in milliseconds, is long enough for a busy machine: three late packets in a row
// would take a gateway out of use.
const bfdInterval = 1000

// masterRestarts is how often the master is killed; EXTERNAL_GATEWAY_RESTARTS overrides it.
const masterRestarts = 1

// gatewayTest is the external gateway tests on one cluster.
type gatewayTest struct {
	*suite
	routes versioned.Interface
}

// families returns the families of the cluster, and whether each is IPv4.
func (s *suite) families() map[string]bool {
	families := map[string]bool{"v4": true, "v6": false}
	maps.DeleteFunc(families, func(_ string, is4 bool) bool { return !s.Has(is4) })
	return families
}

// newGatewayTest adds two gateways to the cluster, unless they exist.
func newGatewayTest(t *testing.T, s *suite) *gatewayTest {
	t.Helper()
	routes, err := versioned.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for n := len(s.gateways) + 1; n <= 2; n++ {
		gw, err := s.AddGateway(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.StartBFD(t.Context(), gw, bfdInterval); err != nil {
			t.Fatal(err)
		}
		s.gateways = append(s.gateways, gw)
	}
	return &gatewayTest{suite: s, routes: routes}
}

// externalGateways sends the servers' traffic through two gateways and removes these in every
// possible way.
func (s *suite) externalGateways(t *testing.T) {
	g := newGatewayTest(t, s)
	before := s.steadyState(t)
	t.Run("Static", g.static)
	s.in(t, "shared", "Inbound", g.inbound)
	s.once(t, "Restart", g.restart)
	s.full(t, "Failover", g.failover)
	// What is left of these two for a while goes away while the others run.
	s.in(t, "shared", "Precedence", g.precedence)
	t.Run("EgressIP", g.beforeEgressIP)
	s.once(t, "Detection", g.detection)
	s.once(t, "Recreated", g.recreated)
	s.in(t, "shared", "Leaving", g.leaving)
	s.full(t, "OwnAddress", g.ownAddress)
	s.full(t, "Dynamic", g.dynamic)
	s.in(t, "shared", "Announced", g.announced)
	t.Run("OnHost", g.onHost)
	s.once(t, "Migration", g.migration)
	s.once(t, "Conditions", g.conditions)
	s.once(t, "Rights", g.rights)
	g.remove(t)
	s.sameState(t, before)
}

// TestIPv4 and TestIPv6 run, on single-stack clusters from the manifests, the tests that may behave
// differently there.
func TestIPv4(t *testing.T) { testFamily(t, "ipv4", "shared") }
func TestIPv6(t *testing.T) { testFamily(t, "ipv6", "local") }

func testFamily(t *testing.T, family, mode string) {
	s := start(t, mode, func(o *lab.Options) {
		o.Name, o.IPFamily, o.Install = fmt.Sprintf("e2e-%s-%d", family, os.Getpid()), family, "manifests"
		o.Config += fmt.Sprintf("ovnkube: {args: [--exgw-interface=%s]}\n", secondDevice)
	})
	g := newGatewayTest(t, s)
	before := s.steadyState(t)
	t.Run("Static", g.static)
	t.Run("Failover", g.failover)
	t.Run("Leaving", g.leaving)
	t.Run("OwnAddress", g.ownAddress)
	t.Run("Dynamic", g.dynamic)
	t.Run("Conditions", g.conditions)
	g.remove(t)
	t.Run("EgressIP", s.familyAddress) // what is left of it for a while goes away while the others run
	t.Run("EgressService", s.familyService)
	t.Run("SecondUplink", func(t *testing.T) { g.secondUplink(t, false) })
	s.sameState(t, before)
}

// untranslated checks, in a cluster that translates pods one by one, that pods with gateways are
// not translated, and are again when the gateways are gone.
func (s *suite) untranslated(t *testing.T) {
	g := newGatewayTest(t, s)
	before := s.steadyState(t)
	for _, name := range []string{"a", "b"} {
		addresses, err := s.NodeAddresses(t.Context(), s.servers[name].Node)
		if err != nil {
			t.Fatal(err)
		}
		g.seenOutside(t, addresses, name)
	}
	g.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, true, g.gateways...)
	g.remove(t)
	t.Run("EgressIP", s.ownNode)
	s.same(t, before.Anonymous(), lab.State.Anonymous) // the rows are recreated
}

// remove deletes the policy.
func (g *gatewayTest) remove(t *testing.T) {
	t.Helper()
	err := g.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Delete(t.Context(), policyName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// hops returns static hops to gateways, in both families.
func hops(options v1.HopOptions, gateways ...lab.Gateway) v1.ExternalNextHops {
	var next v1.ExternalNextHops
	for _, g := range gateways {
		for _, a := range g.Addresses {
			next.Static = append(next.Static, v1.StaticHop{IP: a.String(), HopOptions: options})
		}
	}
	return next
}

func watched() v1.HopOptions {
	interval, times := int32(bfdInterval), int32(3)
	return v1.HopOptions{BFDEnabled: true, BFD: &v1.BFDTimers{MinRx: &interval, MinTx: &interval, Multiplier: &times}}
}

// policy sets the hops of the policy and waits for a status about them.
func (g *gatewayTest) policy(t *testing.T, next v1.ExternalNextHops) v1.AdminPolicyBasedExternalRouteStatus {
	t.Helper()
	client := g.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes()
	var want *v1.AdminPolicyBasedExternalRoute
	// The status may be written between the read and the write.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		want, err = client.Get(t.Context(), policyName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			want = &v1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{Name: policyName}}
			want.Spec.From.NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": lab.Namespace}
			want.Spec.NextHops = next
			want, err = client.Create(t.Context(), want, metav1.CreateOptions{})
		case err == nil:
			want.Spec.NextHops = next
			want, err = client.Update(t.Context(), want, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var status v1.AdminPolicyBasedExternalRouteStatus
	err = lab.Until(t.Context(), 20*time.Second, "a status of the policy", func(ctx context.Context) error {
		have, err := client.Get(ctx, policyName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status = have.Status
		if c := meta.FindStatusCondition(status.Conditions, v1.ConditionReady); c == nil || c.ObservedGeneration != want.Generation {
			return fmt.Errorf("status is %+v", status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// through returns the gateways through which connections of a pod to Beyond went, with the source
// addresses that they saw.
func (g *gatewayTest) through(ctx context.Context, pod string, is4 bool, connections int) (map[string]netip.Addr, error) {
	to, err := pick(lab.Beyond, is4)
	if err != nil {
		return nil, err
	}
	answers, err := g.WhoFromPod(ctx, pod, to, connections)
	seen := map[string]netip.Addr{}
	for _, a := range answers {
		if was, known := seen[a.Name]; known && was != a.Source {
			return nil, fmt.Errorf("%s saw both %s and %s", a.Name, was, a.Source)
		}
		seen[a.Name] = a.Source
	}
	return seen, err
}

// uses waits until the connections of all servers go through exactly these gateways, with the
// node's address, or the pod's if own is set.
func (g *gatewayTest) uses(t *testing.T, limit time.Duration, own bool, gateways ...lab.Gateway) {
	t.Helper()
	var want []string
	for _, gw := range gateways {
		want = append(want, gw.Name)
	}
	slices.Sort(want)
	for _, name := range []string{"a", "b"} {
		for family, is4 := range g.families() {
			source, err := g.sourceFor(t.Context(), g.servers[name].Node, is4, gateways)
			if err != nil {
				t.Fatal(err)
			}
			if own {
				source = g.servers[name].Address(is4)
			}
			err = lab.Until(t.Context(), limit, fmt.Sprintf("pod %s to use %v over %s as %s", name, want, family, source),
				func(ctx context.Context) error {
					seen, err := g.through(ctx, name, is4, 12*len(gateways))
					if err != nil {
						return err
					}
					have := slices.Sorted(maps.Keys(seen))
					if !slices.Equal(have, want) || slices.ContainsFunc(have, func(gw string) bool { return seen[gw] != source }) {
						return fmt.Errorf("went through %v", seen)
					}
					return nil
				})
			if err != nil {
				t.Errorf("%v\n%s", err, g.next(t.Context(), g.servers[name].Node))
			}
		}
	}
}

// next describes the way between a node and the gateways: the routes of the gateway router and the MAC
// addresses that it knows, and the neighbours of the gateways.
func (g *gatewayTest) next(ctx context.Context, node string) string {
	var all strings.Builder
	read := func(machine string, command ...string) {
		out, err := g.Kin.Exec(ctx, machine, command...)
		if err != nil {
			out += err.Error()
		}
		fmt.Fprintf(&all, "%s: %s\n%s\n", machine, strings.Join(command, " "), out)
	}
	read(lab.ControlPlane, "ovn-nbctl", "lr-route-list", "GR_"+node)
	read(lab.ControlPlane, "ovn-sbctl", "--columns=ip,mac", "find", "MAC_Binding", "logical_port=rtoe-GR_"+node)
	for _, gw := range g.gateways {
		read(gw.Name, "ip", "neighbor")
	}
	return all.String()
}

// unused waits until no node has a BFD session with a gateway.
func (g *gatewayTest) unused(t *testing.T, gw lab.Gateway) {
	t.Helper()
	err := lab.Until(t.Context(), 20*time.Second, "sessions with "+gw.Name+" to go", func(ctx context.Context) error {
		for _, node := range nodes {
			for _, a := range gw.Addresses {
				status, err := g.BFD(ctx, node, gw, a)
				if err == nil && status != "" {
					err = fmt.Errorf("that of %s with %s is %s", node, a, status)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// static checks that connections are spread over both gateways once their sessions are up.
func (g *gatewayTest) static(t *testing.T) {
	status := g.policy(t, hops(watched(), g.gateways...))
	if len(status.Hops) != 2*len(g.families()) || status.Namespaces != 1 || int(status.Pods) != len(g.servers) {
		t.Errorf("status %+v", status)
	}
	for _, c := range status.Conditions {
		if want := !strings.HasPrefix(c.Type, v1.ConditionConflict); (c.Status == metav1.ConditionTrue) != want {
			t.Errorf("condition %+v", c)
		}
	}
	g.uses(t, 30*time.Second, false, g.gateways...)
}

// symmetric connects from behind each gateway: no other gateway leads there, so an answer sent to
// another one would be lost. There is no BFD that could take a gateway out of use in between.
func (g *gatewayTest) symmetric(t *testing.T) {
	g.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, false, g.gateways...)
	for _, gw := range g.gateways {
		for _, name := range []string{"a", "b"} {
			for _, is4 := range g.families() {
				from, err := pick(gw.Behind, is4)
				if err != nil {
					t.Fatal(err)
				}
				seen, err := g.SourcesFromMachine(t.Context(), gw.Name, g.servers[name].Address(is4), 10)
				if err != nil || len(seen) != 1 || seen[from] != 10 {
					t.Errorf("10 connections from behind %s to %s: seen as %v: %v", gw.Name, name, seen, err)
				}
			}
		}
	}
}

// restart kills the master several times: each new one must find everything as desired; in
// particular, it must not add a route again.
func (g *gatewayTest) restart(t *testing.T) {
	g.policy(t, hops(watched(), g.gateways...))
	g.uses(t, 30*time.Second, false, g.gateways...)
	before := g.steadyState(t)
	for range number("EXTERNAL_GATEWAY_RESTARTS", masterRestarts) {
		g.kill(t, processes[0])
		now, err := g.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const routes = "northbound Logical_Router_Static_Route"
		if was, is := before[routes], now[routes]; was != is || was == "" {
			t.Fatalf("routes are\n%s\nwere\n%s", is, was)
		}
	}
	g.sameState(t, before)
}

// failover has a gateway's BFD die and come back.
func (g *gatewayTest) failover(t *testing.T) {
	if err := g.KillBFD(t.Context(), g.gateways[0]); err != nil {
		t.Fatal(err)
	}
	g.uses(t, 20*time.Second, false, g.gateways[1])
	if err := g.StartBFD(t.Context(), g.gateways[0], bfdInterval); err != nil {
		t.Fatal(err)
	}
	g.uses(t, 30*time.Second, false, g.gateways...)
}

// leaving removes a gateway from the policy while there are tracked connections from behind it:
// these must be forgotten, those of the other gateway must not.
func (g *gatewayTest) leaving(t *testing.T) {
	g.symmetric(t)
	steered := func(ctx context.Context, gw lab.Gateway) (string, error) {
		var all string
		for _, node := range nodes {
			lines, err := g.Steered(ctx, node, gw)
			if err != nil {
				return "", err
			}
			all += lines
		}
		return all, nil
	}
	for _, gw := range g.gateways {
		if lines, err := steered(t.Context(), gw); err != nil || lines == "" {
			t.Fatalf("no connection is answered through %s (%v)", gw.Name, err)
		}
	}
	g.policy(t, hops(v1.HopOptions{}, g.gateways[0]))
	err := lab.Until(t.Context(), 10*time.Second, "connections of the gateway that left to be forgotten", func(ctx context.Context) error {
		lines, err := steered(ctx, g.gateways[1])
		if err == nil && lines != "" {
			err = errors.New(lines)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if lines, err := steered(t.Context(), g.gateways[0]); err != nil || lines == "" {
		t.Errorf("connections of the gateway that stayed were forgotten as well (%v)", err)
	}
	g.uses(t, 20*time.Second, false, g.gateways[0])
}

// ownAddress checks that pods are seen with their own addresses, and then with their node's again.
func (g *gatewayTest) ownAddress(t *testing.T) {
	g.policy(t, hops(v1.HopOptions{SkipHostSNAT: true}, g.gateways...))
	g.uses(t, 20*time.Second, true, g.gateways...)
	g.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, false, g.gateways...)
}

// gatewayPod patches the metadata of server b2, which the annotations and labels make a gateway on
// an attached network: its address there is that of an outside gateway.
func (g *gatewayTest) gatewayPod(t *testing.T, metadata string) {
	t.Helper()
	if _, err := g.Kube.CoreV1().Pods(lab.Namespace).Patch(t.Context(), "b2", types.MergePatchType,
		[]byte(`{"metadata":`+metadata+`}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func networkStatus(a ...netip.Addr) string {
	var ips []string
	for _, addr := range a {
		ips = append(ips, fmt.Sprintf(`\"%s\"`, addr))
	}
	return fmt.Sprintf(`[{\"name\":\"%s/uplink\",\"interface\":\"net1\",\"ips\":[%s]}]`, lab.Namespace, strings.Join(ips, ","))
}

// dynamic checks a gateway found by a pod's labels and attached network.
func (g *gatewayTest) dynamic(t *testing.T) {
	next := v1.ExternalNextHops{Dynamic: []v1.DynamicHop{{
		PodSelector:           metav1.LabelSelector{MatchLabels: map[string]string{"e2e-gateway": "true"}},
		NetworkAttachmentName: "uplink", HopOptions: watched(),
	}}}
	status := g.policy(t, next)
	if c := meta.FindStatusCondition(status.Conditions, v1.ConditionHopsValid); c == nil || c.Reason != v1.ReasonNoGatewayPod {
		t.Errorf("without a gateway pod: %+v", c)
	}
	g.gatewayPod(t, fmt.Sprintf(`{"labels":{"e2e-gateway":"true"},"annotations":{"k8s.v1.cni.cncf.io/network-status":"%s"}}`,
		networkStatus(g.gateways[1].Addresses...)))
	g.uses(t, 30*time.Second, false, g.gateways[1])
	g.gatewayPod(t, fmt.Sprintf(`{"annotations":{"k8s.v1.cni.cncf.io/network-status":"%s"}}`, networkStatus(g.gateways[0].Addresses...)))
	g.uses(t, 30*time.Second, false, g.gateways[0])
	g.gatewayPod(t, `{"labels":{"e2e-gateway":null},"annotations":{"k8s.v1.cni.cncf.io/network-status":null}}`)
	g.unused(t, g.gateways[0])
}

// announced checks a gateway found by the annotations of its pod.
func (g *gatewayTest) announced(t *testing.T) {
	g.remove(t)
	g.gatewayPod(t, fmt.Sprintf(`{"annotations":{"k8s.ovn.org/routing-namespaces":"%s","k8s.ovn.org/routing-network":"uplink",`+
		`"k8s.ovn.org/bfd-enabled":"","k8s.v1.cni.cncf.io/network-status":"%s"}}`, lab.Namespace, networkStatus(g.gateways[1].Addresses...)))
	g.uses(t, 30*time.Second, false, g.gateways[1])
	for _, a := range g.gateways[1].Addresses {
		if status, err := g.BFD(t.Context(), "ovn-worker", g.gateways[1], a); err != nil || status != "up" {
			t.Errorf("the session with %s is %q: %v", a, status, err)
		}
	}
	g.gatewayPod(t, `{"annotations":{"k8s.ovn.org/routing-namespaces":null,"k8s.ovn.org/routing-network":null,`+
		`"k8s.ovn.org/bfd-enabled":null,"k8s.v1.cni.cncf.io/network-status":null}}`)
	g.unused(t, g.gateways[1])
}

// migration moves from the policy to annotations and back: no row may change.
func (g *gatewayTest) migration(t *testing.T) {
	g.policy(t, hops(v1.HopOptions{BFDEnabled: true}, g.gateways...))
	g.uses(t, 30*time.Second, false, g.gateways...)
	before := g.steadyState(t)
	var list []string
	for _, gw := range g.gateways {
		for _, a := range gw.Addresses {
			list = append(list, a.String())
		}
	}
	annotate := func(gateways, bfd string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"k8s.ovn.org/routing-external-gws":%s,"k8s.ovn.org/bfd-enabled":%s}}}`, gateways, bfd)
		if _, err := g.Kube.CoreV1().Namespaces().Patch(t.Context(), lab.Namespace, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	annotate(fmt.Sprintf("%q", strings.Join(list, ",")), `""`)
	g.sameState(t, before)
	g.policy(t, v1.ExternalNextHops{})
	g.sameState(t, before)
	g.uses(t, 10*time.Second, false, g.gateways...)
	g.policy(t, hops(v1.HopOptions{BFDEnabled: true}, g.gateways...))
	annotate("null", "null")
	g.sameState(t, before)
}

// conditions uses invalid hops next to a valid one.
func (g *gatewayTest) conditions(t *testing.T) {
	next := hops(v1.HopOptions{}, g.gateways[0])
	bad := []string{"0.0.0.0", "224.0.0.1", "10.96.0.1", "fe80::1"}
	for _, a := range g.servers["a"].Addresses {
		bad = append(bad, a.String())
	}
	if len(g.families()) == 1 { // a gateway of the other family
		bad = append(bad, map[bool]string{true: "fc00:f853:ccd:e793::1501", false: "172.18.0.151"}[g.Has(true)])
	}
	for _, ip := range bad {
		next.Static = append(next.Static, v1.StaticHop{IP: ip})
	}
	status := g.policy(t, next)
	c := meta.FindStatusCondition(status.Conditions, v1.ConditionHopsValid)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1.ReasonInvalidHop || strings.Count(c.Message, ";") != len(bad)-1 {
		t.Fatalf("condition %+v", c)
	}
	for _, ip := range bad {
		if !strings.Contains(c.Message, "("+ip+")") {
			t.Errorf("%s is not named in %s", ip, c.Message)
		}
	}
	if len(status.Hops) != len(g.families()) {
		t.Errorf("hops %+v", status.Hops)
	}
	g.uses(t, 20*time.Second, false, g.gateways[0])
}
