package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// SourceIPMode says where the source address of egress traffic comes from.
type SourceIPMode string

const (
	// SourceIPLoadBalancer gives egress traffic the ingress address of the
	// Service's load balancer.
	SourceIPLoadBalancer SourceIPMode = "LoadBalancerIP"
	// SourceIPNetwork leaves egress traffic the address of the interface that
	// the network sends it out of.
	SourceIPNetwork SourceIPMode = "Network"
)

// UnavailablePolicy says what becomes of egress traffic that no node can give
// the address of the load balancer.
type UnavailablePolicy string

const (
	// UnavailableNodeIP lets it leave with the address of each pod's own node.
	UnavailableNodeIP UnavailablePolicy = "NodeIP"
	// UnavailableDrop holds it back.
	UnavailableDrop UnavailablePolicy = "Drop"
)

// Types of the conditions of an EgressService.
const (
	// ConditionAssigned is true while a node, or every node, is to serve it.
	ConditionAssigned = conditions.Assigned
	// ConditionProgrammed is true while traffic takes its way: the host has
	// acknowledged its rules, and the policies that lead there are written.
	ConditionProgrammed = conditions.Programmed
	// ConditionConflict is true while an older EgressService has some of the pods.
	ConditionConflict = conditions.Conflict
	// ConditionIngressRefused is true while the Service has ingress addresses that
	// cannot be used, such as addresses of nodes. It is not there otherwise.
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

// EgressService makes the pods behind the LoadBalancer Service of the same
// namespace and name leave the cluster with the address under which the Service
// is reached, or through another network.
type EgressService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the traffic of the Service's pods leaves the cluster. An
	// empty spec means the load balancer's address, through any node.
	// +optional
	// +kubebuilder:default={}
	Spec EgressServiceSpec `json:"spec,omitempty"`
	// status is written by ovnkube; what others write is overwritten.
	// +optional
	Status EgressServiceStatus `json:"status,omitempty"`
}

// EgressServiceSpec is the wish of the user.
type EgressServiceSpec struct {
	// sourceIPBy is "LoadBalancerIP" for the ingress address of the Service's
	// load balancer, or "Network" for the address of the outgoing interface.
	// +optional
	// +kubebuilder:validation:Enum=LoadBalancerIP;Network
	// +kubebuilder:default=LoadBalancerIP
	SourceIPBy SourceIPMode `json:"sourceIPBy,omitempty"`

	// nodeSelector limits the nodes that may be chosen as host where sourceIPBy
	// is LoadBalancerIP. An absent or empty one allows every node.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator is In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && e.values.size() > 0))",message="In and NotIn need values, Exists and DoesNotExist have none"
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// network is the routing table, by number or by name, that egress traffic
	// and the replies to ingress traffic take. Absent: the host's usual routing.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`
	Network string `json:"network,omitempty"`

	// onUnavailable is "Drop" to hold egress traffic back while no node gives it
	// the load balancer's address, or "NodeIP" to let it leave with the address
	// of the pod's node, as without an EgressService. Absent: NodeIP.
	// +optional
	// +kubebuilder:validation:Enum=Drop;NodeIP
	OnUnavailable UnavailablePolicy `json:"onUnavailable,omitempty"`
}

// EgressServiceStatus is what ovnkube made of it.
type EgressServiceStatus struct {
	// host is the node that all egress traffic of the Service leaves from, "ALL"
	// where it leaves from each pod's own node, and empty where it is not served.
	// +optional
	Host string `json:"host,omitempty"`
	// programmed is what the host has acknowledged; a node writes it.
	// +optional
	Programmed *ProgrammedStatus `json:"programmed,omitempty"`
	// conditions are Assigned, Programmed and Conflict.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProgrammedStatus is the status entry of a node that its kernel has the rules.
type ProgrammedStatus struct {
	// host is the node that says so.
	Host string `json:"host"`
	// digest identifies what it has programmed: addresses, endpoints, network.
	// +optional
	Digest string `json:"digest,omitempty"`
	// problem is what the node could not do, for example that the routing table
	// of the network is missing. It is empty where all is well.
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
