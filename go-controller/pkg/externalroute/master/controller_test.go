package master

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

var anyGWs = map[string]string{"gws": "true"}

func fake() *nbfake.Writer {
	w := nbfake.New()
	w.AnyParent = true
	return w
}

func routes(w *nbfake.Writer) int { return strings.Count(w.Dump(), "Logical_Router_Static_Route") }

func TestPolicyComesChangesAndGoes(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), node(1), namespace("red"), namespace("blue"), pod("red", 0, 0), pod("red", 1, 1))
	w.start()
	w.create(policy("p", anyGWs, hops("172.18.0.51", "172.18.0.52")))
	p := w.reported("p")
	if p.Status.Pods != 2 || p.Status.Namespaces != 2 || len(p.Status.Hops) != 2 {
		t.Errorf("status %+v", p.Status)
	}
	if n := routes(nb); n != 4 {
		t.Errorf("%d routes when the status was written, want 4:\n%s", n, nb.Dump())
	}
	w.eventually("the annotation", func() bool { return w.inUse("red") == "172.18.0.51,172.18.0.52" })

	w.create(pod("blue", 0, 2))
	w.eventually("the new pod's routes", func() bool { return routes(nb) == 6 })
	w.eventually("the new pod to be counted", func() bool { return w.policy("p").Status.Pods == 3 })

	w.setHops("p", "172.18.0.52", "10.244.7.7")
	p = w.reported("p")
	if n := routes(nb); n != 3 || len(p.Status.Hops) != 1 {
		t.Errorf("%d routes, want 3; status %+v", n, p.Status)
	}
	w.eventually("the annotation", func() bool { return w.inUse("red") == "172.18.0.52" })

	if err := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("all rows to be gone", func() bool { return nb.Dump() == "" })
	w.eventually("the annotations to be gone", func() bool { return w.inUse("red") == "" && w.inUse("blue") == "" })
}

// TestOneTransaction: one more pod, or one hop less on all nodes, is one transaction.
func TestOneTransaction(t *testing.T) {
	const nodes = 10
	s := ovsdbtest.StartNB(t)
	args := []string{"lr-add", "ovn_cluster_router"}
	objs := []runtime.Object{namespace("red"), policy("p", anyGWs, hops("172.18.0.51", "172.18.0.52"))}
	for i := range nodes {
		args = append(args, "--", "lr-add", fmt.Sprintf("GR_n%d", i))
		objs = append(objs, node(i), pod("red", i, 0), pod("red", i, 1))
	}
	s.Nbctl(args...)
	w := newWorld(t, connect(t, s), objs...)
	w.start()
	routes := func() int { return strings.Count(s.Nbctl("list", "Logical_Router_Static_Route"), "nexthop") }
	w.reported("p")
	if n := routes(); n != 4*nodes {
		t.Fatalf("%d routes at the start", n)
	}
	before := s.Records()
	w.create(pod("red", 3, 2))
	w.eventually("its routes", func() bool { return routes() == 4*nodes+2 })
	if n := s.Records() - before; n != 1 {
		t.Errorf("one more pod took %d transactions", n)
	}
	before = s.Records()
	w.setHops("p", "172.18.0.51")
	w.reported("p")
	if n := s.Records() - before; n != 1 || routes() != 2*nodes+1 {
		t.Errorf("one hop less took %d transactions and left %d routes", n, routes())
	}
}

// connect returns a writer to a real database.
func connect(t *testing.T, s *ovsdbtest.Server) *ovsdb.Writer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return ovsdb.NewWriter(client)
}

// TestGatewayPod follows a dynamic hop and an announced one through readiness.
func TestGatewayPod(t *testing.T) {
	nb := fake()
	next := v1.ExternalNextHops{Dynamic: []v1.DynamicHop{{
		PodSelector:           metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
		NamespaceSelector:     metav1.LabelSelector{MatchLabels: map[string]string{"name": "gw"}},
		NetworkAttachmentName: "net1",
	}}}
	gw := pod("gw", 1, 9)
	w := newWorld(t, nb, node(0), node(1), namespace("red"), namespace("blue"), namespace("gw"), gw,
		policy("p", map[string]string{"name": "red"}, next), pod("red", 0, 0), pod("blue", 0, 1))
	w.start()
	if n := routes(nb); n != 0 {
		t.Fatalf("%d routes without a network-status", n)
	}
	w.annotatePod("gw", gw.Name, map[string]any{kube.AnnotationNetworkStatus: `[{"name":"gw/net1","ips":["172.18.0.61"]}]`})
	w.eventually("the dynamic hop", func() bool { return strings.Count(nb.Dump(), "nexthop=172.18.0.61") == 1 })
	w.annotatePod("gw", gw.Name, map[string]any{kube.AnnotationRoutingNamespaces: "blue", kube.AnnotationRoutingNetwork: "net1"})
	w.eventually("the announced hop", func() bool { return strings.Count(nb.Dump(), "nexthop=172.18.0.61") == 2 })
	w.annotatePod("gw", gw.Name, map[string]any{kube.AnnotationNetworkStatus: `no json`})
	w.eventually("both hops to be gone", func() bool { return routes(nb) == 0 })
	w.eventually("the condition", func() bool {
		for _, c := range w.policy("p").Status.Conditions {
			if c.Type == v1.ConditionHopsValid && strings.Contains(c.Message, "does not parse") {
				return true
			}
		}
		return false
	})
	w.annotatePod("gw", gw.Name, map[string]any{kube.AnnotationNetworkStatus: `[{"name":"gw/net1","ips":["172.18.0.61"]}]`})
	w.eventually("both hops", func() bool { return routes(nb) == 2 })
	unready, err := w.kube.CoreV1().Pods("gw").Get(context.Background(), gw.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unready.Status.Conditions = nil
	if _, err := w.kube.CoreV1().Pods("gw").UpdateStatus(context.Background(), unready, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the hops of the unready pod to be gone", func() bool { return routes(nb) == 0 })
}

// TestRestarts restarts the master ten times on a real database: nothing is
// written to it, nor to the API.
func TestRestarts(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	s.Nbctl("lr-add", "ovn_cluster_router", "--", "lr-add", "GR_n0", "--", "lr-add", "GR_n1")
	next := hops("172.18.0.51", "172.18.0.52")
	next.Static[0].SkipHostSNAT = true
	annotated := namespace("blue")
	annotated.Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: "172.18.0.53", kube.AnnotationBFDEnabled: ""}
	w := newWorld(t, connect(t, s), node(0), node(1), namespace("red"), annotated,
		policy("p", map[string]string{"name": "red"}, next), policy("q", anyGWs, hops("172.18.0.52", "0.0.0.0")),
		pod("red", 0, 0), pod("red", 1, 1), pod("blue", 0, 2))
	w.start()
	for _, name := range []string{"p", "q"} { // not only their first status, which may say that rows are still to be written
		w.eventually(name+" to be ready", func() bool { return meta.IsStatusConditionTrue(w.policy(name).Status.Conditions, v1.ConditionReady) })
	}
	w.eventually("the annotations", func() bool { return w.inUse("red") != "" && w.inUse("blue") != "" })
	w.stop()
	dump, records, patches := s.Dump(), s.Records(), w.patchCount()
	statuses := fmt.Sprintf("%+v\n%+v", w.policy("p").Status, w.policy("q").Status)
	if n := strings.Count(s.Nbctl("list", "Logical_Router_Static_Route"), "nexthop"); n != 6 {
		t.Fatalf("%d routes, want 6", n)
	}
	for i := range 10 {
		w.start()
		w.stop()
		if got := s.Dump(); got != dump {
			t.Fatalf("restart %d changed rows:\n%s\nwere\n%s", i, got, dump)
		}
		if n := s.Records() - records; n != 0 {
			t.Fatalf("restart %d wrote %d transactions", i, n)
		}
		if n := w.patchCount() - patches; n != 0 {
			t.Fatalf("restart %d patched %d objects: %v\nstatuses before were\n%s", i, n, w.patches[patches:], statuses)
		}
	}
}

// TestLeftBehind: rows that an earlier master wrote for a deleted node are removed.
func TestLeftBehind(t *testing.T) {
	writer := fake()
	w := newWorld(t, writer, node(0), namespace("red"), pod("red", 0, 0), pod("red", 1, 1), policy("p", anyGWs, hops("172.18.0.51")))
	w.start()
	w.stop()
	w.create(node(1))
	w.start()
	w.eventually("the routes on both nodes", func() bool { return routes(writer) == 2 })
	w.stop()
	if err := w.kube.CoreV1().Nodes().Delete(context.Background(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	if n := routes(writer); n != 1 {
		t.Errorf("%d routes after the node went while no master ran, want 1", n)
	}
}

// TestStatusOfOthers: a status changed by somebody else is written again.
func TestStatusOfOthers(t *testing.T) {
	w := newWorld(t, fake(), node(0), namespace("red"), policy("p", anyGWs, hops("172.18.0.51")))
	w.start()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p := w.reported("p").DeepCopy()
		p.Status.Hops, p.Status.Pods = nil, 99
		_, err := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().UpdateStatus(context.Background(), p, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the status to be right again", func() bool {
		s := w.policy("p").Status
		return len(s.Hops) == 1 && s.Pods == 0
	})
}

// TestGenerations: a status never names a generation that it does not describe.
func TestGenerations(t *testing.T) {
	w := newWorld(t, fake(), node(0), namespace("red"), policy("p", anyGWs, hops("172.18.0.51")))
	w.start()
	for i := range 50 {
		want := []string{"172.18.0.51", "172.18.0.52", "172.18.0.53"}[:1+i%3]
		w.setHops("p", want...)
		if p := w.reported("p"); len(p.Status.Hops) != len(want) {
			t.Fatalf("generation %d has %d hops, its status %d", p.Generation, len(want), len(p.Status.Hops))
		}
	}
}
