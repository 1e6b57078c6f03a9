package suite

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// workerLabel is the label of nodes that may be hosts.
const workerLabel = "node-role.kubernetes.io/worker"

// served is an EgressService with its Service and the pods behind it; what a test creates is
// deleted when it ends.
type served struct {
	*suite
	name    string
	ingress []netip.Addr
	// announced is the node to which the network outside routes the addresses.
	announced atomic.Value
}

// serve creates a Service with ingress addresses, whose pods are labelled app=name, and an
// EgressService to be served by a worker.
func (s *suite) serve(t *testing.T, name string, ingress []netip.Addr, change ...func(*v1.EgressService)) *served {
	t.Helper()
	ctx := t.Context()
	for _, node := range nodes[1:] {
		s.patchNode(t, node, `{"metadata":{"labels":{"`+workerLabel+`":""}}}`)
	}
	e := &served{suite: s, name: name, ingress: s.OfFamilies(ingress)}
	e.makeService(t)
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: name}}
	eg.Spec.NodeSelector.MatchLabels = map[string]string{workerLabel: ""}
	for _, f := range change {
		f(eg)
	}
	if _, err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Create(ctx, eg, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return e
}

// makeService creates the Service, which is deleted when the test ends.
func (e *served) makeService(t *testing.T) {
	t.Helper()
	e.putService(t)
	t.Cleanup(func() { e.remove(t) })
}

// putService creates the Service and does what a load-balancer provider does.
func (e *served) putService(t *testing.T) {
	t.Helper()
	ctx, services := t.Context(), e.Kube.CoreV1().Services(lab.Namespace)
	policy := corev1.IPFamilyPolicyPreferDualStack
	svc, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: e.name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &policy,
			Selector: map[string]string{"app": e.name}, Ports: []corev1.ServicePort{{Port: lab.ServePort}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range e.ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if _, err := services.UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *served) remove(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	err := e.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(ctx, e.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if err := e.Kube.CoreV1().Services(lab.Namespace).Delete(ctx, e.name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	pods, err := e.Kube.CoreV1().Pods(lab.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + e.name})
	if err != nil {
		t.Error(err)
		return
	}
	err = atOnce(len(pods.Items), func(i int) error { return e.DeletePod(ctx, pods.Items[i].Name) })
	if err != nil {
		t.Error(err)
	}
}

// rulesOutlived waits until no node has rules of the EgressService: they remain for a while after
// their use.
func (e *served) rulesOutlived(t *testing.T) {
	err := lab.Until(context.WithoutCancel(t.Context()), 20*time.Second, "the rules of "+e.name+" to end", func(ctx context.Context) error {
		for _, node := range nodes {
			out, err := e.Kin.Exec(ctx, node, "sh", "-ec", "iptables-save; ip6tables-save")
			if err != nil {
				return err
			}
			handOn := func(line string) bool {
				return strings.HasPrefix(line, lab.HandOn) && slices.ContainsFunc(e.ingress, func(a netip.Addr) bool { return strings.Contains(line, "-d "+a.String()+"/") })
			}
			if strings.Contains(out, strconv.Quote(lab.Namespace+"/"+e.name)) || slices.ContainsFunc(strings.Split(out, "\n"), handOn) {
				return fmt.Errorf("%s has:\n%s", node, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// labels returns the labels of the pods behind the Service.
func (e *served) labels() map[string]string { return map[string]string{"app": e.name} }

// programmed waits until a node other than not is the host and programmed, and returns it.
func (e *served) programmed(t *testing.T, not string) (host string) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the EgressService to be programmed", func(ctx context.Context) error {
		var err error
		if host, err = e.hostNow(ctx); err == nil && host == not {
			err = fmt.Errorf("the host is %s", host)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// hostNow returns the host, or an error if there is none.
func (e *served) hostNow(ctx context.Context) (string, error) {
	eg, err := e.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(ctx, e.name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if eg.Status.Host == "" || !meta.IsStatusConditionTrue(eg.Status.Conditions, v1.ConditionProgrammed) {
		return "", fmt.Errorf("status %+v", eg.Status)
	}
	return eg.Status.Host, nil
}

// steered waits until each address of the given number of pods has a policy that leads to a host,
// and no other address has one: policies of deleted pods do not count.
func (e *served) steered(t *testing.T, pods int) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the pods to be served", func(ctx context.Context) error {
		list, err := e.Kube.CoreV1().Pods(lab.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + e.name})
		if err != nil {
			return err
		}
		var want []string
		for _, p := range list.Items {
			for _, ip := range p.Status.PodIPs {
				want = append(want, ip.IP)
			}
		}
		if len(list.Items) != pods || len(want) != pods*len(e.ingress) {
			return fmt.Errorf("%d pods with the addresses %v", len(list.Items), want)
		}
		out, err := e.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "--bare", "--columns=match", "find", "Logical_Router_Policy",
			"action=reroute", "external_ids:EgressSVC="+lab.Namespace+"/"+e.name)
		if err != nil {
			return err
		}
		var have []string
		for line := range strings.Lines(out) { // such as "ip4.src == 10.244.1.5", and empty ones between them
			if fields := strings.Fields(line); len(fields) == 3 {
				have = append(have, fields[2])
			}
		}
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(want, have) {
			return fmt.Errorf("policies for %v, want %v", have, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// announce keeps the ingress addresses routed to the node that has the label, as a load-balancer
// provider does, until the test ends.
func (e *served) announce(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			e.follow(ctx, t)
			// The API server may be unavailable for a moment.
			_ = pause(ctx, 100*time.Millisecond)
		}
	}()
}

// follow does so until the watch ends or the API server does not answer.
func (e *served) follow(ctx context.Context, t *testing.T) {
	label := kube.LabelEgressServicePrefix + lab.Namespace + "-" + e.name
	watch, err := e.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		// When a node loses the label, this watch sees it as deleted.
		node, ok := event.Object.(*corev1.Node)
		if !ok || event.Type == apiwatch.Deleted || node.Name == e.announced.Load() {
			continue
		}
		if err := e.RouteTo(ctx, e.ingress, node.Name); err != nil {
			if ctx.Err() == nil {
				t.Logf("announce %s from %s: %v", e.name, node.Name, err)
			}
			return
		}
		e.announced.Store(node.Name)
	}
}

// routedTo waits until the network outside routes the addresses to a node.
func (e *served) routedTo(t *testing.T, node string) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "the addresses to be announced", func(context.Context) error {
		if at := e.announced.Load(); at != node {
			return fmt.Errorf("they are routed to %v", at)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// cordon makes a node unschedulable, or schedulable again.
func (s *suite) cordon(t *testing.T, node string, unschedulable bool) {
	t.Helper()
	s.patchNode(t, node, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, unschedulable))
}

func (s *suite) patchNode(t *testing.T, node, patch string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if _, err := s.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// during runs f and returns how long it took.
func during(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// countLines returns the number of lines that contain a word.
func countLines(out string, words ...string) (n int) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(fields, w) }) {
			n++
		}
	}
	return n
}
