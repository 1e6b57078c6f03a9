package master

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestMadeAnew: the decision about an EgressService does not apply to another one of
// the same name, whose spec has the same generation.
func TestMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, append(demoObjects(), service("other", "5.5.5.6", "5555::6"),
			slice("other", "10.244.0.9", "fd00:10:244:1::9"), egress("other"))...)
		w.start()
		w.anyHost(demo)
		w.anyHost("default/other")
		fakeapi.Settle()

		unblock := w.health.Block()
		w.remove(egress("demo-svc"))
		w.create(egress("demo-svc", func(e *v1.EgressService) {
			e.UID = "another"
			e.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-it"}}
		}))
		w.update(slice("demo-svc", append(demoPods, "10.244.0.3")...))
		// Others are served meanwhile.
		w.update(slice("other", "10.244.0.9", "fd00:10:244:1::9", "10.244.0.10"))
		w.eventually("the other's endpoint", func() bool { return strings.Contains(w.nb.Dump(), `"ip4.src == 10.244.0.10"`) })
		fakeapi.Settle()
		unblock()
		w.served(demo, "")
		for _, a := range w.egress.Actions() {
			p, ok := a.(clienttesting.PatchAction)
			if !ok || p.GetName() != "demo-svc" {
				continue
			}
			var patch struct {
				Metadata metav1.ObjectMeta
				Status   v1.EgressServiceStatus
			}
			if json.Unmarshal(p.GetPatch(), &patch) == nil && patch.Metadata.UID == "another" && patch.Status.Host != "" {
				t.Errorf("the new one got the host of the former: %s", p.GetPatch())
			}
		}
	})
}

// TestWordOfEveryNode: the entry of a node while every node serves does not count as the acknowledgement of a host.
func TestWordOfEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perNode := egress("demo-svc", func(e *v1.EgressService) { e.Spec.SourceIPBy, e.Spec.Network = v1.SourceIPNetwork, "blue" })
		w := newWorld(t, append(demoObjects()[1:], perNode)...)
		w.silent = func(string, string) bool { return true }
		w.start()
		w.eventually("every node", func() bool { return w.reports("") })
		w.says("ovn-control-plane")
		w.eventually("the word of the node", func() bool { return w.reports("ovn-control-plane") })
		single := egress("demo-svc", func(e *v1.EgressService) {
			e.Generation, e.Spec.Network = 2, "blue"
			e.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{worker: ""}}
		})
		have, err := w.egress.EgressServiceV1().EgressServices("default").Get(t.Context(), "demo-svc", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		single.Status = have.Status
		w.update(single)
		status := func() v1.EgressServiceStatus {
			eg, err := w.egress.EgressServiceV1().EgressServices("default").Get(context.Background(), "demo-svc", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return eg.Status
		}
		w.eventually("a host", func() bool { h := status().Host; return h != "" && h != v1.HostAll })
		fakeapi.Settle()
		if s := status(); s.Programmed != nil {
			t.Errorf("host %s, and %+v", s.Host, *s.Programmed)
		}
		if rows := w.nb.DumpFeature(egressservice.Feature); rows != "" {
			t.Errorf("rows for a host that has acknowledged nothing:\n%s", rows)
		}
	})
}
