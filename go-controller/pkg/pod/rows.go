package pod

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner feature of the rows planned here.
const Feature = "pod"

// Config is the part of the configuration that pods depend on.
type Config struct {
	// DisableSNATMultipleGWs translates each pod's addresses on the gateway
	// router of its node by rows of its own.
	DisableSNATMultipleGWs bool
}

// Pod is what the planner knows of a pod.
type Pod struct {
	Namespace, Name, UID string
	Network              topology.PodNetwork
	// Translated are the addresses that an EgressIP translates on the pod's own node.
	Translated []netip.Addr
}

// Owner is the owner of the rows of the pod with a key "namespace/name".
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Network returns what is to be announced to a pod with these addresses on a
// node with these subnets.
func Network(addrs, subnets []netip.Prefix) topology.PodNetwork {
	p := topology.PodNetwork{Addrs: addrs, MAC: macOf(addrs)}
	for _, addr := range addrs {
		if s, ok := topology.PrefixOf(topology.FamilyOf(addr.Addr()), subnets); ok {
			p.Gateways = append(p.Gateways, topology.RouterAddr(s))
		}
	}
	return p
}

// Check tells whether an announced network can be programmed.
func Check(n topology.PodNetwork) error {
	if mac, err := net.ParseMAC(n.MAC); err != nil || len(mac) != 6 {
		return fmt.Errorf("%q is not a MAC address", n.MAC)
	}
	return nil
}

// macOf returns the MAC address of a pod: the one that belongs to its IPv4
// address, or to its first where it has none.
func macOf(addrs []netip.Prefix) string {
	if p, ok := topology.PrefixOf(topology.IPv4, addrs); ok {
		return topology.MACOf(p.Addr())
	}
	return topology.MACOf(addrs[0].Addr())
}

// Rows plans the rows of a pod on a node: its logical port and, if that is how
// pods are translated, its translations on the node's gateway router.
func Rows(c Config, p Pod, n topology.Node) []nb.Row {
	name := topology.PodPort(p.Namespace, p.Name)
	var addresses strings.Builder
	addresses.WriteString(p.Network.MAC)
	for _, a := range p.Network.Addrs {
		addresses.WriteString(" " + a.Addr().String())
	}
	rows := []nb.Row{{
		ID:     name,
		Parent: nb.Parent{Table: nbdb.LogicalSwitchTable, Name: topology.NodeSwitch(n.Name)},
		Model: &nbdb.LogicalSwitchPort{
			Name:         name,
			Addresses:    []string{addresses.String()},
			PortSecurity: []string{addresses.String()},
			ExternalIDs:  map[string]string{"namespace": p.Namespace, "pod": "true"},
			Options: map[string]string{
				// The port is claimed on this node, by this incarnation of the pod.
				"requested-chassis": n.Name,
				"iface-id-ver":      p.UID,
			},
		},
	}}
	if !c.DisableSNATMultipleGWs || !n.HasGateway() {
		return rows
	}
	for _, a := range p.Network.Addrs {
		external, ok := topology.PrefixOf(topology.FamilyOf(a.Addr()), n.Gateway.Addrs)
		if !ok || slices.Contains(p.Translated, a.Addr()) {
			continue
		}
		rows = append(rows, nb.Row{
			ID:     a.Addr().String(),
			Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter(n.Name)},
			Model: &nbdb.NAT{
				Type:       nbdb.NATTypeSNAT,
				ExternalIP: external.Addr().String(),
				LogicalIP:  a.Addr().String(),
			},
		})
	}
	return rows
}

// Translated tells whether the rows of a pod have the translation of an address.
func Translated(rows []nb.Row, a netip.Addr) bool {
	return slices.ContainsFunc(rows, func(r nb.Row) bool {
		m, ok := r.Model.(*nbdb.NAT)
		return ok && m.LogicalIP == a.String()
	})
}

// Given returns the addresses in the rows of a pod, which are those it was given.
func Given(rows []nb.Row) []netip.Addr {
	var addrs []netip.Addr
	for _, r := range rows {
		port, ok := r.Model.(*nbdb.LogicalSwitchPort)
		if !ok || len(port.Addresses) == 0 {
			continue
		}
		for _, text := range strings.Fields(port.Addresses[0]) {
			if a, err := netip.ParseAddr(text); err == nil { // the first one is the MAC
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}
