// Package v1 holds the types of the AdminPolicyBasedExternalRoute resource, API
// version k8s.ovn.org/v1.
//
// The types are written by hand. Deepcopy functions, the clients under
// pkg/generated and the CustomResourceDefinition in dist/crds are generated
// from them by hack/update-codegen.sh; the field comments become the text that
// "kubectl explain" prints. The CRD validates what a schema can validate; what
// it cannot (an address that is not a gateway's) is a condition of the status.
//
// +k8s:deepcopy-gen=package
// +groupName=k8s.ovn.org
// +groupGoName=AdminPolicyBasedRoute
package v1
