package kube

import (
	"encoding/json"
	"fmt"
)

// Annotations and labels on nodes and pods. They are a public interface.
const (
	AnnotationNodeSubnets      = "k8s.ovn.org/node-subnets"
	AnnotationChassisID        = "k8s.ovn.org/node-chassis-id"
	AnnotationL3Gateway        = "k8s.ovn.org/l3-gateway-config"
	AnnotationManagementMAC    = "k8s.ovn.org/node-mgmt-port-mac-address"
	AnnotationPrimaryIfAddr    = "k8s.ovn.org/node-primary-ifaddr"
	AnnotationHostAddresses    = "k8s.ovn.org/host-addresses"
	AnnotationGatewayLRPIfAddr = "k8s.ovn.org/node-gateway-router-lrp-ifaddr"
	// AnnotationGatewayMTU is "false" if the datapath cannot detect packets that are
	// too large, and absent otherwise.
	AnnotationGatewayMTU = "k8s.ovn.org/gateway-mtu-support"
	// AnnotationNetworkFailure is what keeps failing when the node connects itself to the cluster
	// network, and why, in one line. It is absent otherwise.
	AnnotationNetworkFailure = "k8s.ovn.org/node-network-failure"

	AnnotationPodNetworks = "k8s.ovn.org/pod-networks"

	// AnnotationEgressPending marks a pod that an EgressIP
	// selects, until its policies are in force: CNI ADD waits until it is removed. Its
	// value is the name of the EgressIP.
	AnnotationEgressPending = "k8s.ovn.org/egress-pending"
	// AnnotationEgressIPAddresses, on a node, lists the egress addresses that the
	// node has added to its links; they are not addresses of the host itself.
	AnnotationEgressIPAddresses = "k8s.ovn.org/egressip-addresses"
	// AnnotationEgressHandover, with the value "true" on a node, requests other nodes to
	// take over the egress addresses of the node, which is about to stop.
	AnnotationEgressHandover = "k8s.ovn.org/egress-handover"
	// TaintEgress, with the value TaintEgressDrain, requests the same as long as it
	// is on the node.
	TaintEgress      = "k8s.ovn.org/egress"
	TaintEgressDrain = "drain"

	// LabelEgressAssignable, if present, makes a node a candidate for EgressIP, whatever its value.
	LabelEgressAssignable = "k8s.ovn.org/egress-assignable"
	// LabelEgressServicePrefix followed by "<namespace>-<name>" is the label of the host of an EgressService.
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
