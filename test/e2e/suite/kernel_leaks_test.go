package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// busyPort is the port to which pods send while an EgressService begins to serve them.
	busyPort = 20893
	// kernelLeakEvents is how many events the leak test has in the virtual machine, where each takes
	// minutes.
	kernelLeakEvents = 4
	busyName         = "busy"
)

var (
	ownerIPs    = addresses("172.18.0.237", "172.18.0.238")
	busyIngress = addresses("5.5.5.64", "5555::40")
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

// busy has an EgressService begin and end to serve pods that send all the time, one of them on its
// host: whatever the node remembers, no connection may keep the address from before.
func (k *kernelTest) busy(t *testing.T) {
	c := newCapture(t, k.suite, busyPort, busyPort, nil)
	labels := map[string]string{"app": busyName}
	var own []netip.Addr
	for _, node := range nodes {
		if err := k.StartSender(t.Context(), lab.Sender{Name: busyName + "-" + node, Node: node, Labels: labels, To: lab.OutsideAddresses, Port: busyPort, Every: sendEvery()}); err != nil {
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
			k.allFlow(t, []string{name})
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
