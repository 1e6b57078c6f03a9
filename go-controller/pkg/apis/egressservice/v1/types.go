package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// SourceIPMode determines the source address of egress traffic.
type SourceIPMode string

const (
	// SourceIPLoadBalancer gives egress traffic the ingress address of the
	// Service's load balancer.
	SourceIPLoadBalancer SourceIPMode = "LoadBalancerIP"
	// SourceIPNetwork gives egress traffic the address of the interface through which
	// the network sends it.
	SourceIPNetwork SourceIPMode = "Network"
)

// UnavailablePolicy is what happens to egress traffic while no node can give it the
// address of the load balancer.
type UnavailablePolicy string

const (
	// UnavailableNodeIP lets it leave with the address of each pod's own node.
	UnavailableNodeIP UnavailablePolicy = "NodeIP"
	// UnavailableDrop drops it.
	UnavailableDrop UnavailablePolicy = "Drop"
)

// Types of the conditions of an EgressService.
const (
	// ConditionAssigned is true while a node, or every node, is to serve it.
	ConditionAssigned = conditions.Assigned
	// ConditionProgrammed is true while the EgressService is in force: the host has
	// acknowledged its rules, and the policies that lead there are written.
	ConditionProgrammed = conditions.Programmed
	// ConditionConflict is true while an older EgressService has some of the pods.
	ConditionConflict = conditions.Conflict
	// ConditionIngressRefused is true while the Service has ingress addresses that
	// cannot be used, such as addresses of nodes. It is absent otherwise.
	ConditionIngressRefused = conditions.IngressRefused
)

// HostAll is the status host of an EgressService that every node serves for
// its own pods.
const HostAll = "ALL"

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=egressservices,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.sourceIPBy`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// EgressService makes the traffic of the pods behind the LoadBalancer Service of the same
// namespace and name leave the cluster with the address at which clients reach the
// Service, or through another network.
type EgressService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the traffic of the Service's pods leaves the cluster. With an
	// empty spec it leaves with the load balancer's address, through any node.
	// +optional
	// +kubebuilder:default={}
	Spec EgressServiceSpec `json:"spec,omitempty"`
	// status is written by ovnkube, which overwrites changes by others.
	// +optional
	Status EgressServiceStatus `json:"status,omitempty"`
}

// EgressServiceSpec is the desired behavior of an EgressService.
type EgressServiceSpec struct {
	// sourceIPBy is "LoadBalancerIP" for the ingress address of the Service's
	// load balancer, or "Network" for the address of the outgoing interface.
	// +optional
	// +kubebuilder:validation:Enum=LoadBalancerIP;Network
	// +kubebuilder:default=LoadBalancerIP
	SourceIPBy SourceIPMode `json:"sourceIPBy,omitempty"`

	// nodeSelector limits the nodes that can be the host if sourceIPBy is
	// LoadBalancerIP. An absent or empty one allows every node.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator is In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && e.values.size() > 0))",message="In and NotIn need values, Exists and DoesNotExist have none"
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// network is the routing table, by number or by name, for egress traffic
	// and the replies to ingress traffic. Defaults to the host's usual routing.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`
	Network string `json:"network,omitempty"`

	// onUnavailable is what happens to egress traffic while no node can give it the
	// load balancer's address: "Drop" drops it, "NodeIP" lets it leave with the address
	// of the pod's node, as without an EgressService. Defaults to NodeIP.
	// +optional
	// +kubebuilder:validation:Enum=Drop;NodeIP
	OnUnavailable UnavailablePolicy `json:"onUnavailable,omitempty"`
}

// EgressServiceStatus is the observed state of an EgressService.
type EgressServiceStatus struct {
	// host is the node through which all egress traffic of the Service leaves. It is "ALL"
	// if traffic leaves through each pod's own node, and empty if no node serves it.
	// +optional
	Host string `json:"host,omitempty"`
	// programmed is what the host reports to have in force; a node writes it.
	// +optional
	Programmed *ProgrammedStatus `json:"programmed,omitempty"`
	// conditions are Assigned, Programmed and Conflict.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProgrammedStatus is what a node reports to have in force in its kernel.
type ProgrammedStatus struct {
	// host is the name of the node.
	Host string `json:"host"`
	// digest identifies what the node has programmed: addresses, endpoints, network.
	// +optional
	Digest string `json:"digest,omitempty"`
	// addresses are the egress addresses that the node gives to the pods, at most one of each
	// family. While a node serves the EgressService they are kept, even if another node claims
	// one of them.
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
	// problem is what the node failed to do, for example because the routing table of the
	// network is missing. It is empty if there is no problem.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// Source returns the mode of the spec; an object written without one has
// SourceIPLoadBalancer.
func (s EgressServiceSpec) Source() SourceIPMode {
	if s.SourceIPBy == "" {
		return SourceIPLoadBalancer
	}
	return s.SourceIPBy
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// EgressServiceList is a list of EgressServices.
type EgressServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EgressService `json:"items"`
}
