package master

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// TestPodOfNoNode: a pod without a node has no policies whatever its status is, and is
// not among the pods that nodes must have rules for.
func TestPodOfNoNode(t *testing.T) {
	w := serving(t, prodIPs...)
	before := w.master.members.Digest("egressip-prod", addrs("10.10.10.5"))
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "ghost", UID: "ghost", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{
			kube.AnnotationPodNetworks: `{"default":{"ip_addresses":["10.244.0.66/24"],"mac_address":"0a:58:0a:f4:00:42"}}`}},
		Spec: corev1.PodSpec{NodeName: "ghost"},
	})
	// A pod created later shows that the first one has been reconciled.
	w.attach("prod/next", "ovn-control-plane", "10.244.0.7")
	w.eventually("the next pod to be served", func() bool { return w.hops("prod/next", "10.244.0.7") == "100.64.0.3 100.64.0.4" })
	if got := w.nb.Dump(); strings.Contains(got, "10.244.0.66") {
		t.Errorf("there are rows for what a pod says of itself:\n%s", got)
	}
	w.detach("prod/next")
	w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "next"}})
	w.eventually("the digest of those that there were", func() bool {
		return w.master.members.Digest("egressip-prod", addrs("10.10.10.5")) == before
	})
}

// TestPortThatIsGone: a pod whose port is removed, for example with its node, soon has no
// policies, and is not part of any digest.
func TestPortThatIsGone(t *testing.T) {
	w := serving(t, prodIPs...)
	before := w.master.members.Digest("egressip-prod", addrs("10.10.10.5"))
	w.attach("prod/next", "ovn-control-plane", "10.244.0.7")
	w.eventually("the pod to be served", func() bool { return w.hops("prod/next", "10.244.0.7") == "100.64.0.3 100.64.0.4" })
	if _, err := w.db.Apply(context.Background(), nb.Owner{Feature: portFeature, Object: "prod/next"}, nil); err != nil {
		t.Fatal(err)
	}
	w.master.Look("prod/next")
	w.eventually("its policies to go", func() bool { return !strings.Contains(w.nb.Dump(), "10.244.0.7") })
	if got := w.master.members.Digest("egressip-prod", addrs("10.10.10.5")); got != before {
		t.Error("it still counts for the digest")
	}
}
