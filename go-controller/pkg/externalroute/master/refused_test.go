package master

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestRefusedGateways: the author of an unused gateway is informed once, by an
// Event on the object that names it.
func TestRefusedGateways(t *testing.T) {
	announced := pod("gw", 0, 0)
	announced.Annotations[kube.AnnotationRoutingNamespaces] = "red"
	announced.Annotations[kube.AnnotationRoutingNetwork] = "net1"
	announced.Annotations[kube.AnnotationNetworkStatus] = `[{"name":"net1","ips":["172.18.0.61"]}]`
	red := namespace("red")
	red.Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: "gateway.example"}
	writer := nbfake.New()
	writer.AnyParent = true
	w := newWorld(t, writer, node(0), namespace("gw"), red, announced)
	w.config.GatewayNamespaces = []string{"other"}
	w.start()
	told := func(want ...string) {
		t.Helper()
		for range want {
			event := eventually.Receive(t, fmt.Sprintf("events about %q", want), w.events.Events)
			if !strings.HasPrefix(event, "Warning GatewayRefused ") {
				t.Errorf("event %q", event)
			}
			found := false
			for _, text := range want {
				found = found || strings.Contains(event, text)
			}
			if !found {
				t.Errorf("event %q is none of %q", event, want)
			}
		}
	}
	told("k8s.ovn.org/routing-namespaces", "k8s.ovn.org/routing-external-gws")
	if got := w.inUse("red"); got != "" {
		t.Errorf("red uses %s", got)
	}
	// Another decision about the same pod reports nothing again; a different problem is reported.
	w.annotatePod("gw", announced.Name, map[string]any{kube.AnnotationBFDEnabled: "true"})
	if _, err := w.kube.CoreV1().Namespaces().Patch(context.Background(), "red", "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"k8s.ovn.org/routing-external-gws":"10.244.0.3,172.18.255.255,172.18.0.51"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateway of the namespace", func() bool { return w.inUse("red") == "172.18.0.51" })
	told("10.244.0.3 is in the pod network", "172.18.255.255 is the network or broadcast address of 172.18.0.0/16")
	w.stop()
	if len(w.events.Events) > 0 {
		t.Errorf("one more event: %s", <-w.events.Events)
	}
}
