package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Limits for the values of node annotations. Values beyond them are not decoded.
const (
	maxValue       = 4 << 10  // bytes of a value
	maxList        = 64 << 10 // bytes of a value that lists addresses
	maxHostAddrs   = 1024
	maxUplinkAddrs = 32      // addresses, and next hops, in l3-gateway-config
	maxShown       = 80      // bytes of a value in a message
	maxFailure     = 1 << 10 // bytes of a failure that a node reports
	maxName        = 253
	maxVLAN        = 4094
)

// MaxEgressAddresses is the maximum number of egress addresses on a node's secondary networks: as many
// as its annotation may list.
const MaxEgressAddresses = 4096

// The shortest prefixes that a network of a host can have, and the longest of pod
// subnets: one has at least a router, a management port and some pods.
var (
	minHostBits   = map[topology.Family]int{topology.IPv4: 8, topology.IPv6: 16}
	maxSubnetBits = map[topology.Family]int{topology.IPv4: 29, topology.IPv6: 125}
)

// AnnotationError is the error of an invalid annotation of a node.
type AnnotationError struct {
	Node, Annotation, Value string
	Err                     error
}

// Error names annotation, node, value and reason; the value is shortened.
func (e *AnnotationError) Error() string {
	return fmt.Sprintf("annotation %s of node %s, value %s: %v", e.Annotation, e.Node, Shorten(e.Value), e.Err)
}

// Unwrap returns the reason.
func (e *AnnotationError) Unwrap() error { return e.Err }

// Shorten quotes and shortens a value from an untrusted source for a message.
func Shorten(value string) string {
	if len(value) <= maxShown {
		return strconv.Quote(value)
	}
	return fmt.Sprintf("%q... (%d bytes)", value[:maxShown], len(value))
}

// nodeAnnotation describes how an annotation of a node is decoded.
type nodeAnnotation struct {
	name   string
	limit  int
	decode func(value string, n *topology.Node) error
}

var nodeAnnotations = []nodeAnnotation{
	{AnnotationNodeSubnets, maxValue, func(v string, n *topology.Node) (err error) {
		n.Subnets, err = parseNodeSubnets(v)
		return err
	}},
	{AnnotationGatewayLRPIfAddr, maxValue, func(v string, n *topology.Node) (err error) {
		n.Join, err = parseFamilies(v)
		return err
	}},
	{AnnotationPrimaryIfAddr, maxValue, func(v string, n *topology.Node) (err error) {
		n.Primary, err = parseFamilies(v)
		return err
	}},
	{AnnotationHostAddresses, maxList, func(v string, n *topology.Node) (err error) {
		n.Host, err = parseHostAddresses(v)
		return err
	}},
	{AnnotationL3Gateway, maxValue, func(v string, n *topology.Node) (err error) {
		n.Gateway, err = parseL3Gateway(v)
		return err
	}},
	{AnnotationChassisID, maxName, func(v string, n *topology.Node) error {
		n.Chassis = v
		return checkChassis(v)
	}},
	{AnnotationManagementMAC, maxValue, func(v string, n *topology.Node) error {
		n.ManagementMAC = v
		return checkMAC(v)
	}},
	{AnnotationGatewayMTU, maxValue, func(v string, n *topology.Node) error {
		n.NoPacketLengths = v == "false"
		if v != "false" && v != "true" {
			return errors.New(`is neither "true" nor "false"`)
		}
		return nil
	}},
}

// NodeAnnotations returns the names of the annotations that Node decodes.
func NodeAnnotations() []string {
	names := make([]string, 0, len(nodeAnnotations))
	for _, a := range nodeAnnotations {
		names = append(names, a.name)
	}
	return names
}

// Unpublish returns the change that removes from a node all annotations and labels that ovnkube
// writes there, and none that users write.
func Unpublish(n *corev1.Node) Metadata {
	m := Metadata{Annotations: map[string]*string{AnnotationEgressIPAddresses: nil, AnnotationEgressHandover: nil, AnnotationNetworkFailure: nil}, Labels: map[string]*string{}}
	for _, name := range NodeAnnotations() {
		m.Annotations[name] = nil
	}
	for name := range n.Labels {
		if strings.HasPrefix(name, LabelEgressServicePrefix) {
			m.Labels[name] = nil
		}
	}
	return m
}

// DecodeNodeAnnotation decodes one of NodeAnnotations into n, whose name is set.
// If the value is not valid, n is not changed.
func DecodeNodeAnnotation(name, value string, n *topology.Node) error {
	i := slices.IndexFunc(nodeAnnotations, func(a nodeAnnotation) bool { return a.name == name })
	if i < 0 {
		return fmt.Errorf("nothing decodes annotation %s", name)
	}
	a, decoded := nodeAnnotations[i], *n
	err := errors.New("is empty")
	switch {
	case len(value) > a.limit:
		err = fmt.Errorf("has more than %d bytes", a.limit)
	case value != "":
		err = a.decode(value, &decoded)
	}
	if err != nil {
		return &AnnotationError{Node: n.Name, Annotation: name, Value: value, Err: err}
	}
	*n = decoded
	return nil
}

// Node decodes the annotations, labels and conditions of n. Missing or invalid
// values are left empty. The error names the first invalid annotation;
// everything else is decoded nevertheless. A value that is valid in itself need
// not be true: package nodeinfo decides which values are used.
func Node(n *corev1.Node) (topology.Node, error) {
	node := topology.Node{
		Name:          n.Name,
		Labels:        n.Labels,
		Ready:         NodeReady(n),
		ReadySince:    readySince(n),
		ReadyUnknown:  NodeReadyUnknown(n),
		Unschedulable: n.Spec.Unschedulable,
		Draining:      isDraining(n),

		EgressAssignable: has(n.Labels, LabelEgressAssignable),
	}
	var first error
	for _, a := range nodeAnnotations {
		if value, ok := n.Annotations[a.name]; ok {
			if err := DecodeNodeAnnotation(a.name, value, &node); err != nil && first == nil {
				first = err
			}
		}
	}
	return node, first
}

// NodeReady reports whether the Ready condition of a node is True, or Unknown although its
// kubelet has reported since it became Unknown. A kubelet whose report coincides with
// kube-controller-manager's update only sends what has changed since its last report, which is the time
// of its heartbeat and not its readiness; it may take minutes until it notices.
func NodeReady(n *corev1.Node) bool {
	return readyIs(n, corev1.ConditionTrue) || reportedSinceUnknown(n)
}

// NodeReadyUnknown reports whether the Ready condition of a node is Unknown: Kubernetes has not
// received reports of its kubelet for a while.
func NodeReadyUnknown(n *corev1.Node) bool {
	return readyIs(n, corev1.ConditionUnknown) && !reportedSinceUnknown(n)
}

// maxHeartbeatLag limits how much later than the update a coinciding heartbeat may be. Kubelets report
// every ten seconds. A kubelet whose clock is ahead by more than the time that Kubernetes waits for it
// must not count as ready when its node is dead.
const maxHeartbeatLag = 10 * time.Second

// reportedSinceUnknown reports whether the Ready condition of a node is Unknown, and its heartbeat is not
// older than the transition. Times in conditions are whole seconds.
func reportedSinceUnknown(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		later := c.LastHeartbeatTime.Sub(c.LastTransitionTime.Time)
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown && !c.LastHeartbeatTime.IsZero() && later >= 0 && later <= maxHeartbeatLag
	})
}

// readySince returns the last transition time of the Ready condition of a node.
func readySince(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func readyIs(n *corev1.Node, status corev1.ConditionStatus) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == status
		}
	}
	return false
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// isDraining reports whether a node is to hand over its egress addresses.
func isDraining(n *corev1.Node) bool {
	return n.Annotations[AnnotationEgressHandover] == "true" || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == TaintEgress && t.Value == TaintEgressDrain
	})
}

// NetworkFailure returns what a node reports that it fails to do for its network, and why, in one
// line of at most 1024 bytes; "" if nothing fails.
func NetworkFailure(n *corev1.Node) string {
	text := strings.Join(strings.Fields(n.Annotations[AnnotationNetworkFailure]), " ")
	if len(text) > maxFailure {
		return strings.ToValidUTF8(text[:maxFailure], "")
	}
	return text
}

// checkAddr rejects addresses that a host cannot have on a network.
func checkAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("has an empty address")
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone", a)
	case a.Is4In6():
		return fmt.Errorf("%s is an IPv4 address written as IPv6", a)
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is not an address of a host", a)
	}
	return nil
}

// checkHostPrefix rejects prefixes that a host's link cannot have as its address and network.
func checkHostPrefix(p netip.Prefix) error {
	if !p.IsValid() {
		return errors.New("has an empty address")
	}
	if err := checkAddr(p.Addr()); err != nil {
		return err
	}
	if p.Addr().IsLinkLocalUnicast() {
		return fmt.Errorf("%s is link-local", p)
	}
	if least := minHostBits[topology.FamilyOf(p.Addr())]; p.Bits() < least {
		return fmt.Errorf("%s is in no network of a host: the prefix is shorter than /%d", p, least)
	}
	return nil
}

// parseNodeSubnets also accepts a single string instead of a list, as written by single-stack
// clusters.
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
	subnets := []netip.Prefix{one}
	if json.Unmarshal(raw, &one) == nil {
		subnets[0] = one
	} else if err := json.Unmarshal(raw, &subnets); err != nil {
		return nil, err
	}
	if len(subnets) == 0 {
		return nil, errors.New("has no subnet")
	}
	seen := map[topology.Family]bool{}
	for _, p := range subnets {
		if err := checkSubnet(p, seen); err != nil {
			return nil, err
		}
	}
	return subnets, nil
}

func checkSubnet(p netip.Prefix, seen map[topology.Family]bool) error {
	if !p.IsValid() || p.Addr().Is4In6() {
		return fmt.Errorf("%s is not a subnet", p)
	}
	f := topology.FamilyOf(p.Addr())
	switch most := maxSubnetBits[f]; {
	case p != p.Masked():
		return fmt.Errorf("%s is not a subnet: it has bits beyond its length", p)
	case p.Addr().IsUnspecified(), p.Addr().IsLoopback(), p.Addr().IsMulticast():
		return fmt.Errorf("%s is not a subnet of pods", p)
	case p.Bits() > most:
		return fmt.Errorf("%s has no room for pods: the prefix is longer than /%d", p, most)
	case seen[f]:
		return fmt.Errorf("%s is a second subnet of its family", p)
	}
	seen[f] = true
	return nil
}

func parseFamilies(value string) ([]netip.Prefix, error) {
	var f families
	if err := json.Unmarshal([]byte(value), &f); err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, entry := range []struct {
		family topology.Family
		text   string
	}{{topology.IPv4, f.IPv4}, {topology.IPv6, f.IPv6}} {
		if entry.text == "" {
			continue
		}
		p, err := netip.ParsePrefix(entry.text)
		if err != nil {
			return nil, err
		}
		if err := checkHostPrefix(p); err != nil {
			return nil, err
		}
		if topology.FamilyOf(p.Addr()) != entry.family {
			return nil, fmt.Errorf("%s is not an %s address", p, entry.family)
		}
		prefixes = append(prefixes, p)
	}
	if len(prefixes) == 0 {
		return nil, errors.New("has no address")
	}
	return prefixes, nil
}

func parseHostAddresses(value string) ([]netip.Prefix, error) {
	var addrs []netip.Prefix
	if err := json.Unmarshal([]byte(value), &addrs); err != nil {
		return nil, err
	}
	if len(addrs) > maxHostAddrs {
		return nil, fmt.Errorf("has %d addresses, more than %d", len(addrs), maxHostAddrs)
	}
	for _, p := range addrs {
		if err := checkHostPrefix(p); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// EgressIPAddresses decodes egressip-addresses; none if the node does not have the annotation.
func EgressIPAddresses(n *corev1.Node) ([]netip.Addr, error) {
	value, ok := n.Annotations[AnnotationEgressIPAddresses]
	if !ok {
		return nil, nil
	}
	addrs, err := parseEgressIPAddresses(value)
	if err != nil {
		return nil, &AnnotationError{Node: n.Name, Annotation: AnnotationEgressIPAddresses, Value: value, Err: err}
	}
	return addrs, nil
}

func parseEgressIPAddresses(value string) ([]netip.Addr, error) {
	if len(value) > MaxEgressAddresses*len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\",") {
		return nil, fmt.Errorf("has %d bytes", len(value))
	}
	var addrs []netip.Addr
	if err := json.Unmarshal([]byte(value), &addrs); err != nil {
		return nil, err
	}
	if len(addrs) > MaxEgressAddresses {
		return nil, fmt.Errorf("has %d addresses, more than %d", len(addrs), MaxEgressAddresses)
	}
	for _, a := range addrs {
		if err := checkAddr(a); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// parseL3Gateway decodes l3-gateway-config.
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
		External:    topology.ExternalAttachment{InterfaceID: w.ExternalInterfaceID, MAC: w.ExternalMAC, Addrs: w.ExternalAddrs},
	}
	if w.VLAN != "" {
		vlan, err := strconv.Atoi(w.VLAN)
		if err != nil || vlan < 0 || vlan > maxVLAN {
			return topology.Gateway{}, fmt.Errorf("vlan-id %s is not a VLAN number", Shorten(w.VLAN))
		}
		g.VLAN = vlan
	}
	if g.Mode != topology.GatewayLocal && g.Mode != topology.GatewayShared {
		return topology.Gateway{}, fmt.Errorf("mode %s is neither local nor shared", Shorten(w.Mode))
	}
	e := g.External
	if err := errors.Join(checkUplink("", g.InterfaceID, g.MAC, g.Addrs), checkNextHops(g.NextHops),
		checkUplink("exgw-", e.InterfaceID, e.MAC, e.Addrs)); err != nil {
		return topology.Gateway{}, err
	}
	if all := e.InterfaceID != "" || e.MAC != "" || len(e.Addrs) > 0; all != e.Known() {
		return topology.Gateway{}, errors.New("has some of exgw-interface-id, exgw-mac-address and exgw-ip-addresses, not all")
	}
	return g, nil
}

// checkUplink checks a gateway's data about an external network, in the keys that start
// with prefix.
func checkUplink(prefix, id, mac string, addrs []netip.Prefix) error {
	if bridge, _, _ := strings.Cut(id, "_"); id != "" && (!isName(id) || bridge == "") {
		return fmt.Errorf("%sinterface-id %s is not a name of a port", prefix, Shorten(id))
	}
	if mac != "" {
		if err := checkMAC(mac); err != nil {
			return fmt.Errorf("%smac-address: %w", prefix, err)
		}
	}
	if len(addrs) > maxUplinkAddrs {
		return fmt.Errorf("has %d %sip-addresses, more than %d", len(addrs), prefix, maxUplinkAddrs)
	}
	for _, p := range addrs {
		if err := checkHostPrefix(p); err != nil {
			return fmt.Errorf("%sip-addresses: %w", prefix, err)
		}
	}
	return nil
}

func checkNextHops(hops []netip.Addr) error {
	if len(hops) > maxUplinkAddrs {
		return fmt.Errorf("has %d next-hops, more than %d", len(hops), maxUplinkAddrs)
	}
	for _, a := range hops {
		if err := checkAddr(a); err != nil {
			return fmt.Errorf("next-hops: %w", err)
		}
	}
	return nil
}

// isName reports whether a name is valid in OVN.
func isName(name string) bool {
	return name != "" && len(name) <= 2*maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("/\\,\"'", r)
	})
}

func checkChassis(id string) error {
	if !isName(id) {
		return errors.New("is not a system-id: it has other characters than letters, digits and punctuation")
	}
	return nil
}

// checkMAC accepts MAC addresses that a single interface can have.
func checkMAC(text string) error {
	mac, err := net.ParseMAC(text)
	switch {
	case err != nil || len(mac) != 6:
		return fmt.Errorf("%s is not a MAC address", Shorten(text))
	case mac[0]&1 != 0, slices.Max(mac) == 0:
		return fmt.Errorf("%s is not a MAC address of an interface", text)
	}
	return nil
}

// SameNodeAddresses reports whether two states of a node have the same addresses, in
// the annotations that name any.
func SameNodeAddresses(a, b *corev1.Node) bool {
	for _, annotation := range []string{AnnotationPrimaryIfAddr, AnnotationHostAddresses, AnnotationL3Gateway} {
		if a.Annotations[annotation] != b.Annotations[annotation] {
			return false
		}
	}
	return true
}

// KnownNodes decodes nodes as far as possible: parts that cannot be decoded are
// left out.
func KnownNodes(nodes []*corev1.Node) []topology.Node {
	known := make([]topology.Node, 0, len(nodes))
	for _, n := range nodes {
		node, err := Node(n)
		if err != nil {
			klog.V(2).InfoS("Ignoring invalid annotations of a node", "node", n.Name, "err", err)
		}
		known = append(known, node)
	}
	return known
}
