package pod

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner feature of the rows.
const Feature = "pod"

// optionUID is the option of a port that contains the UID of its pod.
const optionUID = "iface-id-ver"

// idStatic is the external id of the port of a static pod.
const idStatic = "static"

// Config is the part of the configuration that pods depend on.
type Config struct {
	// DisableSNATMultipleGWs translates each pod's addresses on the gateway
	// router of its node with individual rows.
	DisableSNATMultipleGWs bool
}

// Pod is the planner's input about a pod.
type Pod struct {
	Namespace, Name, UID string
	// Static says that the pod is a static pod, run by the kubelet without the API server.
	Static  bool
	Network topology.PodNetwork
}

// Owner returns the owner of the rows of the pod with a key "namespace/name".
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Network returns the network of a pod with the given addresses on a node with the given
// subnets, including the derived MAC address and gateways.
func Network(addrs, subnets []netip.Prefix) topology.PodNetwork {
	p := topology.PodNetwork{Addrs: addrs, MAC: macOf(addrs)}
	for _, addr := range addrs {
		if s, ok := topology.PrefixOf(topology.FamilyOf(addr.Addr()), subnets); ok {
			p.Gateways = append(p.Gateways, topology.RouterAddr(s))
		}
	}
	return p
}

// Rows plans the rows of a pod on a node: its logical port and, if pods
// are translated individually, its translations on the node's gateway router.
func Rows(c Config, p Pod, n topology.Node) []nb.Row {
	name := topology.PodPort(p.Namespace, p.Name)
	var addresses strings.Builder
	addresses.WriteString(p.Network.MAC)
	for _, a := range p.Network.Addrs {
		addresses.WriteString(" " + a.Addr().String())
	}
	port := &nbdb.LogicalSwitchPort{
		Name:         name,
		Addresses:    []string{addresses.String()},
		PortSecurity: []string{addresses.String()},
		ExternalIDs:  map[string]string{"namespace": p.Namespace, "pod": "true"},
		Options: map[string]string{
			// The port is claimed on this node, by this incarnation of the pod.
			"requested-chassis": n.Name,
			optionUID:           p.UID,
		},
	}
	if p.Static {
		port.ExternalIDs[idStatic] = "true"
	}
	rows := []nb.Row{{
		ID:     name,
		Parent: nb.Parent{Table: nbdb.LogicalSwitchTable, Name: topology.NodeSwitch(n.Name)},
		Model:  port,
	}}
	if !c.DisableSNATMultipleGWs || !n.HasGateway() {
		return rows
	}
	for _, a := range p.Network.Addrs {
		external, ok := topology.PrefixOf(topology.FamilyOf(a.Addr()), n.Gateway.Addrs)
		if !ok {
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
			Yields: true, // to the translation of an EgressIP
		})
	}
	return rows
}

// AddressesIn returns the addresses of the port in the rows of a pod. It returns false if
// there is no port, or if Rows cannot have planned it.
func AddressesIn(rows []nb.Row) (topology.PodAddresses, bool) {
	for _, r := range rows {
		port, ok := r.Model.(*nbdb.LogicalSwitchPort)
		if !ok || len(port.Addresses) != 1 {
			continue
		}
		given, ok := topology.ParsePodAddresses(port.Addresses[0])
		given.UID = port.Options[optionUID]
		return given, ok
	}
	return topology.PodAddresses{}, false
}

// Static reports whether the rows belong to a static pod, which may run while
// the API has no object for it.
func Static(rows []nb.Row) bool {
	return slices.ContainsFunc(rows, func(r nb.Row) bool {
		port, ok := r.Model.(*nbdb.LogicalSwitchPort)
		return ok && port.ExternalIDs[idStatic] == "true"
	})
}

// AddressesFor returns the addresses in the rows of a pod, or none if they belong to
// another pod of the same name. An empty UID matches every pod.
func AddressesFor(rows []nb.Row, uid string) []netip.Addr {
	given, ok := AddressesIn(rows)
	if !ok || uid != "" && given.UID != uid {
		return nil
	}
	return given.Addrs
}
