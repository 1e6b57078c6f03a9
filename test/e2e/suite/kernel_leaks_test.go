package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// strayPort is the port to which pods send packets of no connection, busyPort the one to which
	// pods send while an EgressService begins to serve them.
	strayPort = 20892
	busyPort  = 20893
	// kernelLeakEvents is how many events the leak test has in the virtual machine, where each takes
	// minutes.
	kernelLeakEvents = 4
	busyName         = "busy"
)

var (
	strayIPs = addresses("172.18.0.236", "fc00:f853:ccd:e793::236")
	ownerIPs = addresses("172.18.0.237", "172.18.0.238")
	// The load balancer's addresses of pods that send packets of no connection, and of busy ones.
	strayIngress, busyIngress = addresses("5.5.5.63", "5555::3f"), addresses("5.5.5.64", "5555::40")
)

// leaks looks for packets with a wrong source where only a real connection tracking shows them.
func (k *kernelTest) leaks(t *testing.T) {
	t.Run("Strays", k.strays)
	t.Run("Busy", k.busy)
	t.Run("Lasting", func(t *testing.T) { k.egressIPOf(t).lasting(t) })
	t.Run("Retransmissions", k.retransmissions)
	k.patchNode(t, lab.ControlPlane, fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, workerLabel)) // for the host to move to
	defer k.patchNode(t, lab.ControlPlane, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, workerLabel))
	t.Run("NoLeak", func(t *testing.T) { k.noLeak(t, kernelLeakEvents) })
}

// strays has pods send packets that belong to no connection, which are not translated: none may
// leave with the pod's own address. First no feature serves the pods, then an EgressIP, then an
// EgressService.
func (k *kernelTest) strays(t *testing.T) {
	var own []netip.Addr
	for _, node := range nodes {
		addrs, err := k.NodeAddresses(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, addrs...)
	}
	pods := []lab.Pod{k.servers["a"], k.servers["b"]}
	k.straysOf(t, "plain", pods, own)

	e := k.egressIPOf(t, pods...)
	e.assignable(t, nodes[1])
	e.create(t, "strays", strayIPs, held)
	e.choose(t, "strays", "a", "b")
	e.programmed(t, "strays")
	for _, pod := range pods {
		k.leavesAs(t, pod, strayIPs...)
	}
	k.straysOf(t, "EgressIP", pods, strayIPs)
	e.choose(t, "strays")
	e.remove(t, "strays")
	e.assignable(t)

	s := k.serve(t, "strays", strayIngress)
	served := k.serversOn(t, s.labels())
	s.announce(t)
	s.programmed(t, "")
	for _, pod := range served {
		k.leavesAs(t, pod, strayIngress...)
	}
	k.straysOf(t, "EgressService", served, strayIngress)
}

// straysOf sends the packets and checks everything that arrives outside.
func (k *kernelTest) straysOf(t *testing.T, what string, pods []lab.Pod, right []netip.Addr) {
	t.Helper()
	outside := lab.OutsideAddresses
	// Neighbor discovery is no traffic of a pod, and what goes to servers are the test's own questions.
	filter := fmt.Sprintf("(dst host %s or dst host %s) and not arp and not tcp dst portrange %d-%d and not (icmp6 and ip6[40] >= 133 and ip6[40] <= 137)",
		outside[0], outside[1], lab.ServePort, lab.EchoPort)
	c := newFilteredCapture(t, k.suite, filter, strayPort, right)
	var to []string
	for _, a := range outside {
		to = append(to, netip.AddrPortFrom(a, strayPort).String())
	}
	for _, pod := range pods {
		before := c.ordinary(t)
		if _, err := k.Call(t.Context(), pod.Name, true, append([]string{"stray"}, to...)...); err != nil {
			t.Fatal(err)
		}
		err := lab.Until(t.Context(), egressPatience, "the last packets of "+pod.Name+" to arrive", func(context.Context) error {
			if n := c.ordinary(t) - before; n < len(to) {
				return fmt.Errorf("%d have arrived", n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	arrived, kinds := c.inspect(t), map[string]int{}
	all, err := c.taps[lab.Outside].Packets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		// Such as "MAC > MAC, ethertype IPv4 (0x0800), length 54: 172.18.0.2.40000 > 172.18.0.100.20892: Flags [R]".
		if parts := strings.SplitN(p.Text, ": ", 3); len(parts) == 3 {
			words := strings.Fields(parts[2])
			kinds[strings.Trim(strings.Join(words[:min(2, len(words))], " "), ",")]++
		}
	}
	t.Logf("%s: %d packets arrived, all with the right source: %v", what, arrived, kinds)
	for _, tap := range c.taps {
		tap.Close()
	}
	clear(c.taps)
}

// ordinary returns how many ordinary datagrams have arrived outside.
func (c *capture) ordinary(t *testing.T) (n int) {
	t.Helper()
	all, err := c.taps[lab.Outside].Packets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Destination.Port() == strayPort && strings.HasSuffix(p.Text, "length "+strconv.Itoa(len("ordinary"))) {
			n++
		}
	}
	return n
}

// busy has an EgressService begin and end to serve pods that send all the time, one of them on its
// host: whatever the node remembers, no connection may keep the address from before.
func (k *kernelTest) busy(t *testing.T) {
	c := newCapture(t, k.suite, busyPort, busyPort, nil)
	labels := map[string]string{"app": busyName}
	var own []netip.Addr
	for _, node := range nodes {
		if err := k.StartSender(t.Context(), lab.Sender{Name: busyName + "-" + node, Node: node, Labels: labels, To: lab.OutsideAddresses, Port: busyPort}); err != nil {
			t.Fatal(err)
		}
		addrs, err := k.NodeAddresses(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, addrs...)
	}
	c.goesOn(t, "no EgressService", own)
	s := &changesTest{served: k.serve(t, busyName, busyIngress)} // deletes the pods when the test ends
	c.goesOn(t, "an EgressService", busyIngress)
	s.spec(t, `{"nodeSelector":{"matchLabels":{"nobody":"has-it"}}}`)
	c.goesOn(t, "no host", own)
	s.spec(t, `{"nodeSelector":{"matchLabels":{"nobody":null}}}`)
	c.goesOn(t, "a host again", busyIngress)
	if err := k.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(t.Context(), busyName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.goesOn(t, "no EgressService any more", own)
}

// retransmissions has the connections of pods with two addresses of a family retransmit, for which the
// kernel gives them another hash: with one address for each pod, they continue.
func (k *kernelTest) retransmissions(t *testing.T) {
	const name, connections = "retransmissions", 20
	e := k.egressIPOf(t)
	for _, affinity := range []v1.AddressAffinity{v1.AddressAffinityNone, v1.AddressAffinityPod} {
		e.assignable(t, nodes...)
		e.create(t, name, ownerIPs, held, func(spec *v1.EgressIPSpec) { spec.AddressAffinity = affinity })
		e.programmed(t, name)
		ports := lab.PortRange{First: 34000, Last: 34999}
		if _, err := k.RunStreams(t.Context(), name, nodes[1], chosen(name), lab.OutsideAddresses[0], connections, ports); err != nil {
			t.Fatal(err)
		}
		k.beginAgain(t, []string{name})
		k.unheard(t, 4*connections)
		if affinity == v1.AddressAffinityPod {
			k.wentOn(t, []string{name}, true, 0)
		} else {
			k.flows(t, name)
			r, err := k.Report(t.Context(), name, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("without affinity: %+v", r)
		}
		e.deletePods(t, []string{name})
		e.remove(t, name)
	}
	e.assignable(t)
}

// unheard drops what arrives at the outside echo server until that is a number of packets.
func (k *kernelTest) unheard(t *testing.T, packets int) {
	t.Helper()
	rules := fmt.Sprintf("table inet e2e { chain input { type filter hook input priority 0; tcp dport %d counter drop; }; }", lab.EchoPort)
	if _, err := k.Kin.Exec(t.Context(), lab.Outside, "nft", rules); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), egressPatience, "retransmissions", func(ctx context.Context) error {
		n, err := k.dropped(ctx, lab.Outside)
		if err == nil && n < packets {
			err = fmt.Errorf("%d packets", n)
		}
		return err
	})
	if _, e := k.Kin.Exec(context.WithoutCancel(t.Context()), lab.Outside, "nft", "delete table inet e2e"); e != nil {
		t.Error(e)
	}
	if err != nil {
		t.Fatal(err)
	}
}
