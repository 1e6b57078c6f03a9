package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	typedv1 "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/typed/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// assignableLabel makes a node a candidate.
	assignableLabel = "k8s.ovn.org/egress-assignable"
	// egressLabel is the pod label by which the tests' EgressIPs select pods.
	egressLabel = "e2e-egress"
	// egressPatience is how long a change may take to take effect.
	egressPatience = 30 * time.Second
)

// egressIPTest is the EgressIP tests on one cluster.
type egressIPTest struct {
	*suite
	client typedv1.EgressIPInterface
	// pods are the pods that EgressIPs may select, by name: one on each node.
	pods map[string]lab.Pod
	// static is the static pod whose manifest was removed; "" for none.
	static string
}

// egressIPs gives pods egress addresses on the nodes' network and on another one, and moves them in
// every possible way.
func (s *suite) egressIPs(t *testing.T) {
	client, err := versioned.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	e := &egressIPTest{suite: s, client: client.EgressIPV1().EgressIPs()}
	e.pods = byName(s.runServers(t, map[string]string{"egress-0": lab.ControlPlane, "egress-1": "ovn-worker", "egress-2": "ovn-worker2"}, nil))
	before := s.steadyState(t)
	s.in(t, "shared", "StaticPod", e.staticPod) // first: what it leaves goes away while the others run
	t.Run("Primary", e.primary)
	s.in(t, "shared", "Answers", e.answers)
	t.Run("NewPods", e.newPods)
	t.Run("Lasting", e.lasting)
	s.in(t, "local", "EndedWhileDown", e.endedWhileDown)
	s.once(t, "Refused", e.refused)
	s.in(t, "shared", "Unavailable", e.unavailable)
	s.in(t, "local", "SeveralAddresses", e.severalAddresses)
	s.in(t, "shared", "Moves", e.moves)
	if addresses := number("EGRESSIP_TAKEOVER", 0); addresses > 0 {
		t.Run("Takeover", func(t *testing.T) { e.takeover(t, addresses) })
	}
	t.Run("SecondaryNetwork", e.secondary)
	e.assignable(t)
	e.staticPodGone(t)
	s.sameState(t, before)
	s.removePods(t, slices.Collect(maps.Keys(e.pods))...)
}

// addresses parses addresses.
func addresses(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParseAddr(text)
	}
	return list
}

func ofFamily(list []netip.Addr, is4 bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return a.Is4() != is4 })
}

// chosen returns the labels of the pods that the EgressIP with the given name selects.
func chosen(name string) map[string]string { return map[string]string{egressLabel: name} }

// create creates an EgressIP that selects pods by their label, and deletes it when the test ends.
func (e *egressIPTest) create(t *testing.T, name string, ips []netip.Addr, change ...func(*v1.EgressIPSpec)) {
	t.Helper()
	if _, err := e.client.Create(t.Context(), newEgressIP(name, ips, change...), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.remove(t, name) })
}

// newEgressIP returns an EgressIP that selects pods by their label.
func newEgressIP(name string, ips []netip.Addr, change ...func(*v1.EgressIPSpec)) *v1.EgressIP {
	ip := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ip.Spec.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: lab.Namespace}
	ip.Spec.PodSelector.MatchLabels = chosen(name)
	setIPs(ips)(&ip.Spec)
	for _, f := range change {
		f(&ip.Spec)
	}
	return ip
}

// remove deletes an EgressIP, if it exists.
func (e *egressIPTest) remove(t *testing.T, name string) {
	// The test's own context may have ended.
	err := e.client.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// held drops traffic for which no node has an egress address: on a busy machine all nodes may be
// considered dead for a moment.
func held(spec *v1.EgressIPSpec) { spec.OnUnavailable = v1.UnavailableDrop }

func setIPs(ips []netip.Addr) func(*v1.EgressIPSpec) {
	return func(spec *v1.EgressIPSpec) {
		spec.EgressIPs = nil
		for _, a := range ips {
			spec.EgressIPs = append(spec.EgressIPs, v1.Address(a.String()))
		}
	}
}

// change changes the spec of an EgressIP.
func (e *egressIPTest) change(t *testing.T, name string, f func(*v1.EgressIPSpec)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		ip, err := e.client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		f(&ip.Spec)
		_, err = e.client.Update(t.Context(), ip, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaits waits for a status of an EgressIP that will accepts.
func (e *egressIPTest) awaits(t *testing.T, name, what string, will func(*v1.EgressIP) error) v1.EgressIPStatus {
	t.Helper()
	var status v1.EgressIPStatus
	err := lab.Until(t.Context(), egressPatience, "EgressIP "+name+" to be "+what, func(ctx context.Context) error {
		ip, err := e.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status = ip.Status
		if err := will(ip); err != nil {
			return fmt.Errorf("%w; status is %+v", err, status)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// has returns an error unless a condition has the given status for the current generation.
func has(ip *v1.EgressIP, kind string, is metav1.ConditionStatus) error {
	c := meta.FindStatusCondition(ip.Status.Conditions, kind)
	if c == nil || c.Status != is || c.ObservedGeneration != ip.Generation {
		return fmt.Errorf("condition %s is %+v", kind, c)
	}
	return nil
}

// programmed waits until every address of an EgressIP has a node that holds it and no other node
// reports it.
func (e *egressIPTest) programmed(t *testing.T, name string) map[netip.Addr]string {
	t.Helper()
	holders := map[netip.Addr]string{}
	e.awaits(t, name, "programmed", func(ip *v1.EgressIP) error {
		clear(holders)
		for _, item := range ip.Status.Items {
			a, err := netip.ParseAddr(item.EgressIP)
			if err != nil {
				return err
			}
			holders[a] = item.Node
		}
		if len(holders) != len(ip.Spec.EgressIPs) {
			return fmt.Errorf("%d of %d addresses have a node", len(holders), len(ip.Spec.EgressIPs))
		}
		for _, word := range ip.Status.Programmed {
			for _, text := range word.EgressIPs {
				if a, err := netip.ParseAddr(text); err != nil || holders[a] != word.Node {
					return fmt.Errorf("%s says it has %s", word.Node, text)
				}
			}
		}
		return errors.Join(has(ip, v1.ConditionAssigned, metav1.ConditionTrue), has(ip, v1.ConditionProgrammed, metav1.ConditionTrue))
	})
	return holders
}

// movedFrom is programmed for an address that must first leave a node.
func (e *egressIPTest) movedFrom(t *testing.T, name string, a netip.Addr, node string) map[netip.Addr]string {
	t.Helper()
	e.awaits(t, name, "moved from "+node, func(ip *v1.EgressIP) error {
		for _, item := range ip.Status.Items {
			if item.EgressIP == a.String() && item.Node != node {
				return nil
			}
		}
		return fmt.Errorf("%s is not on another node", a)
	})
	return e.programmed(t, name)
}

// assignable labels exactly these nodes.
func (e *egressIPTest) assignable(t *testing.T, only ...string) {
	t.Helper()
	for _, node := range nodes {
		value := "null"
		if slices.Contains(only, node) {
			value = `""`
		}
		e.patchNode(t, node, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, assignableLabel, value))
	}
}

// choose makes the EgressIP with the given name select exactly these of the test's pods.
func (e *egressIPTest) choose(t *testing.T, name string, only ...string) {
	t.Helper()
	for _, pod := range slices.Sorted(maps.Keys(e.pods)) {
		value := "null"
		if slices.Contains(only, pod) {
			value = strconv.Quote(name)
		}
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, egressLabel, value)
		if _, err := e.Kube.CoreV1().Pods(lab.Namespace).Patch(t.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// leaves waits until the connections of a pod to an outside address are seen with exactly the
// wanted sources.
func (s *suite) leaves(t *testing.T, pod string, to netip.Addr, want ...netip.Addr) {
	t.Helper()
	if err := s.seenAs(t.Context(), pod, to, want); err != nil {
		t.Error(err)
	}
}

// seenAs is leaves with an error as its result.
func (s *suite) seenAs(ctx context.Context, pod string, to netip.Addr, want []netip.Addr) error {
	want = slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
	connections := 4
	if len(want) > 1 { // the chance that all have the same source is one in a million
		connections = 21
	}
	return lab.Until(ctx, egressPatience, fmt.Sprintf("%s to reach %s as %v", pod, to, want), func(ctx context.Context) error {
		seen, err := s.SourcesFromPod(ctx, pod, to, connections)
		if err != nil {
			return err
		}
		if have := slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare); !slices.Equal(have, want) {
			return fmt.Errorf("it was seen as %v", seen)
		}
		return nil
	})
}

// leavesAs is leaves for both families; in a family without addresses, the pod leaves with its
// node's address.
func (s *suite) leavesAs(t *testing.T, pod lab.Pod, ips ...netip.Addr) {
	t.Helper()
	s.allLeaveAs(t, []lab.Pod{pod}, ips...)
}

// allLeaveAs is leavesAs for several pods at the same time.
func (s *suite) allLeaveAs(t *testing.T, pods []lab.Pod, ips ...netip.Addr) {
	t.Helper()
	to := s.OfFamilies(lab.OutsideAddresses)
	err := atOnce(len(pods)*len(to), func(i int) error {
		pod, to := pods[i/len(to)], to[i%len(to)]
		want := ofFamily(ips, to.Is4())
		if len(want) == 0 {
			own, err := s.nodeAddress(t.Context(), pod.Node, to.Is4())
			if err != nil {
				return err
			}
			want = []netip.Addr{own}
		}
		return s.seenAs(t.Context(), pod.Name, to, want)
	})
	if err != nil {
		t.Error(err)
	}
}

// all returns the test's pods.
func (e *egressIPTest) all() []lab.Pod { return slices.Collect(maps.Values(e.pods)) }

// list returns the output lines of a command on a machine that contain a word, with single blanks
// between words, sorted.
func (e *egressIPTest) list(ctx context.Context, machine, with string, command ...string) ([]string, error) {
	out, err := e.Kin.Exec(ctx, machine, command...)
	if err != nil {
		return nil, err
	}
	return linesWith(out, with), nil
}

// linesWith returns the lines of a text that contain a word, as list does.
func linesWith(text, word string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// lists waits until a list is as wanted.
func (e *egressIPTest) lists(t *testing.T, machine, with string, want []string, command ...string) {
	t.Helper()
	slices.Sort(want)
	what := fmt.Sprintf("%q on %s to show what it should", strings.Join(command, " "), machine)
	err := lab.Until(t.Context(), egressPatience, what, func(ctx context.Context) error {
		have, err := e.list(ctx, machine, with, command...)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// policies waits until the policies with priority 100 are exactly these.
func (e *egressIPTest) policies(t *testing.T, want ...string) {
	t.Helper()
	e.lists(t, lab.ControlPlane, " 100 ", want, "ovn-nbctl", "lr-policy-list", "ovn_cluster_router")
}

// ended waits until nothing is left of what nodes do only for a while.
func (e *egressIPTest) ended(t *testing.T) {
	t.Helper()
	err := lab.Until(t.Context(), time.Minute, "what was to last for a while to end", func(ctx context.Context) error {
		list, err := e.client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return atOnce(len(nodes), func(i int) error { return e.temporary(ctx, nodes[i], list.Items) })
	})
	if err != nil {
		t.Fatal(err)
	}
}

// temporary returns an error while a node has something of what it does only for a while. It runs one
// script, since tests ask this all the time.
func (e *egressIPTest) temporary(ctx context.Context, node string, all []v1.EgressIP) error {
	out, err := e.Kin.Exec(ctx, node, "sh", "-ec", "ovs-ofctl dump-flows breth0; iptables-save -t filter; ip6tables-save -t filter")
	if err != nil {
		return err
	}
	if err := errors.Join(gone(out, all), forwarded(node, out, all), barred(node, out, all)); err != nil {
		return fmt.Errorf("on %s: %w", node, err)
	}
	return nil
}

// suppressed returns the egress addresses for which a node suppresses its answers, by the flows
// that contain a word.
func suppressed(dump, word string) []netip.Addr {
	_, addrs := bridge.EgressAddrs(strings.Join(linesWith(dump, word), "\n"))
	return addrs
}

// gone returns an error while a node suppresses answers for an address that is no longer an egress
// address.
func gone(dump string, all []v1.EgressIP) error {
	for _, addr := range suppressed(dump, "table=") {
		if !slices.ContainsFunc(all, func(ip v1.EgressIP) bool {
			return slices.ContainsFunc(ip.Spec.EgressIPs, func(a v1.Address) bool { return string(a) == addr.String() })
		}) {
			return fmt.Errorf("answers for %s are suppressed", addr)
		}
	}
	return nil
}

// barred returns an error while a node still lets connections continue that use an address which
// has since moved to another node.
func barred(node, dump string, all []v1.EgressIP) error {
	leaving := suppressed(dump, "load:0x1->")
	for _, ip := range all {
		for _, item := range ip.Status.Items {
			if item.Node != node && slices.ContainsFunc(leaving, func(a netip.Addr) bool { return a.String() == item.EgressIP }) {
				return fmt.Errorf("%s may leave", item.EgressIP)
			}
		}
	}
	return nil
}

// forwarded returns an error while a node forwards packets of connections to the previous holder
// of an address, or is prepared to although another node has the address.
func forwarded(node, dump string, all []v1.EgressIP) error {
	if flows := linesWith(dump, "IN_PORT"); len(flows) > 0 {
		return fmt.Errorf("it has %q", flows)
	}
	for _, r := range linesWith(dump, "-A "+strayChain) {
		if !slices.ContainsFunc(all, func(ip v1.EgressIP) bool {
			return slices.ContainsFunc(ip.Status.Items, func(item v1.EgressIPStatusItem) bool {
				return item.Node == node && strings.Contains(r, " -d "+item.EgressIP+"/")
			})
		}) {
			return fmt.Errorf("it has %s", r)
		}
	}
	return nil
}

// number returns the number in an environment variable, or a default.
func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil && n > 0 {
		return n
	}
	return otherwise
}
