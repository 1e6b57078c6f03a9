package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	esv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	churnName = "churn"
	churnPort = 11100 // for the pods that are always selected by an object
	// churnObjects is how many objects of each kind there are, churnRounds how often each is
	// created, changed or deleted, churnPods how many pods come and go.
	churnObjects = 10
	churnRounds  = 3
	churnPods    = 6
	// churnSamples is how many objects of each kind are tested with packets at the end.
	churnSamples = 2
)

var (
	churnIngress = addresses("5.5.5.24", "5555::18")
	churnKept    = addresses("172.18.0.244", "fc00:f853:ccd:e793::244")
)

// churnRetry is for objects whose status is written all the time.
var churnRetry = wait.Backoff{Steps: 100, Duration: 20 * time.Millisecond, Factor: 1, Jitter: 1}

// churnObject is one of the objects, which may or may not exist.
type churnObject struct {
	name   string
	there  bool
	create func(context.Context) error
	change func(context.Context, *rand.Rand) error
	delete func(context.Context) error
	// inForce returns an error unless the object takes effect.
	inForce func(context.Context) error
}

// churnTest is the churn test on one cluster.
type churnTest struct {
	*suite
	egress  *egressIPTest
	gateway *gatewayTest
	objects []*churnObject
	// routed is a pod with gateways, on the first worker.
	routed lab.Pod
	// pods are the pods of the last round, gone those that were deleted.
	pods, gone []string
}

// churn creates, changes and deletes egress objects of every kind, all at once and several times,
// while pods come and go. At the end, the objects that exist take effect, deleted ones have left
// nothing behind, and pods that were always selected by an object have never left with another
// address. CHURN_SEED repeats the same actions, but not their timing.
func (s *suite) churn(t *testing.T) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("CHURN_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("CHURN_SEED=%d", seed)
	c := &churnTest{suite: s, egress: s.egressIPOf(t), gateway: newGatewayTest(t, s)}
	before := c.steadyState(t)
	t.Run("Churn", func(t *testing.T) { c.run(t, rand.New(rand.NewPCG(seed, 0))) })
	s.sameState(t, before)
}

func (c *churnTest) run(t *testing.T, random *rand.Rand) {
	c.namespace(t)
	steady := c.serve(t, churnName, churnIngress, func(eg *esv1.EgressService) { eg.Spec.OnUnavailable = esv1.UnavailableDrop })
	c.egress.assignable(t, nodes[1:]...)
	t.Cleanup(func() {
		for _, node := range nodes {
			c.patchNode(t, node, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, assignableLabel))
		}
	})
	c.egress.create(t, churnName, churnKept, held)
	steady.programmed(t, "")
	c.egress.programmed(t, churnName)
	capture := newCapture(t, c.suite, churnPort, churnPort, churnIngress)
	keptCapture := newCapture(t, c.suite, churnPort+1, churnPort+1, churnKept)
	for _, sender := range []lab.Sender{
		{Name: "churn-service", Labels: steady.labels(), Port: churnPort},
		{Name: "churn-address", Labels: chosen(churnName), Port: churnPort + 1},
	} {
		sender.Node, sender.To = lab.ControlPlane, lab.OutsideAddresses
		if err := c.StartSender(t.Context(), sender); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { c.egress.deletePods(t, []string{"churn-address"}) })
	capture.arrives(t, 0, time.Now())
	for i := range churnObjects {
		c.objects = append(c.objects, c.service(i), c.address(i), c.route(i))
	}
	t.Cleanup(func() { c.clear(t) })
	for range churnRounds {
		c.round(t, random)
	}
	c.settled(t)
	t.Run("Samples", c.samples)
	capture.arrives(t, 0, time.Now())
	n, kept := capture.inspect(t), keptCapture.inspect(t)
	t.Logf("%d and %d packets with the right source, none with another", n, kept)
	if kept == 0 {
		t.Error("no packet of the pod under the EgressIP arrived")
	}
}

// round acts on every object and every pod at once.
func (c *churnTest) round(t *testing.T, random *rand.Rand) {
	t.Helper()
	var all sync.WaitGroup
	act := func(what string, f func(context.Context) error) {
		all.Go(func() {
			if err := f(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for _, o := range c.objects {
		// A generator for each object, so that the order does not matter.
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		switch {
		case !o.there:
			act("create "+o.name, o.create)
			o.there = true
		case own.IntN(3) == 0:
			act("delete "+o.name, o.delete)
			o.there = false
		default:
			act("change "+o.name, func(ctx context.Context) error { return o.change(ctx, own) })
		}
	}
	previous := c.pods
	c.pods = nil
	for i := range churnPods {
		name, node := fmt.Sprintf("churn-pod-%d", len(c.gone)+len(previous)+i), nodes[random.IntN(len(nodes))]
		labels := map[string]string{"app": churnOf("service", random.IntN(churnObjects))}
		if i%2 == 0 {
			labels = chosen(churnOf("address", random.IntN(churnObjects)))
		}
		c.pods = append(c.pods, name)
		act("create "+name, func(ctx context.Context) error {
			return c.StartSender(ctx, lab.Sender{Name: name, Node: node, Labels: labels, To: lab.OutsideAddresses, Port: churnPort + 2})
		})
	}
	for _, name := range previous { // their node removes them in its own time
		c.gone = append(c.gone, name)
		act("delete "+name, func(ctx context.Context) error {
			return c.Kube.CoreV1().Pods(lab.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	all.Wait()
	// The next round begins at a random moment while this one is still being processed.
	_ = pause(t.Context(), time.Duration(random.IntN(1000))*time.Millisecond)
}

func churnOf(kind string, i int) string { return fmt.Sprintf("churn-%s-%d", kind, i) }

// service returns an EgressService with its Service, which stays.
func (c *churnTest) service(i int) *churnObject {
	name := churnOf("service", i)
	services, egress := c.Kube.CoreV1().Services(lab.Namespace), c.Egress.EgressServiceV1().EgressServices(lab.Namespace)
	return &churnObject{name: name,
		create: func(ctx context.Context) error {
			policy := corev1.IPFamilyPolicyPreferDualStack
			svc, err := services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &policy,
				Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: lab.ServePort}}}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			for _, a := range churnSources("service", i) {
				svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
			}
			if _, err := services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
				return err
			}
			eg := &esv1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: name}}
			eg.Spec.NodeSelector.MatchLabels = map[string]string{workerLabel: ""}
			_, err = egress.Create(ctx, eg, metav1.CreateOptions{})
			return err
		},
		change: func(ctx context.Context, random *rand.Rand) error {
			return retry.RetryOnConflict(churnRetry, func() error {
				eg, err := egress.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				eg.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelHostname: nodes[1+random.IntN(2)]}
				_, err = egress.Update(ctx, eg, metav1.UpdateOptions{})
				return err
			})
		},
		delete: func(ctx context.Context) error {
			return errors.Join(egress.Delete(ctx, name, metav1.DeleteOptions{}), services.Delete(ctx, name, metav1.DeleteOptions{}))
		},
		inForce: func(ctx context.Context) error {
			eg, err := egress.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			c := meta.FindStatusCondition(eg.Status.Conditions, esv1.ConditionProgrammed)
			if eg.Status.Host == "" || c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != eg.Generation {
				return fmt.Errorf("status %+v", eg.Status)
			}
			return nil
		},
	}
}

// churnSources returns the addresses that an object of a kind gives to pods.
func churnSources(kind string, i int) []netip.Addr {
	if kind == "service" {
		return addresses(fmt.Sprintf("5.5.6.%d", i+1), fmt.Sprintf("5555::6:%d", i+1))
	}
	return addresses(fmt.Sprintf("172.18.3.%d", i+1), fmt.Sprintf("fc00:f853:ccd:e793::3:%d", i+1))
}

// address returns an EgressIP.
func (c *churnTest) address(i int) *churnObject {
	name := churnOf("address", i)
	specify := func(ip *v1.EgressIP, onUnavailable v1.UnavailablePolicy) {
		ip.Spec.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: lab.Namespace}
		ip.Spec.PodSelector.MatchLabels = chosen(name)
		ip.Spec.OnUnavailable = onUnavailable
	}
	return &churnObject{name: name,
		create: func(ctx context.Context) error {
			ip := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name}}
			specify(ip, "")
			setIPs(churnSources("address", i))(&ip.Spec)
			_, err := c.egress.client.Create(ctx, ip, metav1.CreateOptions{})
			return err
		},
		change: func(ctx context.Context, random *rand.Rand) error {
			return retry.RetryOnConflict(churnRetry, func() error {
				ip, err := c.egress.client.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				specify(ip, []v1.UnavailablePolicy{"", v1.UnavailableDrop}[random.IntN(2)])
				setIPs([][]netip.Addr{churnSources("address", i), churnSources("address", i)[:1]}[random.IntN(2)])(&ip.Spec)
				_, err = c.egress.client.Update(ctx, ip, metav1.UpdateOptions{})
				return err
			})
		},
		delete: func(ctx context.Context) error { return c.egress.client.Delete(ctx, name, metav1.DeleteOptions{}) },
		inForce: func(ctx context.Context) error {
			ip, err := c.egress.client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return errors.Join(has(ip, v1.ConditionAssigned, metav1.ConditionTrue), has(ip, v1.ConditionProgrammed, metav1.ConditionTrue))
		},
	}
}

// route returns a policy for the namespace whose pods have gateways: the policies add up.
func (c *churnTest) route(i int) *churnObject {
	name := churnOf("route", i)
	policies := c.gateway.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes()
	specify := func(p *routev1.AdminPolicyBasedExternalRoute, random *rand.Rand) {
		p.Spec.From.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: churnName}
		p.Spec.NextHops = hops(routev1.HopOptions{}, c.gateways[random.IntN(len(c.gateways))])
	}
	return &churnObject{name: name,
		create: func(ctx context.Context) error {
			p := &routev1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{Name: name}}
			specify(p, rand.New(rand.NewPCG(uint64(i), 0)))
			_, err := policies.Create(ctx, p, metav1.CreateOptions{})
			return err
		},
		change: func(ctx context.Context, random *rand.Rand) error {
			return retry.RetryOnConflict(churnRetry, func() error {
				p, err := policies.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				specify(p, random)
				_, err = policies.Update(ctx, p, metav1.UpdateOptions{})
				return err
			})
		},
		delete: func(ctx context.Context) error { return policies.Delete(ctx, name, metav1.DeleteOptions{}) },
		inForce: func(ctx context.Context) error {
			p, err := policies.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if c := meta.FindStatusCondition(p.Status.Conditions, routev1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Generation {
				return fmt.Errorf("status %+v", p.Status)
			}
			return nil
		},
	}
}

// settled waits until every object that exists takes effect.
func (c *churnTest) settled(t *testing.T) {
	t.Helper()
	for _, o := range c.objects {
		if !o.there {
			continue
		}
		if err := lab.Until(t.Context(), egressPatience, o.name+" to be in force", o.inForce); err != nil {
			t.Error(err)
		}
	}
}

// samples tests some of the remaining objects with packets.
func (c *churnTest) samples(t *testing.T) {
	left := map[string]int{}
	for _, o := range c.objects {
		var kind string
		var i int
		if o.there {
			kind, i = churnKind(o.name)
		}
		if kind == "" || left[kind] == churnSamples {
			continue
		}
		left[kind]++
		switch kind {
		case "service":
			pod, err := c.RunServer(t.Context(), "sample-"+o.name, lab.ControlPlane, map[string]string{"app": o.name})
			if err != nil {
				t.Fatal(err)
			}
			defer c.egress.deletePods(t, []string{pod.Name})
			eg, err := c.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(t.Context(), o.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.RouteTo(t.Context(), churnSources(kind, i), eg.Status.Host); err != nil {
				t.Fatal(err)
			}
			c.leavesAs(t, pod, churnSources(kind, i)...)
		case "address":
			pod, err := c.RunServer(t.Context(), "sample-"+o.name, lab.ControlPlane, chosen(o.name))
			if err != nil {
				t.Fatal(err)
			}
			defer c.egress.deletePods(t, []string{pod.Name})
			ip, err := c.egress.client.Get(t.Context(), o.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c.leavesAs(t, pod, churnSources(kind, i)[:len(ip.Spec.EgressIPs)]...)
		case "route":
			c.throughGateways(t)
		}
	}
	t.Logf("tried %v", left)
}

func churnKind(name string) (kind string, i int) {
	for _, kind := range []string{"service", "address", "route"} {
		if _, err := fmt.Sscanf(name, "churn-"+kind+"-%d", &i); err == nil {
			return kind, i
		}
	}
	return "", 0
}

// throughGateways waits until a pod of the namespace gets through the gateways that the policies
// now have, and no others.
func (c *churnTest) throughGateways(t *testing.T) {
	t.Helper()
	want := map[string]bool{}
	for _, o := range c.objects {
		if kind, _ := churnKind(o.name); kind != "route" || !o.there {
			continue
		}
		p, err := c.gateway.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Get(t.Context(), o.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, gw := range c.gateways {
			if p.Spec.NextHops.Static[0].IP == gw.Addresses[0].String() {
				want[gw.Name] = true
			}
		}
	}
	for _, a := range lab.Beyond {
		source, err := c.nodeAddress(t.Context(), c.routed.Node, a.Is4())
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Until(t.Context(), egressPatience, fmt.Sprintf("the pod to reach %s through %v", a, want), func(ctx context.Context) error {
			out, err := lab.Run(ctx, append(c.Kubectl(), "exec", "-n", churnName, c.routed.Name, "--",
				"/probe", "get", "-count", "24", lab.URL(a, "/who"))...)
			if err != nil {
				return err
			}
			have := map[string]bool{}
			for line := range strings.Lines(out) {
				name, seen, _ := strings.Cut(strings.TrimSpace(line), " ")
				if have[name] = true; seen != source.String() {
					return fmt.Errorf("%s saw %s, not %s", name, seen, source)
				}
			}
			if !maps.Equal(have, want) {
				return fmt.Errorf("it went through %v", have)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// namespace creates the namespace whose pods have gateways, and a pod in it.
func (c *churnTest) namespace(t *testing.T) {
	t.Helper()
	c.makeNamespace(t, churnName)
	pod := lab.ServerPod("routed", nodes[1], nil)
	pod.Namespace = churnName
	if _, err := c.Kube.CoreV1().Pods(churnName).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.routed = lab.Pod{Name: pod.Name, Node: nodes[1]}
}

// clear deletes all that is left.
func (c *churnTest) clear(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	for _, o := range c.objects {
		if o.there {
			if err := o.delete(ctx); err != nil {
				t.Errorf("delete %s: %v", o.name, err)
			}
		}
	}
	c.egress.deletePods(t, append(c.gone, c.pods...))
}
