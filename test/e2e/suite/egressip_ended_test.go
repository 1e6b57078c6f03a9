package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// endedPort is the port that the pod of endedWhileDown sends to.
const endedPort = 20891

// endedWhileDown takes egress addresses from a pod with open connections while ovnkube is not
// running on the node of both: what the node remembers of the connections ends when ovnkube runs
// again.
func (e *egressIPTest) endedWhileDown(t *testing.T) {
	const node, name = "ovn-worker2", "ended"
	first, second := addresses("172.18.0.234", "fc00:f853:ccd:e793::234"), addresses("172.18.0.235", "fc00:f853:ccd:e793::235")
	c := newCapture(t, e.suite, endedPort, endedPort, nil)
	sender := &egressIPTest{suite: e.suite, client: e.client, pods: map[string]lab.Pod{name: {}}}
	e.assignable(t, node)
	e.create(t, name, first)
	e.programmed(t, name)
	if err := e.StartSender(t.Context(), lab.Sender{Name: name, Node: node, Labels: chosen(name), To: lab.OutsideAddresses, Port: endedPort, Every: sendEvery()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.deletePods(t, []string{name}) })
	own, err := e.NodeAddresses(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	c.goesOn(t, "the first addresses", first)
	for _, step := range []struct {
		what   string
		change func(t *testing.T)
		before []netip.Addr // that the master must remove from the node before ovnkube runs again
		want   []netip.Addr
	}{
		{"others instead", func(t *testing.T) { e.change(t, name, func(spec *v1.EgressIPSpec) { setIPs(second)(spec) }) }, nil, second},
		{"a pod that is not chosen any more", func(t *testing.T) { sender.choose(t, "") }, second, own},
		{"the pod chosen again", func(t *testing.T) { sender.choose(t, name, name) }, nil, second},
		{"an EgressIP that is deleted", func(t *testing.T) { e.remove(t, name) }, second, own},
	} {
		e.withoutNode(t, node, func() {
			step.change(t)
			e.untranslated(t, node, step.before)
		})
		c.goesOn(t, step.what, step.want)
	}
}

// withoutNode does something while ovnkube is not running on a node.
func (e *egressIPTest) withoutNode(t *testing.T, node string, do func()) {
	t.Helper()
	if err := e.Service(t.Context(), "stop", node, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx := context.WithoutCancel(t.Context())
		if err := e.Service(ctx, "start", node, "ovnkube-node"); err != nil {
			t.Error(err)
		}
		p := nodeProcess(node)
		if err := lab.Until(ctx, egressPatience, p.name+" to be ready", func(ctx context.Context) error { return e.readyz(ctx, p) }); err != nil {
			t.Error(err)
		}
	}()
	do()
}

// untranslated waits until OVN translates no pod on a node to these addresses.
func (e *egressIPTest) untranslated(t *testing.T, node string, addrs []netip.Addr) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%s not to translate to %v", node, addrs), func(ctx context.Context) error {
		var err error
		for _, a := range addrs {
			have, errList := e.list(ctx, node, "nat(src="+a.String()+")", "ovs-ofctl", "dump-flows", topology.IntegrationBridge)
			if err = errors.Join(err, errList); len(have) > 0 {
				err = errors.Join(err, fmt.Errorf("%q", have))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
