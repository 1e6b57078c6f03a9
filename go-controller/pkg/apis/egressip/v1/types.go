package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// UnavailablePolicy is what happens to egress traffic while no node can give it an
// egress address.
type UnavailablePolicy string

const (
	// UnavailableNodeIP lets it leave with the address of each pod's own node.
	UnavailableNodeIP UnavailablePolicy = "NodeIP"
	// UnavailableDrop drops it.
	UnavailableDrop UnavailablePolicy = "Drop"
)

// AddressAffinity says whether all connections of a pod share an egress address.
type AddressAffinity string

const (
	// AddressAffinityNone lets each connection of a pod leave with any address of its
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

// EgressIP makes the traffic of selected pods leave the cluster with fixed
// addresses, which are hosted by nodes with the label k8s.ovn.org/egress-assignable.
type EgressIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects pods and lists the addresses that their traffic leaves with.
	Spec EgressIPSpec `json:"spec"`
	// status is written by ovnkube, which overwrites changes by others.
	// +optional
	Status EgressIPStatus `json:"status,omitempty"`
}

// EgressIPSpec is the desired behavior of an EgressIP.
type EgressIPSpec struct {
	// egressIPs are the addresses, IPv4 or IPv6 in canonical form, each in a
	// network of some egress node. Traffic is spread over the addresses of its family.
	// Traffic of a family without an address here is not affected.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	EgressIPs []Address `json:"egressIPs"`

	// namespaceSelector selects the namespaces of the pods. An empty one selects all.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`

	// podSelector selects pods in these namespaces. An absent or empty one selects all.
	// +optional
	PodSelector metav1.LabelSelector `json:"podSelector,omitempty"`

	// onUnavailable is what happens to egress traffic while no node can give it an
	// egress address: "Drop" drops it, "NodeIP" lets it leave with the address of the
	// pod's node, as without an EgressIP. Defaults to NodeIP.
	// +optional
	// +kubebuilder:validation:Enum=Drop;NodeIP
	OnUnavailable UnavailablePolicy `json:"onUnavailable,omitempty"`

	// addressAffinity is "None" to spread the connections of each pod over all
	// addresses of a family, or "Pod" to let all connections of a pod leave with
	// the same address, which the pod keeps as long as some node can host it.
	// Defaults to None.
	// +optional
	// +kubebuilder:validation:Enum=None;Pod
	AddressAffinity AddressAffinity `json:"addressAffinity,omitempty"`
}

// Address is an IP address in canonical form.
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip.isCanonical(self)",message="must be in canonical form"
type Address string

// EgressIPStatus is the observed state of an EgressIP.
type EgressIPStatus struct {
	// items are the addresses that are assigned to a node.
	// +optional
	// +listType=map
	// +listMapKey=egressIP
	Items []EgressIPStatusItem `json:"items,omitempty"`
	// programmed is what nodes report to have in force; each node writes its own entry.
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
	// node is the node that is to host the address.
	Node string `json:"node"`
	// egressIP is the address.
	EgressIP string `json:"egressIP"`
	// network is the node's network that contains the address, for example "172.18.0.0/16".
	// +optional
	Network string `json:"network,omitempty"`
	// from is the node that keeps answering for the address until the new node has prepared
	// for it. It is absent if no node does, or if that node is to release the address.
	// +optional
	From string `json:"from,omitempty"`
}

// ProgrammedStatus is what a node reports to have in force.
type ProgrammedStatus struct {
	// node is the name of the node.
	Node string `json:"node"`
	// egressIPs are the addresses that the node answers for. A node takes an
	// address only when no other holds it.
	// +optional
	// +listType=atomic
	EgressIPs []string `json:"egressIPs,omitempty"`
	// awaiting are the addresses that the node has prepared for, while another node, the
	// from of the item, still answers for them.
	// +optional
	// +listType=atomic
	Awaiting []string `json:"awaiting,omitempty"`
	// digest identifies the pods that the node has programmed for addresses on its
	// secondary networks, in parts that each cover a share of the pods. It is empty if the
	// node has no address there.
	// +optional
	Digest string `json:"digest,omitempty"`
	// problem is what the node failed to do. It is empty if there is no problem.
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
