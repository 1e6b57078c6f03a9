package pod

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner feature of the rows planned here.
const Feature = "pod"

// optionUID is the option of a port that has the UID of its pod.
const optionUID = "iface-id-ver"

// idStatic is the external id of the port of a static pod.
const idStatic = "static"

// Config is the part of the configuration that pods depend on.
type Config struct {
	// DisableSNATMultipleGWs translates each pod's addresses on the gateway
	// router of its node by rows of its own.
	DisableSNATMultipleGWs bool
}

// Pod is what the planner knows of a pod.
type Pod struct {
	Namespace, Name, UID string
	// Static says that the kubelet runs the pod by itself.
	Static  bool
	Network topology.PodNetwork
}

// Owner is the owner of the rows of the pod with a key "namespace/name".
func Owner(key string) nb.Owner { return nb.Owner{Feature: Feature, Object: key} }

// Network returns what a pod with these addresses has on a node with these subnets:
// its MAC address and its gateways follow from them.
func Network(addrs, subnets []netip.Prefix) topology.PodNetwork {
	p := topology.PodNetwork{Addrs: addrs, MAC: macOf(addrs)}
	for _, addr := range addrs {
		if s, ok := topology.PrefixOf(topology.FamilyOf(addr.Addr()), subnets); ok {
			p.Gateways = append(p.Gateways, topology.RouterAddr(s))
		}
	}
	return p
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
			Yields: true, // to that of an EgressIP
		})
	}
	return rows
}

// AddressesIn returns what the port in the rows of a pod gives it. It returns false where
// there is no port, or none that Rows can have planned.
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

// Static reports whether the rows of a pod are those of a static pod, which may run while the
// API does not have it.
func Static(rows []nb.Row) bool {
	return slices.ContainsFunc(rows, func(r nb.Row) bool {
		port, ok := r.Model.(*nbdb.LogicalSwitchPort)
		return ok && port.ExternalIDs[idStatic] == "true"
	})
}

// GivenTo returns the addresses in the rows of a pod; none where they are those of
// another pod of its name. An empty UID stands for all of them.
func GivenTo(rows []nb.Row, uid string) []netip.Addr {
	given, ok := AddressesIn(rows)
	if !ok || uid != "" && given.UID != uid {
		return nil
	}
	return given.Addrs
}
