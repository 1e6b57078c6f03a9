package fuzzed

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The ranges of the cluster.
var (
	Cluster    = Prefixes("10.244.0.0/16", "fd00:10:244::/48")
	Services   = Prefixes("10.96.0.0/16", "fd00:10:96::/112")
	Join       = Prefixes("100.64.0.0/16", "fd98::/64")
	Masquerade = Prefixes("169.254.169.0/29", "fd69::/125")
)

// Prefixes parses prefixes.
func Prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// Source turns a fuzzer's bytes into choices. Once they are used up, every choice is the first one.
type Source struct{ data []byte }

// New returns a Source of data.
func New(data []byte) *Source { return &Source{data} }

// Pick returns a number below n.
func (s *Source) Pick(n int) int {
	if len(s.data) == 0 || n <= 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}

// Some returns true once in n times.
func (s *Source) Some(n int) bool { return s.Pick(n) == 1 }

// One returns one element of list.
func One[T any](s *Source, list ...T) T { return list[s.Pick(len(list))] }

// Many returns up to n elements of list, possibly with duplicates.
func Many[T any](s *Source, n int, list ...T) []T {
	var out []T
	for range s.Pick(n + 1) {
		out = append(out, One(s, list...))
	}
	return out
}

// Textual addresses: those of pods, Services, nodes and external hosts, and some that nobody should have.
var texts = []string{
	"10.244.1.5", "fd00:10:244:1::5", "10.244.1.6", "10.244.2.5", "fd00:10:244:2::5", "10.244.1.1", "10.244.1.2",
	"172.18.0.33", "172.18.0.34", "fc00:f853:ccd:e793::33", "172.18.0.1", "172.18.0.2", "fc00:f853:ccd:e793::2", "10.10.10.100", "fd10::100",
	"10.96.0.10", "fd00:10:96::a", "100.64.0.2", "169.254.169.2", "5.5.5.5", "5555::5", "127.0.0.1", "::1",
	"", "0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "fe80::1", "fe80::1%eth0", "169.254.1.1", "::ffff:10.244.1.5",
	"10.244.1.5/24", "010.244.1.5", "10.244.1.0", "10.244.1.255", "nowhere",
}

// Text returns a string where an address is expected.
func (s *Source) Text() string { return One(s, texts...) }

// Addr returns an address as decoders return them: valid, unmapped, without a zone.
func (s *Source) Addr() netip.Addr {
	if a, err := netip.ParseAddr(s.Text()); err == nil {
		return a.Unmap().WithZone("")
	}
	return netip.MustParseAddr("10.244.1.5")
}

// Addrs returns up to n such addresses.
func (s *Source) Addrs(n int) []netip.Addr {
	var out []netip.Addr
	for range s.Pick(n + 1) {
		out = append(out, s.Addr())
	}
	return out
}

// Labels returns labels.
func (s *Source) Labels() map[string]string {
	return One(s, nil, map[string]string{"app": "a"}, map[string]string{"app": "b", "zone": "z"}, map[string]string{"zone": "z"})
}

// Selector returns a label selector, possibly one that the API would refuse.
func (s *Source) Selector() metav1.LabelSelector {
	switch s.Pick(5) {
	case 1:
		return metav1.LabelSelector{MatchLabels: s.Labels()}
	case 2:
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: One(s, "app", "zone", "", "a b"), Operator: One(s, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpExists, "Near"), Values: Many(s, 2, "a", "z", "-"),
		}}}
	case 3:
		return metav1.LabelSelector{MatchLabels: map[string]string{"a b": "-"}}
	}
	return metav1.LabelSelector{}
}

// Created returns an object's creation time.
func (s *Source) Created() metav1.Time { return metav1.Time{Time: time.Unix(int64(s.Pick(3)), 0)} }

// Values of annotations that none of our agents writes.
var unusualValues = []string{
	"", "null", "{}", "[]", `""`, "{", `{"default":null}`, `{"default":[]}`, `{"default":[""]}`, `{"default":""}`,
	`{"default":["10.244.77.0/32"]}`, `{"default":["0.0.0.0/0","::/0"]}`, `{"default":["10.244.1.0/24","10.244.2.0/24"]}`,
	`{"default":["fd00:10:244:1::/64"]}`, `{"default":["::ffff:10.244.1.0/120"]}`, `{"default":["10.244.1.7/24"]}`, `{"default":["10.244.0.0/31"]}`,
	`{"default":["fd00:10:244:1::/127"]}`, `{"default":["fd00:10:244:1::/128","10.244.1.0/30"]}`, `{"default":["192.168.0.0/24"]}`,
	`{"ipv4":"","ipv6":""}`, `{"ipv4":"fd98::2/64","ipv6":"100.64.0.2/16"}`, `{"ipv4":"100.64.0.2/32"}`, `{"ipv4":"10.244.1.5/24"}`, `{"ipv4":"0.0.0.0/0"}`,
	`["10.244.1.5/24"]`, `["0.0.0.0/0","::/0"]`, `[""]`, `["172.18.0.33/16","10.10.10.100/24"]`, `["::ffff:172.18.0.2/112"]`,
	`{"default":{"mode":"shared"}}`, `{"default":{"mode":"local","interface-id":"x","mac-address":"x","ip-addresses":["10.244.1.5/24"],"next-hops":["10.244.1.5"]}}`,
	`{"default":{"mode":"shared","interface-id":"a\" || 1","mac-address":"02:42:ac:12:00:02","ip-addresses":["172.18.0.2/0"],"next-hops":["","::"],"vlan-id":"4095"}}`,
	`{"default":{"mode":"shared","interface-id":"breth0_n1","mac-address":"","ip-addresses":[""],"next-hops":["fe80::1%eth0"]}}`,
	"not a mac", "02:42:ac:12:00", "00:00:00:00:00:00:00:00", "false", "true", "chassis-1", "a b\n\"",
}

// NodeName returns the name of a node that may not exist.
func (s *Source) NodeName() string { return One(s, "n1", "n2", "n3", "ghost", "") }

// Nodes returns nodes n1, n2, ... as in the API.
func (s *Source) Nodes() []*corev1.Node {
	var nodes []*corev1.Node
	mode := One(s, topology.GatewayShared, topology.GatewayLocal)
	for i := range 1 + s.Pick(3) {
		nodes = append(nodes, s.node(i+1, mode))
	}
	return nodes
}

func (s *Source) node(i int, mode topology.GatewayMode) *corev1.Node {
	name := fmt.Sprintf("n%d", i)
	primary := Prefixes(fmt.Sprintf("172.18.0.%d/16", i+1), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+1))
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: s.Labels(), CreationTimestamp: s.Created(), Annotations: map[string]string{
			kube.AnnotationNodeSubnets:      kube.FormatNodeSubnets(Prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i))),
			kube.AnnotationGatewayLRPIfAddr: kube.FormatGatewayLRPIfAddr(Prefixes(fmt.Sprintf("100.64.0.%d/16", i+1), fmt.Sprintf("fd98::%d/64", i+1))),
			kube.AnnotationChassisID:        "chassis-" + name,
			kube.AnnotationManagementMAC:    fmt.Sprintf("0a:58:0a:f4:%02x:02", i),
			kube.AnnotationPrimaryIfAddr:    kube.FormatPrimaryIfAddr(primary),
			kube.AnnotationHostAddresses:    kube.FormatHostAddresses(append(primary, Prefixes(fmt.Sprintf("10.10.10.%d/24", i), fmt.Sprintf("fd10::%d/64", i))...)),
			kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{
				Mode: mode, InterfaceID: topology.ExternalInterface("breth0", name), MAC: fmt.Sprintf("02:42:ac:12:00:%02x", i+1),
				Addrs: primary, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("fc00:f853:ccd:e793::1")}, NodePort: true,
			}),
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: One(s, corev1.ConditionTrue, corev1.ConditionFalse)}}},
	}
	names := []string{kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr, kube.AnnotationChassisID, kube.AnnotationManagementMAC,
		kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses, kube.AnnotationL3Gateway, kube.AnnotationGatewayMTU}
	for range s.Pick(4) {
		if name := One(s, names...); s.Some(3) {
			delete(n.Annotations, name)
		} else {
			n.Annotations[name] = One(s, unusualValues...)
		}
	}
	if s.Some(2) {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[kube.LabelEgressAssignable] = ""
	}
	return n
}

// Known returns the nodes as planners see them.
func Known(nodes []*corev1.Node) []topology.Node { return kube.KnownNodes(nodes) }

// Shuffled returns a list in random order.
func Shuffled[T any](s *Source, list []T) []T {
	out := append([]T(nil), list...)
	for i := len(out) - 1; i > 0; i-- {
		j := s.Pick(i + 1)
		out[i], out[j] = out[j], out[i]
	}
	return out
}
