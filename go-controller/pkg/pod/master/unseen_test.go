package master

import (
	"math/rand/v2"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestUndoneUnseen: the annotation of a pod is reverted while nothing is watched, so that
// the pod that is listed afterwards looks like the last one seen.
func TestUndoneUnseen(t *testing.T) {
	c := newCluster(t)
	c.faults = fakeapi.NewFaults(rand.New(rand.NewPCG(1, 1)))
	c.faults.Inject(c.cs)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("a", "n")
	c.faults.UndoUnseen(c.cs, "pods", kube.AnnotationPodNetworks)
	c.start(pod.Config{})
	c.wait("the annotation", func() bool { return c.getPod("a").Annotations[kube.AnnotationPodNetworks] != "" })
}
