package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	combined = "combined"
	// combinedHost holds the egress addresses and serves the EgressServices. Half of the pods are
	// on it, half on another node.
	combinedHost = "ovn-worker2"
	// combinedAtOnce is how many machines and pods connect at a time.
	combinedAtOnce = 4
	// combinedPatience is how long it may take until the cells of a table are right.
	combinedPatience = 45 * time.Second
	// combinedShown is how many wrong answers of a client are reported.
	combinedShown = 10
)

var (
	combinedIPs   = addresses("172.18.0.241", "fc00:f853:ccd:e793::241")
	combinedShore = addresses("192.168.50.241", "fd00:50::241")
)

// What can select a pod. Pods that nothing selects show the common behavior.
var (
	combinedServices = []struct {
		name string
		spec func(*v1.EgressServiceSpec)
		all  bool // every node serves it, in local gateway mode only
	}{
		{name: ""},
		{name: "ip", spec: func(s *v1.EgressServiceSpec) { s.NodeSelector = onHost }},
		{name: "network", spec: func(s *v1.EgressServiceSpec) { s.NodeSelector, s.Network = onHost, blueTable }},
		{name: "all", spec: func(s *v1.EgressServiceSpec) { s.SourceIPBy, s.Network = v1.SourceIPNetwork, blueTable }, all: true},
	}
	combinedEgressIPs = []string{"", "primary", "secondary"}
	onHost            = metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: combinedHost}}
)

// combination is a pod with the objects that select it.
type combination struct {
	lab.Pod
	service, ip string
	// ingress are the addresses of the pod's Service, and local those of another Service with
	// externalTrafficPolicy Local.
	ingress, local []netip.Addr
	// port and localPort are the node ports of the two.
	port, localPort int32
}

func (c *combination) String() string {
	return fmt.Sprintf("EgressService %q, EgressIP %q, on %s", c.service, c.ip, c.Node)
}

// cell is the answer that a client should get.
type cell struct {
	// from is a pod or a machine.
	from string
	pod  bool
	what string
	url  string
	// want is a pattern for the answer, which is a name and the source address that was seen, or
	// noAnswer.
	want string
}

// combinations gives pods every combination of egress features and tests connections from each pod
// to everything, and from outside to each: the table in docs/precedence.md.
func (s *suite) combinations(t *testing.T) {
	g := newGatewayTest(t, s)
	s.addShore(t)
	s.addBlue(t)
	all := s.combine(t)
	t.Run("WithoutGateways", func(t *testing.T) { s.cells(t, all, false) })
	g.policy(t, hops(routev1.HopOptions{}, g.gateways...))
	t.Run("WithGateways", func(t *testing.T) { s.cells(t, all, true) })
	g.remove(t)
}

// combine creates the pods and everything that selects them.
func (s *suite) combine(t *testing.T) []*combination {
	t.Helper()
	ctx := t.Context()
	s.blueRoutes(t, "add")
	t.Cleanup(func() { s.blueRoutes(t, "del") })
	e := s.egressIPOf(t)
	e.assignable(t, combinedHost)
	t.Cleanup(func() { e.assignable(t) })
	e.create(t, combined+"-primary", combinedIPs, held)
	e.create(t, combined+"-secondary", combinedShore, held)
	var all []*combination
	var making errgroup.Group
	making.SetLimit(combinedAtOnce)
	t.Cleanup(func() { s.uncombine(t) })
	for _, service := range combinedServices {
		if service.all && s.mode != "local" {
			continue
		}
		for _, ip := range combinedEgressIPs {
			for _, node := range []string{"ovn-worker", combinedHost} {
				n := len(all) + 1
				c := &combination{service: service.name, ip: ip,
					ingress: addresses(fmt.Sprintf("5.5.9.%d", n), fmt.Sprintf("5555:9::%x", n)),
					local:   addresses(fmt.Sprintf("5.5.10.%d", n), fmt.Sprintf("5555:10::%x", n))}
				all = append(all, c)
				making.Go(func() error { return s.makeCombination(ctx, c, fmt.Sprintf("%s-%d", combined, n), node, service.spec) })
			}
		}
	}
	if err := making.Wait(); err != nil {
		t.Fatal(err)
	}
	e.programmed(t, combined+"-primary")
	e.programmed(t, combined+"-secondary")
	for _, c := range all {
		switch c.service {
		case "":
		case "all":
			s.condition(t, c.Name, v1.ConditionProgrammed, metav1.ConditionTrue, "EveryNode")
		default:
			s.condition(t, c.Name, v1.ConditionProgrammed, metav1.ConditionTrue, "Programmed")
		}
	}
	s.announceCombined(t, all)
	return all
}

// makeCombination creates a pod with its Services and, unless spec is nil, its EgressService.
func (s *suite) makeCombination(ctx context.Context, c *combination, name, node string, spec func(*v1.EgressServiceSpec)) (err error) {
	labels := map[string]string{"app": name, combined: ""}
	if c.ip != "" {
		labels[egressLabel] = combined + "-" + c.ip
	}
	if c.Pod, err = s.RunServer(ctx, name, node, labels); err != nil {
		return err
	}
	if c.port, err = s.combinedService(ctx, name, name, corev1.ServiceExternalTrafficPolicyCluster, c.ingress); err != nil {
		return err
	}
	if c.localPort, err = s.combinedService(ctx, name+"-local", name, corev1.ServiceExternalTrafficPolicyLocal, c.local); err != nil {
		return err
	}
	if spec == nil {
		return nil
	}
	eg := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	spec(&eg.Spec)
	_, err = s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Create(ctx, eg, metav1.CreateOptions{})
	return err
}

// combinedService creates a Service for a pod and returns its node port.
func (s *suite) combinedService(ctx context.Context, name, pod string, policy corev1.ServiceExternalTrafficPolicy, ingress []netip.Addr) (int32, error) {
	services, families := s.Kube.CoreV1().Services(lab.Namespace), corev1.IPFamilyPolicyPreferDualStack
	svc, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{combined: ""}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &families, ExternalTrafficPolicy: policy,
			Selector: map[string]string{"app": pod},
			Ports:    []corev1.ServicePort{{Port: lab.ServePort, TargetPort: intstr.FromInt32(lab.ServePort)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	for _, a := range ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	svc, err = services.UpdateStatus(ctx, svc, metav1.UpdateOptions{})
	if err != nil {
		return 0, err
	}
	return svc.Spec.Ports[0].NodePort, nil
}

// announceCombined does what a load-balancer provider does, on the machines that connect.
func (s *suite) announceCombined(t *testing.T, all []*combination) {
	t.Helper()
	scripts := map[string]*strings.Builder{lab.Outside: {}, blueName: {}} // for ip -batch
	for _, c := range all {
		for _, to := range slices.Concat(c.ingress, c.local) {
			node := combinedHost // of the EgressServices; any other Service may be reached at any node
			if slices.Contains(c.local, to) {
				node = c.Node
			}
			via, err := s.nodeAddress(t.Context(), node, to.Is4())
			if err != nil {
				t.Fatal(err)
			}
			for machine, source := range map[string][]netip.Addr{lab.Outside: lab.OutsideAddresses, blueName: blueBehind} {
				fmt.Fprintf(scripts[machine], "route replace %s via %s src %s\n", to, via, lab.OfFamily(source, to.Is4()))
			}
		}
	}
	for machine, script := range scripts {
		if _, err := s.Kin.Exec(t.Context(), machine, "sh", "-c", `printf %s "$0" | ip -batch -`, script.String()); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *suite) uncombine(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	labelled := metav1.ListOptions{LabelSelector: combined}
	if err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, labelled); err != nil {
		t.Error(err)
	}
	services, err := s.Kube.CoreV1().Services(lab.Namespace).List(ctx, labelled)
	if err != nil {
		t.Error(err)
		return
	}
	for _, svc := range services.Items {
		if err := s.Kube.CoreV1().Services(lab.Namespace).Delete(ctx, svc.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	pods, err := s.Kube.CoreV1().Pods(lab.Namespace).List(ctx, labelled)
	if err != nil {
		t.Error(err)
		return
	}
	err = atOnce(len(pods.Items), func(i int) error { return s.DeletePod(ctx, pods.Items[i].Name) })
	if err != nil {
		t.Error(err)
	}
}

// cells makes the connections until every cell is right, and reports which are not.
func (s *suite) cells(t *testing.T, all []*combination, gateways bool) {
	var cells []cell
	for _, c := range all {
		for _, is4 := range []bool{true, false} {
			cells = append(append(cells, s.outbound(t, c, gateways, is4)...), s.calls(t, c, gateways, is4)...)
		}
	}
	var wrong []wrongAnswer
	err := lab.Until(t.Context(), combinedPatience, "all cells to be right", func(ctx context.Context) error {
		found, err := s.ask(ctx, cells)
		if ctx.Err() == nil {
			wrong = found
		}
		if len(found) > 0 {
			err = errors.Join(err, fmt.Errorf("%d wrong answers", len(found)))
		}
		return err
	})
	if err != nil {
		t.Error(err)
		s.reportWrong(t, wrong)
	}
	t.Logf("%d combinations, %d cells", len(all), len(cells))
}

// reportWrong reports wrong answers, some for each client, and whether the same questions are
// answered when nothing else is asked.
func (s *suite) reportWrong(t *testing.T, wrong []wrongAnswer) {
	by, cells := map[string][]string{}, make([]cell, len(wrong))
	for i, w := range wrong {
		by[w.from] = append(by[w.from], w.String())
		cells[i] = w.cell
	}
	for _, client := range slices.Sorted(maps.Keys(by)) {
		t.Errorf("%s: %d wrong answers:\n%s", client, len(by[client]), strings.Join(by[client][:min(len(by[client]), combinedShown)], "\n"))
	}
	still, err := s.ask(t.Context(), cells)
	t.Logf("asked once more, without the others, %d of %d are wrong (error: %v)", len(still), len(cells), err)
}

// wrongAnswer is a cell with another answer than it should have.
type wrongAnswer struct {
	cell
	answer string
}

func (w wrongAnswer) String() string {
	return fmt.Sprintf("%s: %s got %q, want %q", w.what, w.url, w.answer, w.want)
}

// ask makes the connections of all cells and returns the wrong answers.
func (s *suite) ask(ctx context.Context, cells []cell) ([]wrongAnswer, error) {
	by := map[string][]cell{}
	for _, c := range cells {
		by[c.from] = append(by[c.from], c)
	}
	var asking errgroup.Group
	asking.SetLimit(combinedAtOnce)
	var mu sync.Mutex
	var wrong []wrongAnswer
	for from, cells := range by {
		asking.Go(func() error {
			urls := make([]string, len(cells))
			for i, c := range cells {
				urls[i] = c.url
			}
			said, err := s.Survey(ctx, from, cells[0].pod, urls...)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, c := range cells {
				if !c.right(said[c.url]) {
					wrong = append(wrong, wrongAnswer{cell: c, answer: said[c.url]})
				}
			}
			return nil
		})
	}
	return wrong, asking.Wait()
}
