// Package v1 holds the types of the EgressIP resource, API version k8s.ovn.org/v1.
//
// The types are written by hand. Deepcopy functions, the clients in pkg/generated and the CustomResourceDefinition
// in dist/crds are generated from them by hack/update-codegen.sh; the field comments become the output of "kubectl
// explain". The CRD validates what a schema can validate; anything else (such as an address of a node) is refused
// with a condition and an Event.
//
// +k8s:deepcopy-gen=package
// +groupName=k8s.ovn.org
// +groupGoName=EgressIP
package v1
