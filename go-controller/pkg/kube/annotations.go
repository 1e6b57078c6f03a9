package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

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

// Node decodes what the annotations, labels and conditions of n say. What is
// not there yet is empty. The error names the first annotation that does not
// parse; everything else is decoded all the same.
func Node(n *corev1.Node) (topology.Node, error) {
	node := topology.Node{
		Name:          n.Name,
		Labels:        n.Labels,
		Ready:         isReady(n),
		Unschedulable: n.Spec.Unschedulable,
		Draining:      isDraining(n),
		Chassis:       n.Annotations[AnnotationChassisID],
		ManagementMAC: n.Annotations[AnnotationManagementMAC],

		EgressAssignable: has(n.Labels, LabelEgressAssignable),
		NoPacketLengths:  n.Annotations[AnnotationGatewayMTU] == "false",
	}
	var first error
	decode := func(name string, parse func(value string) error) {
		value, ok := n.Annotations[name]
		if !ok {
			return
		}
		if err := parse(value); err != nil && first == nil {
			first = fmt.Errorf("parse annotation %s of node %s, value %q: %w", name, n.Name, value, err)
		}
	}
	decode(AnnotationNodeSubnets, func(v string) (err error) {
		node.Subnets, err = parseNodeSubnets(v)
		return err
	})
	decode(AnnotationGatewayLRPIfAddr, func(v string) (err error) {
		node.Join, err = parseFamilies(v)
		return err
	})
	decode(AnnotationPrimaryIfAddr, func(v string) (err error) {
		node.Primary, err = parseFamilies(v)
		return err
	})
	decode(AnnotationHostAddresses, func(v string) error {
		return json.Unmarshal([]byte(v), &node.Host)
	})
	decode(AnnotationL3Gateway, func(v string) (err error) {
		node.Gateway, err = parseL3Gateway(v)
		return err
	})
	return node, first
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// isDraining tells whether a node is to hand over the egress addresses it has.
func isDraining(n *corev1.Node) bool {
	return n.Annotations[AnnotationEgressHandover] == "true" || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == TaintEgress && t.Value == TaintEgressDrain
	})
}

// mustJSON encodes values whose types cannot fail to encode.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode annotation: %v", err))
	}
	return string(b)
}

// FormatNodeSubnets encodes node-subnets: {"default":["10.244.1.0/24",...]}.
func FormatNodeSubnets(subnets []netip.Prefix) string {
	return mustJSON(map[string][]netip.Prefix{defaultNetwork: subnets})
}

// parseNodeSubnets also takes a single string instead of a list, as single
// stack clusters have written it.
func parseNodeSubnets(value string) ([]netip.Prefix, error) {
	var networks map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &networks); err != nil {
		return nil, err
	}
	raw, ok := networks[defaultNetwork]
	if !ok {
		return nil, fmt.Errorf("has no %q network", defaultNetwork)
	}
	var one netip.Prefix
	if json.Unmarshal(raw, &one) == nil {
		return []netip.Prefix{one}, nil
	}
	var subnets []netip.Prefix
	err := json.Unmarshal(raw, &subnets)
	return subnets, err
}

// families is the JSON shape of annotations with one value a family.
type families struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

func formatFamilies(prefixes []netip.Prefix) string {
	var f families
	if p, ok := topology.PrefixOf(topology.IPv4, prefixes); ok {
		f.IPv4 = p.String()
	}
	if p, ok := topology.PrefixOf(topology.IPv6, prefixes); ok {
		f.IPv6 = p.String()
	}
	return mustJSON(f)
}

func parseFamilies(value string) ([]netip.Prefix, error) {
	var f families
	if err := json.Unmarshal([]byte(value), &f); err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, s := range []string{f.IPv4, f.IPv6} {
		if s == "" {
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// FormatGatewayLRPIfAddr encodes the join addresses of a gateway router:
// {"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}.
func FormatGatewayLRPIfAddr(join []netip.Prefix) string { return formatFamilies(join) }

// FormatPrimaryIfAddr encodes node-primary-ifaddr: {"ipv4":"172.18.0.3/16",...}.
func FormatPrimaryIfAddr(primary []netip.Prefix) string { return formatFamilies(primary) }

// FormatHostAddresses encodes host-addresses: ["172.18.0.3/16",...].
func FormatHostAddresses(addrs []netip.Prefix) string {
	if addrs == nil {
		addrs = []netip.Prefix{}
	}
	return mustJSON(addrs)
}

// FormatEgressIPAddresses encodes egressip-addresses: ["10.10.10.5","fd10::5"].
func FormatEgressIPAddresses(addrs []netip.Addr) string { return mustJSON(addrs) }

// EgressIPAddresses decodes egressip-addresses; a node without has none.
func EgressIPAddresses(n *corev1.Node) ([]netip.Addr, error) {
	value, ok := n.Annotations[AnnotationEgressIPAddresses]
	if !ok {
		return nil, nil
	}
	var addrs []netip.Addr
	if err := json.Unmarshal([]byte(value), &addrs); err != nil {
		return nil, fmt.Errorf("parse annotation %s of node %s, value %q: %w", AnnotationEgressIPAddresses, n.Name, value, err)
	}
	return addrs, nil
}

// l3Gateway is the JSON shape of one network in l3-gateway-config.
type l3Gateway struct {
	Mode        string         `json:"mode"`
	InterfaceID string         `json:"interface-id,omitempty"`
	MAC         string         `json:"mac-address,omitempty"`
	Addrs       []netip.Prefix `json:"ip-addresses,omitempty"`
	NextHops    []netip.Addr   `json:"next-hops,omitempty"`
	NodePort    string         `json:"node-port-enable,omitempty"`
	VLAN        string         `json:"vlan-id,omitempty"`
}

// FormatL3Gateway encodes l3-gateway-config.
func FormatL3Gateway(g topology.Gateway) string {
	return mustJSON(map[string]l3Gateway{defaultNetwork: {
		Mode:        string(g.Mode),
		InterfaceID: g.InterfaceID,
		MAC:         g.MAC,
		Addrs:       g.Addrs,
		NextHops:    g.NextHops,
		NodePort:    strconv.FormatBool(g.NodePort),
		VLAN:        strconv.Itoa(g.VLAN),
	}})
}

func parseL3Gateway(value string) (topology.Gateway, error) {
	var networks map[string]l3Gateway
	if err := json.Unmarshal([]byte(value), &networks); err != nil {
		return topology.Gateway{}, err
	}
	w, ok := networks[defaultNetwork]
	if !ok {
		return topology.Gateway{}, fmt.Errorf("has no %q network", defaultNetwork)
	}
	g := topology.Gateway{
		Mode:        topology.GatewayMode(w.Mode),
		InterfaceID: w.InterfaceID,
		MAC:         w.MAC,
		Addrs:       w.Addrs,
		NextHops:    w.NextHops,
		NodePort:    w.NodePort == "true",
	}
	if w.VLAN != "" {
		vlan, err := strconv.Atoi(w.VLAN)
		if err != nil || vlan < 0 || vlan > 4095 {
			return topology.Gateway{}, fmt.Errorf("vlan-id %q is no VLAN number", w.VLAN)
		}
		g.VLAN = vlan
	}
	if g.Mode != topology.GatewayLocal && g.Mode != topology.GatewayShared {
		return topology.Gateway{}, fmt.Errorf("mode %q is neither local nor shared", w.Mode)
	}
	return g, nil
}

// SameNodeAddresses tells whether two states of a node have the same addresses, in
// the annotations that name any.
func SameNodeAddresses(a, b *corev1.Node) bool {
	for _, annotation := range []string{AnnotationPrimaryIfAddr, AnnotationHostAddresses, AnnotationL3Gateway} {
		if a.Annotations[annotation] != b.Annotations[annotation] {
			return false
		}
	}
	return true
}

// KnownNodes reads nodes as far as they are known: what cannot be read of one, for
// now or by a mistake of somebody's, is left out.
func KnownNodes(nodes []*corev1.Node) []topology.Node {
	known := make([]topology.Node, 0, len(nodes))
	for _, n := range nodes {
		node, err := Node(n)
		if err != nil {
			klog.V(2).InfoS("Node is taken as far as it is known", "node", n.Name, "err", err)
		}
		known = append(known, node)
	}
	return known
}
