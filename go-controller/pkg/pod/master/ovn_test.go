package master

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
)

// The controller on a real OVN: ports are added and removed with their pods, a packet
// gets from one to the other and a forged one does not, and a switch that is
// deleted and recreated gets its ports again.
func TestPodsInOVN(t *testing.T) {
	o := ovntrace.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: o.NB.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c := newCluster(t)
	c.writer = ovsdb.NewWriter(client)
	o.NB.Nbctl("ls-add", "n")
	c.addNode("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	c.addPod("a", "n")
	c.addPod("b", "n")
	c.start(pod.Config{})

	ports := func() string { return o.NB.Nbctl("--bare", "--columns=name,options", "list", "Logical_Switch_Port") }
	both := func() bool { return strings.Contains(ports(), "ns_a") && strings.Contains(ports(), "ns_b") }
	c.wait("both ports", both)
	uid := string(c.getPod("a").UID)
	if got := o.NB.Nbctl("--bare", "--columns=options", "find", "Logical_Switch_Port", "name=ns_a"); strings.TrimSpace(got) != "iface-id-ver="+uid+" requested-chassis=n" {
		t.Errorf("options of the port: %s", got)
	}

	addr := func(name string) (mac, ip string) {
		network, _, err := kube.PodNetwork(c.getPod(name))
		if err != nil || len(network.Addrs) == 0 {
			t.Fatalf("annotation of %s: %+v, %v", name, network, err)
		}
		return network.MAC, network.Addrs[0].Addr().String()
	}
	fromMAC, from := addr("a")
	toMAC, to := addr("b")
	send := func(src string) string {
		return o.Trace("n", fmt.Sprintf(`inport == "ns_a" && eth.src == %s && eth.dst == %s && ip4.src == %s && ip4.dst == %s && ip.ttl == 64`,
			fromMAC, toMAC, src, to), "--minimal")
	}
	if trace := send(from); !strings.Contains(trace, `output("ns_b")`) {
		t.Errorf("a packet from a does not get to b:\n%s", trace)
	}
	if trace := send("10.244.1.77"); strings.Contains(trace, "output") {
		t.Errorf("a packet with a forged source address gets somewhere:\n%s", trace)
	}

	o.NB.Nbctl("ls-del", "n", "--", "ls-add", "n")
	c.wait("both ports on the new switch", both)
	if trace := send(from); !strings.Contains(trace, `output("ns_b")`) {
		t.Errorf("after the switch was made again a packet from a does not get to b:\n%s", trace)
	}
	c.deletePod("a")
	c.wait("the end of one port", func() bool { return !strings.Contains(ports(), "ns_a") })
	c.deletePod("b")
	c.wait("the end of the other", func() bool { return strings.TrimSpace(ports()) == "" })
}
