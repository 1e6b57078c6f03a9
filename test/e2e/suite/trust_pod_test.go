package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// podAddresses forges annotations of pods, and checks that no address moves, no other pod's traffic
// is affected, and everything is restored.
func (s *suite) podAddresses(t *testing.T) {
	t.Run("Created", s.madeUpPod)
	t.Run("Edited", s.editedPod)
	t.Run("NoNode", s.podOfNoNode)
	t.Run("Restart", s.annotationsAtRestart)
}

// says returns an annotation with addresses.
func says(mac string, addrs ...string) string {
	text, _ := json.Marshal(map[string]any{"default": map[string]any{"ip_addresses": addrs, "mac_address": mac}})
	return string(text)
}

// madeUp creates a pod with labels and a forged annotation on a node.
func (s *suite) madeUp(t *testing.T, name, node, annotation string, labels map[string]string) {
	t.Helper()
	pod := lab.ServerPod(name, "", labels)
	pod.Spec.NodeName, pod.Spec.NodeSelector = node, nil
	pod.Annotations = map[string]string{kube.AnnotationPodNetworks: annotation}
	if _, err := s.Kube.CoreV1().Pods(lab.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := s.DeletePod(ctx, name); err != nil {
			t.Error(err)
		}
	})
}

// port returns the addresses of a pod's port in the database.
func (s *suite) port(t *testing.T, pod string) string {
	t.Helper()
	return strings.TrimSpace(must(t, func(ctx context.Context) (string, error) {
		return s.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "lsp-get-addresses", lab.Namespace+"_"+pod)
	}))
}

// said returns the annotation of a pod.
func (s *suite) said(t *testing.T, pod string) string {
	t.Helper()
	p, err := s.Kube.CoreV1().Pods(lab.Namespace).Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Annotations[kube.AnnotationPodNetworks]
}

// refused waits for the Event about the annotation of a pod.
func (s *suite) refused(t *testing.T, pod string) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, "an Event about pod "+pod, func(ctx context.Context) error {
		events, err := s.Kube.CoreV1().Events(lab.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == pod && e.Reason == "AddressRefused" && e.Type == corev1.EventTypeWarning
		}) {
			return fmt.Errorf("there is none among %d", len(events.Items))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// madeUpPod requests the MAC address of the router and three addresses, and must get what every pod
// gets.
func (s *suite) madeUpPod(t *testing.T) {
	all, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const node = "ovn-worker2"
	subnet, err := pick(all[node].ManagementAddrs(), true)
	if err != nil {
		t.Fatal(err)
	}
	b := subnet.As4()
	at := func(host byte) netip.Addr { b[3] = host; return netip.AddrFrom4(b) }
	router := fmt.Sprintf("0a:58:%02x:%02x:%02x:01", b[0], b[1], b[2])
	wanted := []string{at(66).String(), at(67).String(), at(68).String()}
	s.madeUp(t, "greedy", node, says(router, wanted[0]+"/24", wanted[1]+"/24", wanted[2]+"/24"), nil)
	pod, err := s.WaitPod(t.Context(), "greedy", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	port := strings.Fields(s.port(t, "greedy"))
	if len(port) != 3 || port[0] == router || slices.ContainsFunc(wanted, func(a string) bool { return slices.Contains(port, a) }) {
		t.Errorf("its port has %v", port)
	}
	var addrs []string
	for _, a := range pod.Addresses {
		addrs = append(addrs, a.String())
		if seen, err := s.SeenFromPod(t.Context(), "greedy", s.servers["a"].Address(a.Is4())); err != nil || seen != a {
			t.Errorf("it is seen as %s, not %s: %v", seen, a, err)
		}
	}
	if len(port) > 1 && !slices.Equal(addrs, port[1:]) {
		t.Errorf("the kubelet reports %v, the port has %v", addrs, port)
	}
	if said := s.said(t, "greedy"); !strings.Contains(said, addrs[0]) || strings.Contains(said, wanted[0]) {
		t.Errorf("its annotation says %s", said)
	}
	s.refused(t, "greedy")
}

// editedPod repeatedly writes a neighbor's address into the annotation of a running pod while both
// have connections.
func (s *suite) editedPod(t *testing.T) {
	thief, victim := s.servers["b"], s.servers["b2"]
	good, before, theirs := s.said(t, thief.Name), s.port(t, thief.Name), s.port(t, victim.Name)
	forged := s.said(t, victim.Name)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{kube.AnnotationPodNetworks: forged}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := s.Kube.CoreV1().Pods(lab.Namespace).Patch(t.Context(), thief.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []lab.Pod{thief, victim} {
		for _, a := range pod.Addresses {
			if seen, err := s.SeenFromPod(t.Context(), pod.Name, s.servers["a"].Address(a.Is4())); err != nil || seen != a {
				t.Errorf("%s is seen as %s, not %s: %v", pod.Name, seen, a, err)
			}
			if seen, err := s.SeenFromPod(t.Context(), "a", a); err != nil || !slices.Contains(s.servers["a"].Addresses, seen) {
				t.Errorf("%s is not reached at %s: %v", pod.Name, a, err)
			}
		}
	}
	err = lab.Until(t.Context(), egressPatience, "the annotation to be put right", func(context.Context) error {
		if said := s.said(t, thief.Name); said != good {
			return fmt.Errorf("it is %s", said)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if now := s.port(t, thief.Name); now != before {
		t.Errorf("its port moved from %s to %s", before, now)
	}
	if now := s.port(t, victim.Name); now != theirs {
		t.Errorf("the victim's port moved from %s to %s", theirs, now)
	}
	s.refused(t, thief.Name)
}

// podOfNoNode has pods that no node runs claim addresses of a victim in their annotations, with an
// EgressIP on a secondary network that selects them. A pod created later shows that the node would
// have rules for them by then.
func (s *suite) podOfNoNode(t *testing.T) {
	client, err := versioned.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	e := &egressIPTest{suite: s, client: client.EgressIPV1().EgressIPs(), pods: map[string]lab.Pod{}}
	const name, holder = "trust", "ovn-worker"
	e.assignable(t, holder)
	defer e.assignable(t)
	e.create(t, name, addresses("192.168.50.211", "fd00:50::211"))
	e.programmed(t, name)
	victim := s.servers["b"]
	var theirs []string
	for i, a := range victim.Addresses {
		theirs = append(theirs, netip.PrefixFrom(a, []int{24, 64}[i]).String())
	}
	own, err := s.nodeAddress(t.Context(), holder, true)
	if err != nil {
		t.Fatal(err)
	}
	for ghost, annotation := range map[string]string{
		"ghost-pod":  says("0a:58:0a:f4:02:04", theirs...),
		"ghost-node": says("0a:58:0a:f4:02:04", own.String()+"/16"),
		"ghost-all":  says("0a:58:0a:f4:02:04", "", ""),
	} {
		s.madeUp(t, ghost, "ghost", annotation, chosen(name))
	}
	control, err := s.RunServer(t.Context(), "trust-control", "ovn-worker2", chosen(name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.DeletePod(t.Context(), control.Name); err != nil {
			t.Error(err)
		}
	}()
	e.programmed(t, name)
	for _, a := range control.Addresses {
		family := map[bool]string{true: "-4", false: "-6"}[a.Is4()]
		err := lab.Until(t.Context(), egressPatience, "the rule of the pod that there is", func(ctx context.Context) error {
			rules, err := e.list(ctx, holder, "6000:", "ip", family, "rule")
			if err == nil && !slices.ContainsFunc(rules, func(r string) bool { return strings.Contains(r, "from "+a.String()+" ") }) {
				err = fmt.Errorf("rules are %q", rules)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		rules, err := e.list(t.Context(), holder, "6000:", "ip", family, "rule")
		if err != nil {
			t.Fatal(err)
		}
		if len(rules) != 1 {
			t.Errorf("there are rules for more than the pod that there is: %q", rules)
		}
	}
	for _, a := range victim.Addresses {
		if seen, err := s.SeenFromPod(t.Context(), victim.Name, s.servers["a"].Address(a.Is4())); err != nil || seen != a {
			t.Errorf("the victim is seen as %s, not %s: %v", seen, a, err)
		}
	}
}

// annotationsAtRestart restarts the master: nothing may be written.
func (s *suite) annotationsAtRestart(t *testing.T) {
	written := func() string {
		pods, err := s.Kube.CoreV1().Pods(lab.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for _, p := range pods.Items {
			fmt.Fprintf(&out, "%s at %s: %s\n", p.Name, p.ResourceVersion, p.Annotations[kube.AnnotationPodNetworks])
		}
		return out.String() + must(t, func(ctx context.Context) (string, error) {
			return s.Kin.Exec(ctx, lab.ControlPlane, "stat", "-c", "%s", "/var/lib/ovn/ovnnb_db.db")
		})
	}
	s.steadyState(t)
	before := written()
	s.restartAndSettle(t, processes[0], "ovnkube-master", "pod")
	s.steadyState(t)
	if after := written(); after != before {
		t.Errorf("the restart wrote; before\n%s\nafter\n%s", before, after)
	}
}
