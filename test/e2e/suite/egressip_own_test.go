package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const ownName = "own"

var ownIPs = addresses("172.18.0.231", "fc00:f853:ccd:e793::231")

// egressIPOf returns an egressIPTest with the given pods.
func (s *suite) egressIPOf(t *testing.T, pods ...lab.Pod) *egressIPTest {
	t.Helper()
	client, err := versioned.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	e := &egressIPTest{suite: s, client: client.EgressIPV1().EgressIPs(), pods: map[string]lab.Pod{}}
	for _, p := range pods {
		e.pods[p.Name] = p
	}
	return e
}

// beforeEgressIP gives external gateways to a pod that leaves with egress addresses of another
// node: the gateways take precedence, and the EgressIP serves its pod again when they are gone.
func (g *gatewayTest) beforeEgressIP(t *testing.T) {
	g.remove(t)
	pod := g.servers["a"]
	e := g.egressIPOf(t, pod)
	e.assignable(t, "ovn-worker2")
	e.create(t, ownName, ownIPs)
	e.choose(t, ownName, pod.Name)
	e.programmed(t, ownName)
	e.leavesAs(t, pod, ownIPs...)
	g.policy(t, hops(v1.HopOptions{}, g.gateways...))
	g.uses(t, 20*time.Second, false, g.gateways...)
	g.remove(t)
	e.leavesAs(t, pod, ownIPs...)
	e.choose(t, ownName)
	e.remove(t, ownName)
	e.assignable(t)
}

// ownNode gives a pod egress addresses on its own node, in a cluster that translates pods one by
// one: there must be only one translation at a time, the correct one.
func (s *suite) ownNode(t *testing.T) {
	pod := s.servers["a"]
	e := s.egressIPOf(t, pod)
	translated := func(is4 bool, to string) {
		t.Helper()
		// lr-nat-list truncates long addresses.
		e.lists(t, lab.ControlPlane, "", []string{to}, "sh", "-c", fmt.Sprintf(
			`for n in $(ovn-nbctl --bare --columns=_uuid find NAT type=snat 'logical_ip="%s"'); do
ovn-nbctl --bare --columns=external_ip list NAT $n; done`, pod.Address(is4)))
	}
	asNode := func() {
		t.Helper()
		e.leavesAs(t, pod)
		for _, is4 := range []bool{true, false} {
			own, err := e.nodeAddress(t.Context(), pod.Node, is4)
			if err != nil {
				t.Fatal(err)
			}
			translated(is4, own.String())
		}
	}
	asNode()
	e.assignable(t, pod.Node)
	e.create(t, ownName, ownIPs)
	e.choose(t, ownName, pod.Name)
	e.programmed(t, ownName)
	e.leavesAs(t, pod, ownIPs...)
	for _, a := range ownIPs {
		translated(a.Is4(), a.String())
	}
	e.choose(t, ownName)
	asNode()
	e.remove(t, ownName)
	e.assignable(t)
}

// lastingPort is the port that the pod of lasting sends to.
const lastingPort = 20890

// lasting gives a pod with open connections egress addresses on its own node, then others there,
// then none: whatever the node remembers, no connection may keep an address that the pod no longer
// has.
func (e *egressIPTest) lasting(t *testing.T) {
	const name, next = "lasting", "lasting-next"
	node := nodes[len(nodes)-1]
	first, second := addresses("172.18.0.232", "fc00:f853:ccd:e793::232"), addresses("172.18.0.233", "fc00:f853:ccd:e793::233")
	c := newCapture(t, e.suite, lastingPort, lastingPort, nil)
	if err := e.StartSender(t.Context(), lab.Sender{Name: name, Node: node, To: lab.OutsideAddresses, Port: lastingPort, Every: sendEvery()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.deletePods(t, []string{name}) })
	var own []netip.Addr
	for _, is4 := range []bool{true, false} {
		a, err := e.nodeAddress(t.Context(), node, is4)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, a)
	}
	sender := &egressIPTest{suite: e.suite, client: e.client, pods: map[string]lab.Pod{name: {}}}
	e.assignable(t, node)
	e.create(t, name, first)
	e.create(t, next, second)
	c.goesOn(t, "no EgressIP", own)
	for _, step := range []struct {
		what string
		want []netip.Addr
		by   string
	}{{"one on its node", first, name}, {"another there", second, next}, {"the first again", first, name}, {"no EgressIP any more", own, ""}} {
		if step.by == "" {
			sender.choose(t, "")
		} else {
			sender.choose(t, step.by, name)
		}
		c.goesOn(t, step.what, step.want)
	}
	e.remove(t, name)
	e.remove(t, next)
}

// sendEvery is the interval at which the pods of goesOn send. On a slow machine their new connections would
// take all of its time.
func sendEvery() time.Duration {
	return time.Duration(float64(40*time.Millisecond) * figures.Slowness())
}

// goesOn waits until everything that open UDP connections send in a second, more on a slow machine,
// comes from these addresses.
func (c *capture) goesOn(t *testing.T, what string, want []netip.Addr) {
	t.Helper()
	const enough = 10 // in that time, from each
	window := time.Duration(float64(time.Second) * figures.Slowness())
	err := lab.Until(t.Context(), egressPatience, "open connections to go on with "+what, func(ctx context.Context) error {
		all, err := c.taps[lab.Outside].Packets()
		if err != nil {
			return err
		}
		seen := map[netip.Addr]int{}
		for _, p := range all {
			if strings.HasSuffix(p.Text, "length 7") && all[len(all)-1].At.Sub(p.At) < window {
				seen[p.Source.Addr()]++
			}
		}
		for _, a := range want {
			if seen[a] < enough || len(seen) != len(want) {
				return fmt.Errorf("it was seen as %v", seen)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
