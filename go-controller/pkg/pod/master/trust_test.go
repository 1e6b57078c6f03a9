package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// saying sets a made-up annotation of a pod.
func saying(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{kube.AnnotationPodNetworks: value} }
}

// reports sets the addresses that the kubelet reports.
func reports(ips ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

func (c *cluster) say(name, value string) {
	c.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{kube.AnnotationPodNetworks: value}}})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.cs.CoreV1().Pods("ns").Patch(c.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) said(name string) string {
	return c.getPod(name).Annotations[kube.AnnotationPodNetworks]
}

// portOf creates a port left by an earlier run.
func (c *cluster) portOf(name, node, addresses string) {
	c.t.Helper()
	row := nb.Row{ID: "ns_" + name, Parent: nb.Parent{Table: nbdb.LogicalSwitchTable, Name: node}, Model: &nbdb.LogicalSwitchPort{
		Name: "ns_" + name, Addresses: []string{addresses}, PortSecurity: []string{addresses},
		ExternalIDs: map[string]string{"namespace": "ns", "pod": "true"},
		Options:     map[string]string{"requested-chassis": node, "iface-id-ver": string(c.getPod(name).UID)},
	}}
	if _, err := c.nb.Apply(c.t.Context(), pod.Owner("ns/"+name), []nb.Row{row}); err != nil {
		c.t.Fatal(err)
	}
}

// full returns the port of a pod with its MAC address, "-" for none.
func (c *cluster) full(name string) string {
	for _, r := range c.nb.Rows(pod.Owner("ns/" + name)) {
		if m, ok := r.Model.(*nbdb.LogicalSwitchPort); ok {
			if !slices.Equal(m.Addresses, m.PortSecurity) {
				c.t.Errorf("port of %s has %v and may send as %v", name, m.Addresses, m.PortSecurity)
			}
			return strings.Join(m.Addresses, ",")
		}
	}
	return "-"
}

// Whatever the annotation of a new pod, it gets one address of each family, the next
// free ones, and the MAC address and gateways derived from them.
func TestMadeUpAnnotationOfNewPod(t *testing.T) {
	for name, value := range map[string]string{
		"router's MAC, three addresses": `{"default":{"ip_addresses":["10.244.1.66/24","10.244.1.67/24","10.244.1.68/24"],"mac_address":"0a:58:0a:f4:01:01","gateway_ips":["10.244.1.1"]}}`,
		"one chosen address":            `{"default":{"ip_addresses":["10.244.1.66/24"],"mac_address":"0a:58:0a:f4:01:42","gateway_ips":["10.244.1.1"]}}`,
		"chosen addresses":              `{"default":{"ip_addresses":["10.244.1.66/24","fd00:10:244:2::42/64"],"mac_address":"0a:58:0a:f4:01:42","gateway_ips":["10.244.1.1","fd00:10:244:2::1"]}}`,
		"neighbour's MAC":               `{"default":{"ip_addresses":["10.244.1.3/24","fd00:10:244:2::3/64"],"mac_address":"0a:58:0a:f4:01:04","gateway_ips":["10.244.1.1","fd00:10:244:2::1"]}}`,
		"management port's MAC":         `{"default":{"ip_addresses":["10.244.1.3/24","fd00:10:244:2::3/64"],"mac_address":"0a:58:0a:f4:01:02","gateway_ips":["10.244.1.1","fd00:10:244:2::1"]}}`,
		"another gateway":               `{"default":{"ip_addresses":["10.244.1.3/24","fd00:10:244:2::3/64"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.9","fd00:10:244:2::1"]}}`,
		"two of one family":             `{"default":{"ip_addresses":["10.244.1.3/24","10.244.1.4/24"],"mac_address":"0a:58:0a:f4:01:03"}}`,
		"zero":                          `{"default":{"ip_addresses":["",""],"mac_address":"0a:58:0a:f4:01:03"}}`,
		"mapped":                        `{"default":{"ip_addresses":["::ffff:10.244.1.3/120"],"mac_address":"0a:58:0a:f4:01:03"}}`,
		"node's address":                `{"default":{"ip_addresses":["172.18.0.3/16"],"mac_address":"0a:58:0a:f4:01:03"}}`,
		"no JSON":                       `{"default":`,
		"null":                          `null`,
		"nothing":                       ``,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.addNode("n", "10.244.1.0/24", "fd00:10:244:2::/64")
			c.addPod("a", "n", saying(value))
			c.start(pod.Config{})
			const want = "0a:58:0a:f4:01:03 10.244.1.3 fd00:10:244:2::3"
			c.wait("the port to be "+want, func() bool { return c.full("a") == want })
			const good = `{"default":{"ip_addresses":["10.244.1.3/24","fd00:10:244:2::3/64"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.1","fd00:10:244:2::1"]}}`
			if got := c.said("a"); got != good {
				t.Errorf("annotation: %s", got)
			}
			c.waitEvent("Warning AddressRefused")
		})
	}
}

// A changed annotation of a running pod moves nothing, releases nothing, and is corrected.
func TestEditedAnnotationMovesNothing(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/29") // .3 to .6
	c.addPod("a", "n")
	c.start(pod.Config{})
	const want = "0a:58:0a:f4:01:03 10.244.1.3"
	c.wait("the port", func() bool { return c.full("a") == want })
	c.wait("the annotation", func() bool { return c.said("a") != "" })
	good := c.said("a")
	for i := range 50 {
		c.say("a", fmt.Sprintf(`{"default":{"ip_addresses":["10.244.1.%d/29"],"mac_address":"0a:58:0a:f4:01:0%d","gateway_ips":["10.244.1.1"]}}`, 4+i%3, 4+i%3))
		if i%10 == 9 {
			c.wait("the annotation to be put right", func() bool { return c.said("a") == good })
			c.waitEvent("AddressRefused")
		}
		if got := c.full("a"); got != want {
			t.Fatalf("the port is %s", got)
		}
	}
	// The same while no master runs.
	c.stop()
	c.say("a", `{"default":{"ip_addresses":["10.244.1.5/29"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1"]}}`)
	writes := c.nb.Writes()
	c.start(pod.Config{})
	c.wait("the annotation to be put right", func() bool { return c.said("a") == good })
	c.waitEvent("AddressRefused")
	<-c.ctl.Attempted()
	if c.full("a") != want || c.nb.Writes() != writes {
		t.Errorf("the port is %s, with %d writes more", c.full("a"), c.nb.Writes()-writes)
	}
}

// A pod on a node that does not exist has no port, whatever its annotation and its status say. The address that a kubelet reported
// is given to nobody, since egress features steer its traffic.
func TestPodOfNoNode(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("victim", "n")
	c.addPod("ghost", "ghost", having("10.244.1.3/24"), reports("10.244.1.3"))
	c.start(pod.Config{})
	c.waitPort("victim", "10.244.1.4")
	<-c.ctl.Attempted()
	if got := c.full("ghost"); got != "-" {
		t.Errorf("a pod of no node has port %s", got)
	}
}

// Addresses assigned by an earlier run are kept, without a write; so are correct annotations of
// other implementations if the database is empty and the kubelet confirms them.
func TestUpgrade(t *testing.T) {
	const reference = `{"default":{"ip_addresses":["10.244.1.9/24","fd00:10:244:2::9/64"],"mac_address":"0a:58:0a:f4:01:09","gateway_ips":["10.244.1.1","fd00:10:244:2::1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"}],"role":"primary"}}`
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	c.addPod("running", "n", saying(reference), reports("10.244.1.9", "fd00:10:244:2::9"))
	c.addPod("ported", "n", saying(strings.NewReplacer("1.9", "1.8", "::9", "::8", ":09", ":08").Replace(reference)))
	c.portOf("ported", "n", "0a:58:0a:f4:01:08 10.244.1.8 fd00:10:244:2::8")
	// Its annotation is wrong; the kubelet's report counts.
	c.addPod("liar", "n", saying(reference), reports("10.244.1.7", "fd00:10:244:2::7"))
	// An earlier version assigned it too many addresses.
	c.addPod("greedy", "n", saying(`{"default":{"ip_addresses":["10.244.1.66/24","10.244.1.67/24"],"mac_address":"0a:58:0a:f4:01:01"}}`))
	c.portOf("greedy", "n", "0a:58:0a:f4:01:01 10.244.1.66 10.244.1.67")
	c.start(pod.Config{})
	for name, want := range map[string]string{
		"running": "0a:58:0a:f4:01:09 10.244.1.9 fd00:10:244:2::9",
		"ported":  "0a:58:0a:f4:01:08 10.244.1.8 fd00:10:244:2::8",
		"liar":    "0a:58:0a:f4:01:07 10.244.1.7 fd00:10:244:2::7",
		"greedy":  "0a:58:0a:f4:01:0a 10.244.1.10 fd00:10:244:2::a",
	} {
		c.wait(fmt.Sprintf("the port of %s to be %s", name, want), func() bool { return c.full(name) == want })
	}
	<-c.ctl.Attempted()
	if got := slices.Sorted(slices.Values(c.podPatches())); !slices.Equal(got, []string{"greedy", "liar"}) {
		t.Errorf("patched %v, want those alone that said what is not so", got)
	}
	c.stop()
	writes, patches := c.nb.Writes(), len(c.podPatches())
	c.start(pod.Config{})
	<-c.ctl.Attempted()
	if c.nb.Writes() != writes || len(c.podPatches()) != patches {
		t.Errorf("a restart wrote %d transactions and %d patches", c.nb.Writes()-writes, len(c.podPatches())-patches)
	}
}

// Without IPv4, other implementations derive MAC addresses differently. A pod keeps its own if
// no other pod has it.
func TestMACOfOthers(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "fd00:10:244:2::/64")
	say := func(host, mac string) func(*corev1.Pod) {
		return saying(kube.FormatPodNetwork(topology.PodNetwork{MAC: mac, Addrs: prefixes("fd00:10:244:2::" + host + "/64"),
			Gateways: pod.Network(prefixes("fd00:10:244:2::3/64"), prefixes("fd00:10:244:2::/64")).Gateways}))
	}
	c.addPod("hash", "n", say("9", "0a:58:be:ef:00:01"), reports("fd00:10:244:2::9"))
	c.addPod("thief", "n", say("a", "0a:58:00:00:00:01"), reports("fd00:10:244:2::a"))
	c.addPod("neighbour", "n", say("b", "0a:58:00:00:00:0a"), reports("fd00:10:244:2::b"))
	c.addPod("future", "n", say("c", "0a:58:00:00:00:0d"), reports("fd00:10:244:2::c"))
	c.start(pod.Config{})
	c.addPod("next", "n")
	for name, want := range map[string]string{
		"hash":      "0a:58:be:ef:00:01 fd00:10:244:2::9",
		"thief":     "0a:58:00:00:00:0a fd00:10:244:2::a",
		"neighbour": "0a:58:00:00:00:0b fd00:10:244:2::b",
		"future":    "0a:58:00:00:00:0d fd00:10:244:2::c",
		"next":      "0a:58:00:00:00:0e fd00:10:244:2::e",
	} {
		c.wait(fmt.Sprintf("the port of %s to be %s", name, want), func() bool { return c.full(name) == want })
	}
}

// A pod gets an address of the second family when its node has got a subnet for it.
func TestSecondFamily(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("a", "n")
	c.start(pod.Config{})
	c.waitPort("a", "10.244.1.3")
	c.setSubnets("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	c.waitPort("a", "10.244.1.3 fd00:10:244:2::3")
}

// Readers of the addresses in the rows are notified of changes.
func TestOnGiven(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.start(pod.Config{})
	c.stop()
	told := make(chan string, 10)
	factory := kube.NewInformers(c.cs)
	ctl, err := New(Deps{Client: c.cs, Pods: factory.Core().V1().Pods(), Nodes: factory.Core().V1().Nodes(),
		Writer: c.nb, Recorder: c.events})
	if err != nil {
		t.Fatal(err)
	}
	ctl.OnAddressesChanged(func(key, node string) {
		told <- fmt.Sprintf("%s on %s has %v", key, node, pod.AddressesFor(c.nb.Rows(pod.Owner(key)), ""))
	})
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- ctl.Run(ctx) }()
	c.addPod("a", "n")
	if got := <-told; got != "ns/a on n has [10.244.1.3]" {
		t.Error(got)
	}
	// Somebody else may be faster, for example the database when the node's switch is deleted.
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}, Spec: corev1.PodSpec{NodeName: "n"}}
	if err := ctl.detach(ctx, gone); err != nil {
		t.Error(err)
	}
	if got := <-told; got != "ns/gone on n has []" {
		t.Error(got)
	}
	c.deletePod("a")
	if got := <-told; got != "ns/a on  has []" {
		t.Error(got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	factory.Shutdown()
}
