package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func node(name, primary string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		kube.AnnotationPrimaryIfAddr: `{"ipv4":"` + primary + `"}`,
	}}}
}

// run runs the controller of node a and waits until it has written its rules.
func run(t *testing.T, cs *fake.Clientset, lost func() (bool, error)) *hostfake.Chains {
	t.Helper()
	chains := hostfake.NewChains(noreroute.Chains(topology.Families))
	core := kube.NewInformers(cs)
	addresses, err := reservedsnapshot.New(reserved.Ranges{}, reservedsnapshot.Informers{Nodes: core.Core().V1().Nodes(),
		EndpointSlices: core.Discovery().V1().EndpointSlices()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Deps{
		Node:      "a",
		Addresses: addresses,
		Chains:    chains,
		MarksLost: func(context.Context) (bool, error) { return lost() },
		Families:  topology.Families,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, t, cs, core)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		defer core.Shutdown()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	eventually.Receive(t, "all to speak", c.Synced())
	return chains
}

// TestMarks: traffic to any node or API server is marked as soon as Open vSwitch reports
// that marks are lost.
func TestMarks(t *testing.T) {
	cs := fakeapi.NewClientset(node("a", "172.18.0.2/16"), node("b", "172.18.0.3/16"), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.10"}}}})
	asked := 0
	chains := run(t, cs, func() (bool, error) {
		if asked++; asked == 1 {
			return false, errors.New("no switch yet")
		}
		return true, nil
	})
	const mark = " -i ovn-k8s-mp0 -j MARK --set-xmark 0x3f0/0xffffffff"
	dump := chains.Dump(topology.IPv4)
	for _, want := range []string{"-d 172.18.0.2/32", "-d 172.18.0.3/32", "-d 203.0.113.10/32"} {
		if !strings.Contains(dump, want+mark) {
			t.Errorf("lacks %s:\n%s", want, dump)
		}
	}
}

// TestMarksOfOVN: where OVN's own marks arrive, only traffic to the pods' own node needs one, which OVN does not mark; from
// when the node has addresses.
func TestMarksOfOVN(t *testing.T) {
	cs := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, node("b", "172.18.0.3/16"))
	chains := run(t, cs, func() (bool, error) { return false, nil })
	if dump := chains.Dump(topology.IPv4); strings.Contains(dump, "MARK") {
		t.Errorf("marks:\n%s", dump)
	}
	if _, err := cs.CoreV1().Nodes().Update(t.Context(), node("a", "172.18.0.2/16"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "a mark", func() bool { return strings.Contains(chains.Dump(topology.IPv4), "MARK") })
	dump := chains.Dump(topology.IPv4)
	if !strings.Contains(dump, "-d 172.18.0.2/32 -i ovn-k8s-mp0 -j MARK") || strings.Count(dump, "MARK") != 1 {
		t.Errorf("the marks are not those of node a alone:\n%s", dump)
	}
}
