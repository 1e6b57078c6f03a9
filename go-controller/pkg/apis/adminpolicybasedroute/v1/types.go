package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// The condition types of the status.
const (
	// ConditionReady is True if the selected pods use at least one hop, or would if there
	// were pods.
	ConditionReady = conditions.Ready
	// ConditionHopsValid is False if some hop of the spec cannot be used; the others are
	// in use.
	ConditionHopsValid = conditions.HopsValid
	// ConditionConflict is True if another policy decides about the options of a hop.
	ConditionConflict = conditions.Conflict
	// ConditionConflicting is the former name of ConditionConflict.
	//
	// Deprecated: read ConditionConflict; this one will be removed in the next version.
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

// AdminPolicyBasedExternalRoute routes the egress traffic of all pods in the selected
// namespaces through external gateways.
type AdminPolicyBasedExternalRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects namespaces and lists the gateways for their traffic.
	Spec AdminPolicyBasedExternalRouteSpec `json:"spec"`
	// status is written by ovnkube, which overwrites changes by others.
	// +optional
	Status AdminPolicyBasedExternalRouteStatus `json:"status,omitempty"`
}

// AdminPolicyBasedExternalRouteSpec is the desired behavior of an
// AdminPolicyBasedExternalRoute.
type AdminPolicyBasedExternalRouteSpec struct {
	// from selects the pods.
	From ExternalNetworkSource `json:"from"`
	// nextHops are the gateways; traffic is spread over all of them.
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

// HopOptions are the options of both static and dynamic hops.
type HopOptions struct {
	// bfdEnabled monitors the gateway with Bidirectional Forwarding Detection (BFD): it is
	// used only while its BFD session is up.
	// +optional
	BFDEnabled bool `json:"bfdEnabled,omitempty"`
	// bfd are the timers of that session. They default to OVN's.
	// +optional
	BFD *BFDTimers `json:"bfd,omitempty"`
	// skipHostSNAT makes traffic keep the pod's source address. This applies to a pod and
	// an IP family, not to a single hop: one hop with skipHostSNAT is enough.
	// +optional
	SkipHostSNAT bool `json:"skipHostSNAT,omitempty"`
}

// BFDTimers are the timers of a BFD session (RFC 5880).
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
	// multiplier is how many consecutive packets may be missed before the session is down.
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

// DynamicHop selects pods that are gateways. Only pods count that are running and ready
// and are not being deleted.
type DynamicHop struct {
	// podSelector selects the pods within the namespaces.
	PodSelector metav1.LabelSelector `json:"podSelector"`
	// namespaceSelector selects the namespaces the pods are in.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	// networkAttachmentName is the name of the attached network on which the pods
	// are gateways, "name" or "namespace/name", as in their annotation
	// k8s.v1.cni.cncf.io/network-status. If it is absent, the pods are on the host
	// network, and the addresses of their hosts are the gateways.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	NetworkAttachmentName string `json:"networkAttachmentName,omitempty"`

	HopOptions `json:",inline"`
}

// Outcome is the status of a policy in one word.
// +kubebuilder:validation:Enum=Success;Fail
type Outcome string

const (
	// OutcomeSuccess says that the whole policy is in force.
	OutcomeSuccess Outcome = "Success"
	// OutcomeFail says that the policy is not in force, or that a part of it is not valid.
	OutcomeFail Outcome = "Fail"
)

// AdminPolicyBasedExternalRouteStatus is the observed state of an
// AdminPolicyBasedExternalRoute.
type AdminPolicyBasedExternalRouteStatus struct {
	// status summarizes the conditions: "Success" if the policy is in force, "Fail" if it
	// is not, or if a part of it is not valid.
	// +optional
	Status Outcome `json:"status,omitempty"`
	// messages list the gateways in force, and the problems of the others.
	// +optional
	// +listType=atomic
	Messages []string `json:"messages,omitempty"`
	// lastTransitionTime is the time at which status or messages changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// conditions are Ready, HopsValid and Conflict, and Conflicting, which is deprecated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// hops are the gateways of this policy that can be used.
	// +optional
	// +listType=atomic
	Hops []HopStatus `json:"hops,omitempty"`
	// namespaces is the number of namespaces that the policy selects.
	// +optional
	Namespaces int32 `json:"namespaces"`
	// pods is the number of pods whose traffic is routed through the gateways.
	// +optional
	Pods int32 `json:"pods"`
}

// HopStatus is a gateway in force.
type HopStatus struct {
	// ip is the address of the gateway.
	IP string `json:"ip"`
	// bfdEnabled is true if BFD monitors the gateway.
	// +optional
	BFDEnabled bool `json:"bfdEnabled,omitempty"`
	// skipHostSNAT is true if traffic keeps the pod's source address.
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
