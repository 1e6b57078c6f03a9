package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// refused requests addresses that are not possible: each refusal must name its reason and the other
// party, in a condition and in an Event.
func (e *egressIPTest) refused(t *testing.T) {
	e.assignable(t, "ovn-worker", "ovn-worker2")
	older := addresses("172.18.0.221")[0]
	e.create(t, "older", []netip.Addr{older})
	e.programmed(t, "older")
	for _, c := range []struct{ name, ip, names string }{
		{"nodes-own", "172.18.0.3", "ovn-worker"},
		{"nodes-own-v6", "fc00:f853:ccd:e793::2", lab.ControlPlane},
		{"in-cluster", "10.244.5.5", "10.244.0.0/16"},
		{"in-services", "10.96.7.7", "10.96.0.0/16"},
		{"in-join", "fd98::77", "fd98::/64"},
		{"nowhere", "203.0.113.7", "203.0.113.7"},
		{"taken", older.String(), "older"},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := addresses("172.18.0.222")[0]
			e.create(t, c.name, append(addresses(c.ip), good))
			status := e.awaits(t, c.name, "refused", func(ip *v1.EgressIP) error {
				return has(ip, v1.ConditionAssigned, metav1.ConditionFalse)
			})
			assigned := meta.FindStatusCondition(status.Conditions, v1.ConditionAssigned)
			if !strings.Contains(assigned.Message, c.ip) || !strings.Contains(assigned.Message, c.names) {
				t.Errorf("the message names neither %s nor %s: %+v", c.ip, c.names, assigned)
			}
			if conflict := meta.IsStatusConditionTrue(status.Conditions, v1.ConditionConflict); conflict != (c.name == "taken") {
				t.Errorf("conditions %+v", status.Conditions)
			}
			if len(status.Items) != 1 || status.Items[0].EgressIP != good.String() {
				t.Errorf("items %+v, want one for %s", status.Items, good)
			}
			e.event(t, c.name, c.ip, c.names)
			e.remove(t, c.name)
		})
	}
	t.Run("RestartOfTheMaster", func(t *testing.T) { e.olderKeeps(t, older) })
	t.Run("FewerNodes", e.fewerNodes)
	t.Run("Validation", e.validation)
}

// event waits for an Event about an EgressIP with the given words in its message.
func (e *egressIPTest) event(t *testing.T, name string, words ...string) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("an Event of %s with %q", name, words), func(ctx context.Context) error {
		list, err := e.Kube.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		var said []string
		for _, event := range list.Items {
			has := event.InvolvedObject.Kind == "EgressIP"
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

// olderKeeps restarts the master while two EgressIPs want the same address: the younger gets it
// only when the older is deleted.
func (e *egressIPTest) olderKeeps(t *testing.T, a netip.Addr) {
	e.create(t, "a-younger", []netip.Addr{a})
	conflict := func(ip *v1.EgressIP) error { return has(ip, v1.ConditionConflict, metav1.ConditionTrue) }
	e.awaits(t, "a-younger", "in conflict", conflict)
	e.kill(t, processes[0])
	if holders := e.programmed(t, "older"); holders[a] == "" {
		t.Errorf("the older lost %s", a)
	}
	if status := e.awaits(t, "a-younger", "in conflict", conflict); len(status.Items) != 0 {
		t.Errorf("the younger has %+v", status.Items)
	}
	e.remove(t, "older")
	e.programmed(t, "a-younger")
	e.remove(t, "a-younger")
}

// fewerNodes requests more addresses than there are nodes for.
func (e *egressIPTest) fewerNodes(t *testing.T) {
	ips := addresses("172.18.0.223", "172.18.0.224", "172.18.0.225")
	e.create(t, "many", ips)
	e.awaits(t, "many", "assigned as far as can be", func(ip *v1.EgressIP) error {
		if len(ip.Status.Items) != 2 || ip.Status.Items[0].Node == ip.Status.Items[1].Node {
			return errors.New("not two addresses on two nodes")
		}
		return has(ip, v1.ConditionAssigned, metav1.ConditionFalse)
	})
	e.assignable(t, nodes...)
	e.programmed(t, "many")
	e.remove(t, "many")
	e.assignable(t, "ovn-worker", "ovn-worker2")
}

// validation sends the API server objects that it must reject.
func (e *egressIPTest) validation(t *testing.T) {
	for _, ips := range [][]v1.Address{
		{}, {"172.18.0.300"}, {"172.18.0.0/24"}, {"FC00::1"}, {"fc00:0::1"}, {"::ffff:172.18.0.9"}, {"172.18.0.9", "172.18.0.9"},
	} {
		ip := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}}
		ip.Spec.EgressIPs = ips
		if _, err := e.client.Create(t.Context(), ip, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%v: %v", ips, err)
			e.remove(t, "invalid")
		}
	}
	said, err := lab.Run(t.Context(), append(e.Kubectl(), "get", "egressips")...)
	if err != nil || strings.Contains(said, "invalid") {
		t.Errorf("%v: %s", err, said)
	}
	// A namespace selector is required. The typed client always sends one, so this needs YAML.
	path, err := e.WriteFile("egressip.yaml", "apiVersion: k8s.ovn.org/v1\nkind: EgressIP\nmetadata: {name: invalid}\nspec: {egressIPs: [172.18.0.9]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := lab.Run(t.Context(), append(e.Kubectl(), "create", "-f", path)...); err == nil || !strings.Contains(said, "namespaceSelector") {
		t.Errorf("without a namespace selector: %v: %s", err, said)
		e.remove(t, "invalid")
	}
}

// unavailable leaves an EgressIP without any node.
func (e *egressIPTest) unavailable(t *testing.T) {
	const name = "nobody"
	ips := addresses("172.18.0.231", "fc00:f853:ccd:e793::231")
	e.assignable(t)
	e.choose(t, name, "egress-1", "egress-2")
	e.create(t, name, ips)
	e.awaits(t, name, "without a node", func(ip *v1.EgressIP) error { return has(ip, v1.ConditionAssigned, metav1.ConditionFalse) })
	e.leavesAs(t, e.pods["egress-1"])
	e.change(t, name, func(spec *v1.EgressIPSpec) { spec.OnUnavailable = v1.UnavailableDrop })
	e.silent(t, "egress-1", "egress-2")
	if seen, err := e.SeenFromPod(t.Context(), "egress-1", e.pods["egress-2"].Address(true)); err != nil || seen != e.pods["egress-1"].Address(true) {
		t.Errorf("inside the cluster seen as %s: %v", seen, err)
	}
	e.assignable(t, "ovn-worker")
	e.programmed(t, name)
	e.allLeaveAs(t, []lab.Pod{e.pods["egress-1"], e.pods["egress-2"]}, ips...)
	// From now on nothing may leave with another address, since all that happens is that nodes come
	// and go.
	c := newCapture(t, e.suite, lab.ServePort, lab.ServePort, ips)
	if _, err := e.RunPulse(t.Context(), "pulse", "ovn-worker2", chosen(name), lab.OutsideAddresses); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.deletePods(t, []string{"pulse"}) })
	e.assignable(t)
	e.silent(t, "egress-1", "egress-2")
	e.assignable(t, "ovn-worker2")
	e.programmed(t, name)
	e.leavesAs(t, e.pods["egress-1"], ips...)
	c.inspect(t)
	e.deletePods(t, []string{"pulse"})
	e.change(t, name, func(spec *v1.EgressIPSpec) { spec.OnUnavailable = "" })
	e.assignable(t)
	e.leavesAs(t, e.pods["egress-1"])
	e.remove(t, name)
}

// silent waits until nothing from the pods arrives outside: several attempts in a row must time
// out, and not fail for another reason.
func (s *suite) silent(t *testing.T, pods ...string) {
	t.Helper()
	err := atOnce(2*len(pods), func(i int) error {
		pod, to := pods[i/2], lab.OutsideAddresses[i%2]
		return lab.Until(t.Context(), egressPatience, pod+" to be held back", func(ctx context.Context) error {
			for range 3 {
				out, err := s.Call(ctx, pod, true, "get", "-timeout", "500ms", lab.URL(to, "/clientip"))
				switch {
				case err == nil:
					return fmt.Errorf("it was seen as %s", out)
				case !lab.TimedOut(err):
					return fmt.Errorf("not a timeout: %w", err)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
