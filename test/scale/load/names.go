package load

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The ranges of the cluster.
var (
	PodRange     = netip.MustParsePrefix("10.128.0.0/14")
	ServiceRange = netip.MustParsePrefix("10.96.0.0/12")
	// NodeRange is the network of the nodes and of egress addresses.
	NodeRange = netip.MustParsePrefix("172.16.0.0/14")

	egressAddrs = netip.MustParseAddr("172.18.0.1")
	ingresses   = netip.MustParseAddr("5.0.0.1")
	gateways    = netip.MustParseAddr("172.16.254.1")
	nodeAddrs   = netip.MustParseAddr("172.16.0.10")
	joins       = netip.MustParseAddr("100.64.0.2")
)

// nth returns the address n after another one.
func nth(a netip.Addr, n int) netip.Addr {
	four := a.As4()
	var next [4]byte
	binary.BigEndian.PutUint32(next[:], binary.BigEndian.Uint32(four[:])+uint32(n))
	return netip.AddrFrom4(next)
}

// NodeName returns the name of a node.
func NodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// Node returns what the agent of a node publishes about it.
func Node(i int) topology.Node {
	name, primary := NodeName(i), netip.PrefixFrom(nth(nodeAddrs, i), NodeRange.Bits())
	mac := func(kind byte) string { return fmt.Sprintf("0a:5a:00:%02x:%02x:%02x", kind, i>>8, i&0xff) }
	return topology.Node{
		Name:          name,
		Chassis:       fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
		ManagementMAC: mac(1),
		Primary:       []netip.Prefix{primary},
		Host:          []netip.Prefix{primary},
		Gateway: topology.Gateway{
			Mode: topology.GatewayShared, InterfaceID: topology.ExternalInterface("breth0", name), MAC: mac(2),
			Addrs: []netip.Prefix{primary}, NextHops: []netip.Addr{netip.MustParseAddr("172.16.0.1")}, NodePort: true,
		},
	}
}

// The kinds of pods; each group of pods is in a namespace of its own, except for plain ones.
const (
	kindService = "service"
	kindIP      = "egressip"
	kindPolicy  = "policy"
	kindPlain   = "plain"
)

func group(kind string, i int) string { return fmt.Sprintf("%s-%05d", kind, i) }

// Spare is the group of each kind that nothing selects at first, for use by events.
const Spare = 99999

// SpareService, SpareIP, SparePolicy and Plain are namespaces of pods.
var (
	SpareService = group(kindService, Spare)
	SpareIP      = group(kindIP, Spare)
	SparePolicy  = group(kindPolicy, Spare)
	Plain        = kindPlain
)

// IPGroup returns the namespace of the pods of an EgressIP.
func IPGroup(i int) string { return group(kindIP, i) }

// The labels of nodes and namespaces by which objects select them.
const (
	labelServiceHost = "scale.test/service-host"
	// LabelGroup is on namespaces.
	LabelGroup = "scale.test/group"
)
