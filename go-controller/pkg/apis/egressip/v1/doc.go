// Package v1 holds the types of the EgressIP resource, API version
// k8s.ovn.org/v1.
//
// The types are written by hand. Deepcopy functions, the clients under
// pkg/generated and the CustomResourceDefinition in dist/crds are generated
// from them by hack/update-codegen.sh; the field comments become the text that
// "kubectl explain" prints. The CRD validates what a schema can validate; what
// it cannot (an address that is a node's) is a refusal with a condition and an Event.
//
// +k8s:deepcopy-gen=package
// +groupName=k8s.ovn.org
// +groupGoName=EgressIP
package v1
