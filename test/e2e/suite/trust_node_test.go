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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// edited are annotations of ovn-worker2 that somebody with permission to write Nodes might set.
// refused reports whether there is an Event about it; the other values are valid in themselves, and
// are corrected by the component that writes the annotation.
var edited = []struct {
	what, annotation, value string
	refused                 bool
}{
	{"subnet of one address", "node-subnets", `{"default":["10.244.77.0/32"]}`, true},
	{"another subnet", "node-subnets", `{"default":["10.244.77.0/24","fd00:10:244:77::/64"]}`, true},
	{"no JSON", "node-subnets", `{`, true},
	{"another join address", "node-gateway-router-lrp-ifaddr", `{"ipv4":"100.64.0.77/16","ipv6":"fd98::77/64"}`, true},
	{"chassis of two words", "node-chassis-id", "a b", true},
	{"another chassis", "node-chassis-id", "11111111-1111-1111-1111-111111111111", false},
	{"multicast MAC", "node-mgmt-port-mac-address", "01:00:5e:00:00:01", true},
	{"another MAC", "node-mgmt-port-mac-address", "0a:58:0a:f4:77:02", false},
	{"another node's address", "node-primary-ifaddr", `{"ipv4":"172.18.0.3/16"}`, true},
	{"another node's gateway", "l3-gateway-config",
		`{"default":{"mode":"shared","interface-id":"breth0_ovn-worker","mac-address":"02:00:00:00:00:01","ip-addresses":["172.18.0.3/16"]}}`, true},
	{"another next hop", "l3-gateway-config",
		`{"default":{"mode":"shared","interface-id":"breth0_ovn-worker2","mac-address":"02:00:00:00:00:01","ip-addresses":["172.18.0.77/16"],"next-hops":["172.18.0.78"]}}`, false},
	{"many host addresses", "host-addresses", `["10.99.0.1/24"` + strings.Repeat(`,"10.99.0.1/24"`, 10000) + `]`, true},
	{"somebody's address", "host-addresses", `["172.18.0.1/16","203.0.113.7/24"]`, false},
	{"a failure that did not happen", "node-network-failure", "no uplink", false},
}

// nodeAnnotations edits annotations of a node on which a pod sends all the time: nothing may move,
// no process may restart, and the owner of each annotation must restore it.
func (s *suite) nodeAnnotations(t *testing.T) {
	const node = "ovn-worker2"
	if _, err := s.RunPulse(t.Context(), "trust-pulse", node, nil, lab.OutsideAddresses); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.DeletePod(context.WithoutCancel(t.Context()), "trust-pulse"); err != nil {
			t.Error(err)
		}
	}()
	before, pids := s.steadyState(t), s.ovnkubes(t)
	if _, err := s.Pulses(t.Context(), "trust-pulse", true); err != nil {
		t.Fatal(err)
	}
	for _, e := range edited {
		t.Run(e.what, func(t *testing.T) {
			annotation := "k8s.ovn.org/" + e.annotation
			was := s.annotation(t.Context(), t, node, annotation)
			begun := time.Now()
			s.patchNode(t, node, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, annotation, strconv.Quote(e.value)))
			err := lab.Until(t.Context(), egressPatience, annotation+" to be put right", func(ctx context.Context) error {
				if is := s.annotation(ctx, t, node, annotation); is != was {
					return fmt.Errorf("it is %.100s", is)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			t.Logf("put right within %v", time.Since(begun).Round(time.Millisecond))
			if e.refused {
				s.nodeEvent(t, node, annotation)
			}
		})
	}
	said, err := s.Pulses(t.Context(), "trust-pulse", false)
	if err != nil || len(said) != len(lab.OutsideAddresses) {
		t.Fatalf("%v: %v", said, err)
	}
	var gaps []time.Duration
	for to, r := range said {
		if r.Echoed == 0 {
			t.Errorf("no answers from %s", to)
		}
		gaps = append(gaps, r.MaxGap())
	}
	figures.Record(t, "new connections: annotations of a node edited", figures.Undisturbed, gaps...)
	for name, pid := range s.ovnkubes(t) {
		if pid != pids[name] {
			t.Errorf("%s was process %s and is %s", name, pids[name], pid)
		}
	}
	s.sameState(t, before)
	t.Run("Egress", s.claimedEgress)
	t.Run("Service", s.egressOfService)
}

// ovnkubes returns the processes of ovnkube.
func (s *suite) ovnkubes(t *testing.T) map[string]string {
	t.Helper()
	pids := map[string]string{}
	for _, p := range append([]process{processes[0]}, nodeProcess(nodes[0]), nodeProcess(nodes[1]), nodeProcess(nodes[2])) {
		pid, err := s.pid(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		pids[p.name] = pid
	}
	return pids
}

func (s *suite) annotation(ctx context.Context, t *testing.T, node, name string) string {
	t.Helper()
	n, err := s.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Annotations[name]
}

// nodeEvent waits for an Event about a node with the given words in its message.
func (s *suite) nodeEvent(t *testing.T, node string, words ...string) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("an Event of %s with %q", node, words), func(ctx context.Context) error {
		list, err := s.Kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node})
		if err != nil {
			return err
		}
		var said []string
		for _, event := range list.Items {
			has := event.Type == corev1.EventTypeWarning
			for _, w := range words {
				has = has && strings.Contains(event.Message, w)
			}
			if has {
				return nil
			}
			said = append(said, event.Reason+": "+event.Message)
		}
		return errors.New(strings.Join(said, "\n"))
	})
	if err != nil {
		t.Error(err)
	}
}

// egress returns an egressIPTest for tests of single EgressIPs.
func (s *suite) egress(t *testing.T) *egressIPTest {
	t.Helper()
	client, err := versioned.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &egressIPTest{suite: s, client: client.EgressIPV1().EgressIPs()}
}

// claimedEgress has a node persistently claim the egress address of another node.
func (s *suite) claimedEgress(t *testing.T) {
	const name, claimer = "claimed", "ovn-worker2"
	e, ip := s.egress(t), addresses("172.18.0.241")[0]
	e.assignable(t, "ovn-worker")
	e.create(t, name, []netip.Addr{ip})
	e.programmed(t, name)
	// While ovnkube is not running on the node, nothing restores the annotation.
	if err := s.Service(t.Context(), "stop", claimer, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	s.patchNode(t, claimer, fmt.Sprintf(`{"metadata":{"annotations":{"k8s.ovn.org/host-addresses":%q}}}`, `["172.18.0.4/16","`+ip.String()+`/16"]`))
	status := e.awaits(t, name, "disputed", func(o *v1.EgressIP) error { return has(o, v1.ConditionConflict, metav1.ConditionTrue) })
	if c := meta.FindStatusCondition(status.Conditions, v1.ConditionConflict); !strings.Contains(c.Message, claimer) || !strings.Contains(c.Message, ip.String()) {
		t.Errorf("the condition does not say who claims what: %+v", c)
	}
	if holders := e.programmed(t, name); holders[ip] != "ovn-worker" {
		t.Errorf("the address is held by %v", holders)
	}
	e.event(t, name, claimer, ip.String())
	if err := s.Service(t.Context(), "start", claimer, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	e.awaits(t, name, "undisputed", func(o *v1.EgressIP) error { return has(o, v1.ConditionConflict, metav1.ConditionFalse) })
	e.remove(t, name)
	e.assignable(t)
}

// egressOfService requests the address of a Service for an EgressIP: the Service must keep working.
func (s *suite) egressOfService(t *testing.T) {
	const name = "trust-lb"
	e, svc := s.egress(t), &served{suite: s, name: name, ingress: addresses("172.18.0.242", "fc00:f853:ccd:e793::242")}
	svc.makeService(t)
	if _, err := s.RunServer(t.Context(), name, "ovn-worker2", map[string]string{"app": name}); err != nil {
		t.Fatal(err)
	}
	works := func(t *testing.T) {
		t.Helper()
		for _, node := range nodes {
			if err := s.RouteTo(t.Context(), svc.ingress, node); err != nil {
				t.Fatal(err)
			}
			for _, a := range svc.ingress {
				err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("an answer of %s by way of %s", a, node), func(ctx context.Context) error {
					_, err := s.SeenFromMachine(ctx, lab.Outside, a)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
	works(t)
	e.assignable(t, "ovn-worker", "ovn-worker2")
	e.create(t, name, svc.ingress)
	status := e.awaits(t, name, "refused", func(o *v1.EgressIP) error { return has(o, v1.ConditionAssigned, metav1.ConditionFalse) })
	if c := meta.FindStatusCondition(status.Conditions, v1.ConditionAssigned); c.Reason != "AddressTaken" || !strings.Contains(c.Message, lab.Namespace+"/"+name) || len(status.Items) != 0 {
		t.Errorf("status %+v", status)
	}
	e.event(t, name, "172.18.0.242", name)
	works(t)
	for _, node := range nodes {
		flows, err := e.Kin.Exec(t.Context(), node, "ovs-ofctl", "dump-flows", "breth0")
		if dropped := suppressed(flows, "table="); err != nil || slices.Contains(dropped, svc.ingress[0]) {
			t.Errorf("%s drops what is for the Service: %v, %v", node, dropped, err)
		}
	}
	e.remove(t, name)
	e.assignable(t)
}
