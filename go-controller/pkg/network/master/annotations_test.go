package master

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// edit writes an annotation of a node, as a user with permission would.
func (c *cluster) edit(node, annotation, value string) (before string) {
	c.t.Helper()
	n, err := c.cs.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	before = n.Annotations[annotation]
	if err := kube.PatchNode(context.Background(), c.cs, n, kube.Metadata{Annotations: map[string]*string{annotation: &value}}); err != nil {
		c.t.Fatal(err)
	}
	return before
}

func (c *cluster) annotation(node, annotation string) string {
	c.t.Helper()
	n, err := c.cs.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return n.Annotations[annotation]
}

// edits are values that users may write to annotations of node b.
var edits = []struct{ name, annotation, value string }{
	{"subnet of one address", kube.AnnotationNodeSubnets, `{"default":["10.244.77.0/32"]}`},
	{"another subnet", kube.AnnotationNodeSubnets, `{"default":["10.244.77.0/24","fd00:10:244:77::/64"]}`},
	{"another node's subnet", kube.AnnotationNodeSubnets, `{"default":["10.244.0.0/24","fd00:10:244:1::/64"]}`},
	{"subnet without IPv6", kube.AnnotationNodeSubnets, `{"default":["10.244.1.0/24"]}`},
	{"no JSON", kube.AnnotationNodeSubnets, `{`},
	{"another join address", kube.AnnotationGatewayLRPIfAddr, `{"ipv4":"100.64.0.77/16","ipv6":"fd98::77/64"}`},
	{"another node's join address", kube.AnnotationGatewayLRPIfAddr, `{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}`},
	{"another node's chassis", kube.AnnotationChassisID, "chassis-a"},
	{"chassis of two words", kube.AnnotationChassisID, "a b"},
	{"multicast MAC", kube.AnnotationManagementMAC, "01:00:5e:00:00:01"},
	{"the router's MAC", kube.AnnotationManagementMAC, "0a:58:0a:f4:01:01"},
	{"another node's address", kube.AnnotationPrimaryIfAddr, `{"ipv4":"172.18.0.2/16"}`},
	{"another node's gateway", kube.AnnotationL3Gateway, `{"default":{"mode":"shared","interface-id":"breth0_b","mac-address":"02:42:ac:12:00:99","ip-addresses":["172.18.0.2/16"],"next-hops":["172.18.0.1"]}}`},
	{"another node's port", kube.AnnotationL3Gateway, `{"default":{"mode":"shared","interface-id":"breth0_a","mac-address":"02:42:ac:12:00:99","ip-addresses":["172.18.0.9/16"]}}`},
	{"gateway with a service address", kube.AnnotationL3Gateway, `{"default":{"mode":"shared","interface-id":"breth0_b","mac-address":"02:42:ac:12:00:03","ip-addresses":["100.64.0.9/16"]}}`},
	{"many host addresses", kube.AnnotationHostAddresses, `["10.99.0.1/24"` + strings.Repeat(`,"10.99.0.1/24"`, 10000) + `]`},
}

// Whatever is written to annotations of a live node, its rows and those of others stay; the
// master repairs its own annotations; one Event says why.
func TestAnnotationsOfALiveNodeDoNotMoveIt(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.addNode("a", 2)
	c.addNode("b", 3)
	c.start(cfg)
	c.waitFresh(cfg)
	c.wait("conditions", func() bool { return strings.Count(c.describe(), "NetworkReady") == 2 })
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			c.t = t
			rows, writes := c.nb.Dump(), c.nb.Writes()
			before := c.edit("b", tt.annotation, tt.value)
			e := eventually.Receive(t, "an Event", c.events.Events)
			if !strings.Contains(e, tt.annotation) || len(e) > 600 {
				t.Errorf("Event %q does not name %s, or is long", e, tt.annotation)
			}
			switch tt.annotation {
			case kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr:
				c.wait("the annotation to be put right", func() bool { return c.annotation("b", tt.annotation) == before })
			default: // its owner repairs it
				c.edit("b", tt.annotation, before)
			}
			// When a later key is done, so is everything triggered by the edit.
			c.addNode("zz", 9)
			c.wait("the last node", func() bool { return strings.Contains(c.status("zz"), "NetworkReady") })
			c.deleteNode("zz")
			c.wait("the last node to go", func() bool { return c.nb.Dump() == rows })
			if n := c.nb.Writes() - writes; n != 4 {
				t.Errorf("%d transactions, want the last node's 4", n)
			}
			if e := c.drainEvents(); len(e) > 0 {
				t.Errorf("more Events: %q", e)
			}
		})
	}
	c.t = t
}

// The same while no master runs: at startup it plans the rows that the database has, and
// writes nothing there.
func TestAnnotationsEditedWhileNobodyRuns(t *testing.T) {
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			c, cfg := newCluster(t), config("10.244.0.0/16")
			c.addNode("a", 2)
			c.addNode("b", 3)
			c.start(cfg)
			c.waitFresh(cfg)
			c.wait("conditions", func() bool { return strings.Count(c.describe(), "NetworkReady") == 2 })
			c.stop()
			rows, writes := c.nb.Dump(), c.nb.Writes()
			before := c.edit("b", tt.annotation, tt.value)
			c.start(cfg)
			e := eventually.Receive(t, "an Event", c.events.Events)
			if !strings.Contains(e, tt.annotation) {
				t.Errorf("Event %q does not name %s", e, tt.annotation)
			}
			c.addNode("zz", 9)
			c.wait("the last node", func() bool { return strings.Contains(c.status("zz"), "NetworkReady") })
			c.deleteNode("zz")
			c.wait("the last node to go", func() bool { return c.nb.Dump() == rows })
			if n := c.nb.Writes() - writes; n != 4 {
				t.Errorf("%d transactions, want the last node's 4", n)
			}
			if tt.annotation == kube.AnnotationNodeSubnets || tt.annotation == kube.AnnotationGatewayLRPIfAddr {
				c.wait("the annotation to be put right", func() bool { return c.annotation("b", tt.annotation) == before })
			}
		})
	}
}
