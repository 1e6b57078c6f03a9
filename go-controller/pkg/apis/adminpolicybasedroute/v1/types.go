package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// The condition types of the status.
const (
	// ConditionReady is True where at least one hop is in use by the selected
	// pods, or would be if there were pods.
	ConditionReady = conditions.Ready
	// ConditionHopsValid is False where some hop of the spec cannot be used; the
	// others are.
	ConditionHopsValid = conditions.HopsValid
	// ConditionConflict is True where another policy decides about the options of a
	// hop.
	ConditionConflict = conditions.Conflict
	// ConditionConflicting is the former name of ConditionConflict.
	//
	// Deprecated: read ConditionConflict; this one goes with the next version.
	ConditionConflicting = conditions.FormerConflict
)

// The reasons of the conditions.
const (
	ReasonApplied           = "Applied"
	ReasonInvalidSelector   = "InvalidSelector"
	ReasonNoNamespace       = "NoNamespaceSelected"
	ReasonNoHop             = "NoHop"
	ReasonWriteFailed       = "WriteFailed"
	ReasonAllValid          = "AllValid"
	ReasonInvalidHop        = "InvalidHop"
	ReasonNoGatewayPod      = "NoGatewayPodSelected"
	ReasonNoConflict        = "NoConflict"
	ReasonDifferentOptions  = "DifferentOptions"
	ReasonOtherPoliciesSNAT = "MixedSNAT"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=adminpolicybasedexternalroutes,scope=Cluster,shortName=apbexternalroute
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.status`
// +kubebuilder:printcolumn:name="Last Update",type=date,JSONPath=`.status.lastTransitionTime`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// AdminPolicyBasedExternalRoute sends what the pods of the selected namespaces
// send out of the cluster through external gateways.
type AdminPolicyBasedExternalRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says whose traffic goes through which gateways.
	Spec AdminPolicyBasedExternalRouteSpec `json:"spec"`
	// status is written by ovnkube; what others write is overwritten.
	// +optional
	Status AdminPolicyBasedExternalRouteStatus `json:"status,omitempty"`
}

// AdminPolicyBasedExternalRouteSpec is the wish of the administrator.
type AdminPolicyBasedExternalRouteSpec struct {
	// from says whose traffic it is about.
	From ExternalNetworkSource `json:"from"`
	// nextHops are the gateways; the traffic is spread over all of them.
	NextHops ExternalNextHops `json:"nextHops"`
}

// ExternalNetworkSource selects pods.
type ExternalNetworkSource struct {
	// namespaceSelector selects the namespaces whose pods use the gateways.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
}

// ExternalNextHops are gateways by address and by the pods that are gateways.
type ExternalNextHops struct {
	// static are gateways with addresses that do not change.
	// +optional
	// +listType=atomic
	Static []StaticHop `json:"static,omitempty"`
	// dynamic are gateways that are pods.
	// +optional
	// +listType=atomic
	Dynamic []DynamicHop `json:"dynamic,omitempty"`
}

// HopOptions are what static and dynamic hops have in common.
type HopOptions struct {
	// bfdEnabled watches the gateway by Bidirectional Forwarding Detection: it is
	// used only while its BFD session is up.
	// +optional
	BFDEnabled bool `json:"bfdEnabled,omitempty"`
	// bfd are the timers of that session; absent ones are OVN's defaults.
	// +optional
	BFD *BFDTimers `json:"bfd,omitempty"`
	// skipHostSNAT leaves pods their own source address. Translation is a matter
	// of the pod and the IP family and not of the single hop: one hop that asks
	// for it is enough.
	// +optional
	SkipHostSNAT bool `json:"skipHostSNAT,omitempty"`
}

// BFDTimers are those of RFC 5880.
type BFDTimers struct {
	// minRx is the shortest interval, in milliseconds, at which packets can be received.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	MinRx *int32 `json:"minRx,omitempty"`
	// minTx is the shortest interval, in milliseconds, at which packets are sent.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	MinTx *int32 `json:"minTx,omitempty"`
	// multiplier is how many packets in a row may be missing.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Multiplier *int32 `json:"multiplier,omitempty"`
}

// StaticHop is a gateway with an address that does not change.
type StaticHop struct {
	// ip is the IPv4 or IPv6 address of the gateway.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip"`

	HopOptions `json:",inline"`
}

// DynamicHop are gateways that are pods. Only pods that run, are ready and are
// not being deleted count.
type DynamicHop struct {
	// podSelector selects the pods within the namespaces.
	PodSelector metav1.LabelSelector `json:"podSelector"`
	// namespaceSelector selects the namespaces the pods are in.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	// networkAttachmentName is the name of the attached network on which the pods
	// are gateways, "name" or "namespace/name", as their annotation
	// k8s.v1.cni.cncf.io/network-status tells it. Absent: the pods are on the
	// host's network, and their host's addresses are the gateways.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	NetworkAttachmentName string `json:"networkAttachmentName,omitempty"`

	HopOptions `json:",inline"`
}

// Outcome is the status of a policy in a word.
// +kubebuilder:validation:Enum=Success;Fail
type Outcome string

const (
	// OutcomeSuccess is that of a policy all of which is in force.
	OutcomeSuccess Outcome = "Success"
	// OutcomeFail is that of a policy that is not in force, or a part of which can
	// never be because it is not valid.
	OutcomeFail Outcome = "Fail"
)

// AdminPolicyBasedExternalRouteStatus is what ovnkube made of the spec.
type AdminPolicyBasedExternalRouteStatus struct {
	// status says in a word what the conditions say: "Success" where the policy is
	// in force, "Fail" where it is not or where a part of it is not valid.
	// +optional
	Status Outcome `json:"status,omitempty"`
	// messages are the gateways in force and what there is to say about the others.
	// +optional
	// +listType=atomic
	Messages []string `json:"messages,omitempty"`
	// lastTransitionTime is when status or messages changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// conditions say whether the policy is in force and what is wrong with it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// hops are the gateways of this policy that can be used.
	// +optional
	// +listType=atomic
	Hops []HopStatus `json:"hops,omitempty"`
	// namespaces is how many namespaces the policy selects.
	// +optional
	Namespaces int32 `json:"namespaces"`
	// pods is how many pods of them are sent through the gateways.
	// +optional
	Pods int32 `json:"pods"`
}

// HopStatus is a gateway as it is in force.
type HopStatus struct {
	// ip is the address of the gateway.
	IP string `json:"ip"`
	// bfdEnabled tells whether it is watched by BFD.
	// +optional
	BFDEnabled bool `json:"bfdEnabled,omitempty"`
	// skipHostSNAT tells whether it leaves pods their own source address.
	// +optional
	SkipHostSNAT bool `json:"skipHostSNAT,omitempty"`
	// pod is the "namespace/name" of the gateway pod of a dynamic hop.
	// +optional
	Pod string `json:"pod,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// AdminPolicyBasedExternalRouteList is a list of AdminPolicyBasedExternalRoutes.
type AdminPolicyBasedExternalRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdminPolicyBasedExternalRoute `json:"items"`
}
