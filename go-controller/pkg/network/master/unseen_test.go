package master

import (
	"math/rand/v2"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestUndoneUnseen: the master's assignment is undone while no watch is open, so that the
// next list shows the node as it was last seen.
func TestUndoneUnseen(t *testing.T) {
	c := newCluster(t)
	c.faults = fakeapi.NewFaults(rand.New(rand.NewPCG(1, 1)))
	c.faults.Inject(c.cs)
	c.addNode("n1", 1)
	c.faults.UndoUnseen(c.cs, "nodes", kube.AnnotationNodeSubnets)
	c.start(config("10.244.0.0/16"))
	c.wait("the assignment", func() bool { return c.annotation("n1", kube.AnnotationNodeSubnets) != "" })
}
