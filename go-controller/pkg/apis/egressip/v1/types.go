package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// UnavailablePolicy says what becomes of egress traffic that no node can give an
// egress address.
type UnavailablePolicy string

const (
	// UnavailableNodeIP lets it leave with the address of each pod's own node.
	UnavailableNodeIP UnavailablePolicy = "NodeIP"
	// UnavailableDrop holds it back.
	UnavailableDrop UnavailablePolicy = "Drop"
)

// AddressAffinity says what goes on leaving with the address that it began with.
type AddressAffinity string

const (
	// AddressAffinityNone lets each connection of a pod take any address of its
	// family.
	AddressAffinityNone AddressAffinity = "None"
	// AddressAffinityPod gives all connections of a pod the same address of a family.
	AddressAffinityPod AddressAffinity = "Pod"
)

// Types of the conditions of an EgressIP.
const (
	// ConditionAssigned is true while every address has a node.
	ConditionAssigned = conditions.Assigned
	// ConditionProgrammed is true while every address that has a node is held
	// there, and the policies that lead the pods there are in force.
	ConditionProgrammed = conditions.Programmed
	// ConditionConflict is true while an older EgressIP has one of the addresses
	// or some of the pods.
	ConditionConflict = conditions.Conflict
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=egressips,scope=Cluster,shortName=eip
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="EgressIPs",type=string,JSONPath=`.spec.egressIPs`
// +kubebuilder:printcolumn:name="Assigned Nodes",type=string,JSONPath=`.status.items[*].node`
// +kubebuilder:printcolumn:name="Assigned EgressIPs",type=string,JSONPath=`.status.items[*].egressIP`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// EgressIP makes the pods that its selectors choose leave the cluster with fixed
// addresses, which nodes labelled k8s.ovn.org/egress-assignable hold for them.
type EgressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which pods leave with which addresses.
	Spec EgressIPSpec `json:"spec"`
	// status is written by ovnkube; what others write is overwritten.
	// +optional
	Status EgressIPStatus `json:"status,omitempty"`
}

// EgressIPSpec is the wish of the user.
type EgressIPSpec struct {
	// egressIPs are the addresses, IPv4 or IPv6 in canonical form, each in a
	// network of some egress node. Traffic is spread over those of its family.
	// Pods' traffic of a family that has none here is left alone.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	EgressIPs []Address `json:"egressIPs"`

	// namespaceSelector chooses the namespaces of the pods. An empty one chooses all.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`

	// podSelector chooses pods in these namespaces. An absent or empty one chooses all.
	// +optional
	PodSelector metav1.LabelSelector `json:"podSelector,omitempty"`

	// onUnavailable is "Drop" to hold egress traffic back while no node gives it
	// an egress address, or "NodeIP" to let it leave with the address of the
	// pod's node, as without an EgressIP. Absent: NodeIP.
	// +optional
	// +kubebuilder:validation:Enum=Drop;NodeIP
	OnUnavailable UnavailablePolicy `json:"onUnavailable,omitempty"`

	// addressAffinity is "None" to spread the connections of each pod over all
	// addresses of a family, or "Pod" to let all connections of a pod leave with
	// the same one, which it keeps as long as some node can hold that address.
	// Absent: None.
	// +optional
	// +kubebuilder:validation:Enum=None;Pod
	AddressAffinity AddressAffinity `json:"addressAffinity,omitempty"`
}

// Address is an IP address in canonical form.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip.isCanonical(self)",message="must be in canonical form"
type Address string

// EgressIPStatus is what ovnkube made of it.
type EgressIPStatus struct {
	// items are the addresses that have a node.
	// +optional
	// +listType=map
	// +listMapKey=egressIP
	Items []EgressIPStatusItem `json:"items,omitempty"`
	// programmed are the status entries of the nodes about what they have in place; each
	// node writes its own.
	// +optional
	// +listType=map
	// +listMapKey=node
	Programmed []ProgrammedStatus `json:"programmed,omitempty"`
	// conditions are Assigned, Programmed and Conflict.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// EgressIPStatusItem is the assignment of one address.
type EgressIPStatusItem struct {
	// node is to hold the address.
	Node string `json:"node"`
	// egressIP is the address.
	EgressIP string `json:"egressIP"`
	// network is the network of the node that the address is in, e.g. "172.18.0.0/16".
	// +optional
	Network string `json:"network,omitempty"`
	// from is the node that goes on answering for the address until the one that is to hold
	// it has prepared for it; absent where no node does, or it is to release the address.
	// +optional
	From string `json:"from,omitempty"`
}

// ProgrammedStatus is the status entry of a node.
type ProgrammedStatus struct {
	// node says so.
	Node string `json:"node"`
	// egressIPs are the addresses that the node answers for. A node takes an
	// address only when no other holds it.
	// +optional
	// +listType=atomic
	EgressIPs []string `json:"egressIPs,omitempty"`
	// awaiting are the addresses that the node has prepared for and another one, which
	// items name under from, still answers for.
	// +optional
	// +listType=atomic
	Awaiting []string `json:"awaiting,omitempty"`
	// digest identifies the pods that the node has programmed for addresses on its
	// secondary networks, in parts of which each is about a share of the pods; empty
	// where it holds none there.
	// +optional
	Digest string `json:"digest,omitempty"`
	// problem is what the node could not do; empty where all is well.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// EgressIPList is a list of EgressIPs.
type EgressIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EgressIP `json:"items"`
}
