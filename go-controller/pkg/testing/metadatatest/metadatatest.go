// Package metadatatest makes a metadata client for the pods of a fake clientset.
//
// Callers: tests.
package metadatatest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
)

// Pods returns a client with the metadata of the pods that kube currently has.
func Pods(t *testing.T, kube *fake.Clientset) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := metadatafake.NewSimpleMetadataClient(scheme)
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	list, err := kube.Tracker().List(resource, kind, metav1.NamespaceAll)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.(*corev1.PodList).Items {
		o := &metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta}
		o.SetGroupVersionKind(kind)
		if err := c.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
