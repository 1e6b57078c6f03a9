package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func node(name, primary string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		kube.AnnotationPrimaryIfAddr: `{"ipv4":"` + primary + `"}`,
	}}}
}

// run runs a controller, and waits until it has spoken.
func run(t *testing.T, cs *fake.Clientset, lost func() (bool, error)) *hostfake.Chains {
	t.Helper()
	chains := hostfake.NewChains(noreroute.Chains(topology.Families))
	c := New(Deps{
		Nodes:     func() informers.SharedInformerFactory { return kube.NewInformers(cs) },
		Chains:    chains,
		MarksLost: func(context.Context) (bool, error) { return lost() },
		Families:  topology.Families,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	eventually.Receive(t, "all to speak", c.Synced())
	return chains
}

// TestMarks marks what is for any node, as soon as the switch says that it must be,
// and keeps up with the nodes there are.
func TestMarks(t *testing.T) {
	cs := fake.NewClientset(node("a", "172.18.0.2/16"), node("b", "172.18.0.3/16"))
	asked := 0
	chains := run(t, cs, func() (bool, error) {
		if asked++; asked == 1 {
			return false, errors.New("no switch yet")
		}
		return true, nil
	})
	const mark = " -i ovn-k8s-mp0 -j MARK --set-xmark 0x3f0/0xffffffff"
	dump := chains.Dump(topology.IPv4)
	for _, want := range []string{"-d 172.18.0.2/32", "-d 172.18.0.3/32"} {
		if !strings.Contains(dump, want+mark) {
			t.Errorf("lacks %s:\n%s", want, dump)
		}
	}
}

// TestMarksOfOVN: nothing is to be done where OVN's own marks arrive, and nodes are
// not even looked at.
func TestMarksOfOVN(t *testing.T) {
	cs := fake.NewClientset(node("a", "172.18.0.2/16"))
	chains := run(t, cs, func() (bool, error) { return false, nil })
	if n := chains.Writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	if n := len(cs.Actions()); n != 0 {
		t.Errorf("the API server was asked: %v", cs.Actions())
	}
}

// TestNodeKeys: an address that changes is a reason to look, a heartbeat is none.
func TestNodeKeys(t *testing.T) {
	a, moved := node("a", "172.18.0.2/16"), node("a", "172.18.0.9/16")
	beat := a.DeepCopy()
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	for name, c := range map[string]struct {
		old, new any
		want     int
	}{"new": {nil, a, 1}, "gone": {a, nil, 1}, "moved": {a, moved, 1}, "heartbeat": {a, beat, 0}} {
		if got := len(nodeKeys(c.old, c.new)); got != c.want {
			t.Errorf("%s: %d keys, want %d", name, got, c.want)
		}
	}
}
