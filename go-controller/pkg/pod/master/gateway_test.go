package master

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestTranslationFollowsTheAddress: pods leave with the current address of their node's
// gateway.
func TestTranslationFollowsTheAddress(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24", "fd00::/64")
	c.addPod("a", "n")
	c.start(pod.Config{DisableSNATMultipleGWs: true})
	c.wait("the translation", func() bool { return strings.Contains(c.nb.Dump(), "172.18.0.3") })
	gateway := kube.FormatL3Gateway(topology.Gateway{
		Mode: topology.GatewayShared, InterfaceID: "breth0_n", MAC: "02:42:ac:12:00:03", Addrs: prefixes("172.18.0.9/16", "fc00::3/64"),
	})
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kube.AnnotationL3Gateway, gateway)
	if _, err := c.cs.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.wait("the new address", func() bool {
		return strings.Contains(c.nb.Dump(), "172.18.0.9") && !strings.Contains(c.nb.Dump(), "172.18.0.3")
	})
}
