package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the API group and version of the types.
var SchemeGroupVersion = schema.GroupVersion{Group: "k8s.ovn.org", Version: "v1"}

// Kind is the kind of an EgressIP.
const Kind = "EgressIP"

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &EgressIP{}, &EgressIPList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

// Resource qualifies a resource name with the API group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}
