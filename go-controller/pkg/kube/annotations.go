package kube

import (
	"encoding/json"
	"fmt"
)

// Annotations and labels on nodes and pods. They are public interface.
const (
	AnnotationNodeSubnets      = "k8s.ovn.org/node-subnets"
	AnnotationChassisID        = "k8s.ovn.org/node-chassis-id"
	AnnotationL3Gateway        = "k8s.ovn.org/l3-gateway-config"
	AnnotationManagementMAC    = "k8s.ovn.org/node-mgmt-port-mac-address"
	AnnotationPrimaryIfAddr    = "k8s.ovn.org/node-primary-ifaddr"
	AnnotationHostAddresses    = "k8s.ovn.org/host-addresses"
	AnnotationGatewayLRPIfAddr = "k8s.ovn.org/node-gateway-router-lrp-ifaddr"
	// AnnotationGatewayMTU is "false" where the datapath cannot tell packets that are
	// too large, and is not there otherwise.
	AnnotationGatewayMTU  = "k8s.ovn.org/gateway-mtu-support"
	AnnotationPodNetworks = "k8s.ovn.org/pod-networks"

	// AnnotationEgressPending, on a pod, is the mark of one that an EgressIP has
	// chosen before its policies are in force: CNI ADD waits until it is gone. Its
	// value is the name of the EgressIP.
	AnnotationEgressPending = "k8s.ovn.org/egress-pending"
	// AnnotationEgressIPAddresses, on a node, lists the egress addresses that the
	// node has put on its links; they are none of the host's own.
	AnnotationEgressIPAddresses = "k8s.ovn.org/egressip-addresses"
	// AnnotationEgressHandover, with the value "true" on a node, asks others to
	// take over the egress addresses of the node, which is about to stop.
	AnnotationEgressHandover = "k8s.ovn.org/egress-handover"
	// TaintEgress, with the value TaintEgressDrain, does the same for as long as it
	// is on the node.
	TaintEgress      = "k8s.ovn.org/egress"
	TaintEgressDrain = "drain"

	// LabelEgressAssignable makes a node a candidate for EgressIP by its presence.
	LabelEgressAssignable = "k8s.ovn.org/egress-assignable"
	// LabelEgressServicePrefix and "<namespace>-<name>" label the host of an EgressService.
	LabelEgressServicePrefix = "egress-service.k8s.ovn.org/"
)

// defaultNetwork is the key of the cluster's own network in annotations that
// map network names to values.
const defaultNetwork = "default"

// mustJSON encodes values whose types cannot fail to encode.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode annotation: %v", err))
	}
	return string(b)
}
