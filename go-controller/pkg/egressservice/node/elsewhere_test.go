package node

import (
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/routed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestElsewhere: a node drops traffic of its pods that leave by another node, exactly as long as they
// do; if it was the host itself, from when its rules have expired.
func TestElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = time.Hour
		if err := w.kube.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "demo-svc-x", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice("demo-svc", "10.244.0.5", "10.244.1.6"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		expect := func(what string, kept bool) {
			t.Helper()
			fakeapi.Settle()
			const drop = "-A OVN-KUBE-STRAY -s 10.244.1.6/32 -i ovn-k8s-mp0 ! -o ovn-k8s-mp0 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT"
			if got := w.dump(); strings.Contains(got, drop) != kept || strings.Contains(got, "-A OVN-KUBE-STRAY -s 10.244.0.5/32") {
				t.Errorf("%s: want the pod of this node kept in: %t\n%s", what, kept, got)
			}
		}
		expect("without a host", false)
		w.setStatus(programmedBy("ovn-worker", false))
		expect("while its policies are not there yet", false)
		w.setStatus(programmedBy("ovn-worker", true))
		expect("served by another node", true)
		w.setStatus(programmedBy("ovn-worker", false))
		expect("while that has something to do", true)
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		expect("when this node is to serve", false)
		w.eventually("the translations", func() bool { return rules(w) > 0 })
		w.setStatus(programmedBy("ovn-worker2", true))
		w.setStatus(programmedBy("ovn-worker", false))
		expect("while the pods are led here", false)
		w.setStatus(programmedBy("ovn-worker", true))
		expect("while the rules of this node go on", false)
		<-time.After(w.linger)
		expect("when they are gone", true)
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "" })
		expect("without a host again", false)
		w.setStatus(programmedBy("ovn-worker", true))
		expect("served by another node again", true)
		if err := w.egress.EgressServiceV1().EgressServices("default").Delete(t.Context(), "demo-svc", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("deleted", false)
	})
}

// TestElsewhereFirst: the translations of a former host do not expire before it drops the traffic of its pods, which
// would leave with its address in between.
func TestElsewhereFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = time.Hour
		var locked atomic.Bool
		w.chains.Fail = func(contributor string) error {
			if locked.Load() && contributor == elsewhereContributor("default/demo-svc") {
				return errors.New("the table is locked")
			}
			return nil
		}
		_, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", "10.244.1.6"), metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.start()
		w.setStatus(programmedBy("ovn-worker2", true))
		w.eventually("the translation", func() bool { return rules(w) == 1 })
		locked.Store(true)
		w.setStatus(programmedBy("ovn-worker", true))
		<-time.After(w.linger)
		fakeapi.Settle()
		if rules(w) != 1 {
			t.Errorf("the pod leaves with the address of the node:\n%s", w.dump())
		}
		locked.Store(false)
		w.eventually("the translation to go", func() bool { return rules(w) == 0 })
		if !strings.Contains(w.dump(), "-A OVN-KUBE-STRAY -s 10.244.1.6/32") {
			t.Errorf("the pod may leave:\n%s", w.dump())
		}
	})
}

// TestElsewherePackets: two pods of a node send through its kernel, one of which leaves by
// another node: only its traffic to nodes, and replies, leave by this one.
func TestElsewherePackets(t *testing.T) {
	ns := netnstest.New(t)
	ends := routed.New(t, ns)
	for _, pod := range []string{"10.244.1.6/24", "10.244.1.7/24", "fd00:10:244:2::6/64", "fd00:10:244:2::7/64"} {
		ends.AddPod(pod)
	}
	chains, err := iptables.New(egressservice.Chains(topology.Families))
	if err != nil {
		t.Fatal(err)
	}
	kept := []netip.Addr{netip.MustParseAddr("10.244.1.6"), netip.MustParseAddr("fd00:10:244:2::6")}
	want := egressservice.ElsewhereRules(kept, "default/web")
	if err := chains.Apply(t.Context(), "web", want); err != nil {
		t.Fatal(err)
	}
	assertRendered(t, ns, want)
	for _, c := range []struct{ kept, other, server string }{
		{"10.244.1.6", "10.244.1.7", "192.0.2.9"}, {"fd00:10:244:2::6", "fd00:10:244:2::7", "2001:db8::9"},
	} {
		server, pod, other := ends.Listen(ends.Outside, c.server, 0), ends.Listen(ends.Pods, c.kept, 0), ends.Listen(ends.Pods, c.other, 0)
		ends.Send(pod, "dropped", server.LocalAddr())
		ends.Send(other, "passed", server.LocalAddr())
		if got, from := ends.Receive(server); got != "passed" {
			t.Errorf("%s: %q leaves, with %s", c.kept, got, from)
		}
		ends.Send(server, "question", pod.LocalAddr()) // like a client that came through this node
		if got, _ := ends.Receive(pod); got != "question" {
			t.Errorf("%s gets %q", c.kept, got)
		}
		ends.Send(pod, "answer", server.LocalAddr())
		if got, _ := ends.Receive(server); got != "answer" {
			t.Errorf("%s: instead of its answer %q leaves", c.kept, got)
		}
	}
}

// assertRendered compares rules with those shown by the kernel.
func assertRendered(t *testing.T, ns *netnstest.NS, want host.Rules) {
	t.Helper()
	tools := map[topology.Family]string{topology.IPv4: "iptables-save", topology.IPv6: "ip6tables-save"}
	for chain, rules := range want {
		have := ns.Run(tools[chain.Family], "-t", chain.Table)
		for _, r := range rules {
			if line := "-A " + chain.Name + " " + string(r) + "\n"; !strings.Contains(have+"\n", line) {
				t.Errorf("the kernel does not show %q:\n%s", line, have)
			}
		}
	}
}
