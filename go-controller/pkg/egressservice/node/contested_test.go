package node

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// given returns the address that new connections of a pod get here: that of its first rule.
func (w *world) given(pod string) string {
	for line := range strings.Lines(w.dump()) {
		if strings.HasPrefix(line, "-A "+egressservice.ChainSNAT+" -s "+pod+"/32 ") {
			words := strings.Fields(line)
			return words[len(words)-1]
		}
	}
	return ""
}

// withAnother returns a node with an EgressService default/a that takes precedence, since its name sorts first, and has a
// pod. While stuck, its rules cannot be withdrawn.
func withAnother(t *testing.T, a *v1.EgressService, pod string) (w *world, stuck *atomic.Bool) {
	t.Helper()
	w, stuck = newWorld(t), &atomic.Bool{}
	w.linger = Linger
	w.chains.Fail = func(contributor string) error {
		if contributor == egressservice.Contributor("default/a") && stuck.Load() {
			return errors.New("the table is locked")
		}
		return nil
	}
	for _, o := range []runtime.Object{service("a", "6.6.6.6"), slice("a", pod)} {
		if err := w.kube.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.egress.Tracker().Add(a); err != nil {
		t.Fatal(err)
	}
	return w, stuck
}

// deleteA deletes the other EgressService.
func (w *world) deleteA() {
	w.t.Helper()
	if err := w.egress.EgressServiceV1().EgressServices("default").Delete(w.t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	fakeapi.Settle()
}

// TestPodOfAnother: when an EgressService gets a pod that another one had on this node, it is not acknowledged for the
// pod before the rules of the other one no longer come first: the pod would be led here, and leave with the address of
// the other one. Nor do connections keep that address which the pod opened meanwhile.
func TestPodOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shared, others, own = "10.244.0.5", "6.6.6.6", "5.5.5.5"
		w, stuck := withAnother(t, egress("a", "ovn-worker2"), shared)
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the translations", func() bool { return rules(w) == 4 && w.status().Programmed != nil })
		fakeapi.Settle()
		before := w.status().Programmed.Digest
		if got := w.given(shared); got != others {
			t.Fatalf("the pod gets %q", got)
		}

		stuck.Store(true)
		w.deleteA()
		if got := w.status().Programmed.Digest; got != before && w.given(shared) != own {
			t.Errorf("acknowledged, but the pod gets %s:\n%s", w.given(shared), w.dump())
		}
		w.kernel.connect(shared, others)
		stuck.Store(false)
		w.eventually("the acknowledgement", func() bool { return w.status().Programmed.Digest != before })
		if got := w.given(shared); got != own {
			t.Errorf("acknowledged, but the pod gets %s:\n%s", got, w.dump())
		}
		if w.kernel.connected(shared, others) {
			t.Errorf("a connection keeps %s", others)
		}
	})
}

// TestNetworkOfAnother: the same applies to the network of the other one: of two ip rules for a pod, the older one is used.
// The pod does not take the main table in between.
func TestNetworkOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shared = "10.244.1.6" // of this node
		a := egress("a", v1.HostAll)
		a.Spec.SourceIPBy, a.Spec.Network = v1.SourceIPNetwork, "blue"
		w, stuck := withAnother(t, a, shared)
		w.kernel.tables["blue"], w.kernel.tables["red"] = host.RoutingTable{Number: 7}, host.RoutingTable{Number: 8}
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", "10.244.0.5", shared), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		eg := egress("demo-svc", "ovn-worker2")
		eg.Spec.Network = "red"
		w.update(eg)
		led := func(table string) bool {
			return strings.Contains(hostfake.DumpIPRules(w.ipRules.Objects()), "from "+shared+" lookup "+table+"\n")
		}
		w.eventually("the translation", func() bool { return rules(w) == 1 })
		fakeapi.Settle()
		if !led("7") || led("8") {
			t.Fatalf("ip rules are\n%s", hostfake.DumpIPRules(w.ipRules.Objects()))
		}

		w.ipRules.Fail = func(string, host.IPRule) error {
			if !led("7") && !led("8") {
				t.Errorf("the pod takes the main table:\n%s", hostfake.DumpIPRules(w.ipRules.Objects()))
			}
			return nil
		}
		stuck.Store(true)
		w.deleteA()
		if led("7") && led("8") {
			t.Errorf("in the network of the other one there is\n%s", hostfake.DumpIPRules(w.ipRules.Objects()))
		}
		stuck.Store(false)
		w.eventually("the network of its own", func() bool { return led("8") && !led("7") })
	})
}
