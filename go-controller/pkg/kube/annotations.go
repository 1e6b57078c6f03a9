package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
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

// podNetwork is the JSON shape of one network in pod-networks. The singular
// fields repeat the only address of a single-stack pod for older readers.
type podNetwork struct {
	Addrs    []netip.Prefix `json:"ip_addresses"`
	MAC      string         `json:"mac_address"`
	Gateways []netip.Addr   `json:"gateway_ips,omitempty"`
	Addr     *netip.Prefix  `json:"ip_address,omitempty"`
	Gateway  *netip.Addr    `json:"gateway_ip,omitempty"`
}

// FormatPodNetwork encodes pod-networks.
func FormatPodNetwork(p topology.PodNetwork) string {
	w := podNetwork{Addrs: p.Addrs, MAC: p.MAC, Gateways: p.Gateways}
	if len(p.Addrs) == 1 {
		w.Addr = &p.Addrs[0]
		if len(p.Gateways) == 1 {
			w.Gateway = &p.Gateways[0]
		}
	}
	return mustJSON(map[string]podNetwork{defaultNetwork: w})
}

// PodNetwork decodes pod-networks. It returns false where the pod has no such
// annotation, and an error that names pod and value where it does not parse.
func PodNetwork(p *corev1.Pod) (topology.PodNetwork, bool, error) {
	value, ok := p.Annotations[AnnotationPodNetworks]
	if !ok {
		return topology.PodNetwork{}, false, nil
	}
	var networks map[string]podNetwork
	if err := json.Unmarshal([]byte(value), &networks); err != nil {
		return topology.PodNetwork{}, false, fmt.Errorf("parse annotation %s of pod %s, value %q: %w",
			AnnotationPodNetworks, PodKey(p), value, err)
	}
	w, ok := networks[defaultNetwork]
	if !ok {
		return topology.PodNetwork{}, false, fmt.Errorf("annotation %s of pod %s, value %q, has no %q network",
			AnnotationPodNetworks, PodKey(p), value, defaultNetwork)
	}
	if len(w.Addrs) == 0 && w.Addr != nil {
		w.Addrs = []netip.Prefix{*w.Addr}
	}
	if len(w.Gateways) == 0 && w.Gateway != nil {
		w.Gateways = []netip.Addr{*w.Gateway}
	}
	return topology.PodNetwork{MAC: w.MAC, Addrs: w.Addrs, Gateways: w.Gateways}, true, nil
}
