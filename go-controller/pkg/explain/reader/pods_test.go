package reader

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	servicefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	ipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/metadatatest"
)

func somePod(namespace, name string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}, Spec: corev1.PodSpec{NodeName: "n1"}}
}

// TestReadSome: the number of requests for pods, and the number of returned pods, do
// not depend on the total number of pods.
func TestReadSome(t *testing.T) {
	gateway := map[string]string{kube.AnnotationRoutingNamespaces: "other, prod"}
	before := map[string]int{}
	for _, bystanders := range []int{10, 400} {
		objects := []runtime.Object{somePod("prod", "web", nil), somePod("prod", "db", nil), somePod("gws", "gw", gateway)}
		for _, name := range []string{"prod", "gws", "plain"} {
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
		}
		for i := range bystanders {
			objects = append(objects, somePod("plain", fmt.Sprintf("pod-%d", i), map[string]string{kube.AnnotationRoutingNamespaces: "other"}))
		}
		prod := &ipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: ipv1.EgressIPSpec{
			NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "prod"}}}}
		for what, read := range map[string]func(Clients) (explain.Snapshot, error){
			"the pod": func(c Clients) (explain.Snapshot, error) {
				return ReadPod(t.Context(), c, "ovn-kubernetes", FromConfigMap, "prod/web")
			},
			"the EgressIP": func(c Clients) (explain.Snapshot, error) {
				return ReadEgressIP(t.Context(), c, "ovn-kubernetes", FromConfigMap, "prod")
			},
		} {
			core := fakeapi.NewClientset(objects...)
			snap, err := read(Clients{Kube: core, IPs: ipfake.NewSimpleClientset(prod), Services: servicefake.NewSimpleClientset(),
				Routes: routefake.NewSimpleClientset(), Metadata: metadatatest.Pods(t, core)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range snap.Pods {
				got = append(got, kube.PodKey(p))
			}
			if want := []string{"gws/gw", "prod/db", "prod/web"}; !slices.Equal(got, want) {
				t.Errorf("about %s beside %d others: pods %q, want %q", what, bystanders, got, want)
			}
			requests := 0
			for _, a := range core.Actions() {
				if a.GetResource().Resource != "pods" {
					continue
				}
				if requests++; a.GetNamespace() == metav1.NamespaceAll || a.GetNamespace() == "plain" {
					t.Errorf("about %s: pods of namespace %q are listed", what, a.GetNamespace())
				}
			}
			if was, ok := before[what]; ok && requests != was {
				t.Errorf("about %s: %d requests for pods beside %d others, %d beside fewer", what, requests, bystanders, was)
			}
			before[what] = requests
		}
	}
}

// TestReadPodUnknown: a pod that does not exist is not an error of the reader; the answer reports it.
func TestReadPodUnknown(t *testing.T) {
	core := fakeapi.NewClientset(somePod("prod", "web", nil))
	c := Clients{Kube: core, IPs: ipfake.NewSimpleClientset(), Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset(),
		Metadata: metadatatest.Pods(t, core)}
	snap, err := ReadPod(t.Context(), c, "ovn-kubernetes", FromConfigMap, "prod/nobody")
	if err != nil || len(snap.Pods) != 0 {
		t.Errorf("got %d pods and %v", len(snap.Pods), err)
	}
}
