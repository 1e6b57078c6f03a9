package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Keys of a pod port's external_ids besides those shared with ovn-controller.
// A port that has IDSandbox is ours.
const (
	IDMAC     = "attached_mac"
	IDAddrs   = "ip_addresses"
	IDSandbox = "sandbox"
	IDNetns   = "netns"
	IDIfName  = "ifname"
	// IDStatic is set for a static pod: its absence from the API does not mean that it is
	// gone.
	IDStatic = "static"
)

// HostLink returns the name of the host's end of a sandbox's veth pair. It is deterministic
// and at most 15 characters long.
func HostLink(sandbox, ifName string) string {
	sum := sha256.Sum256([]byte(sandbox + "/" + ifName))
	return "ovn" + hex.EncodeToString(sum[:6])
}

// PortIDs returns the external_ids of a pod's port, without those shared with
// ovn-controller.
func PortIDs(r Request, network topology.PodNetwork) map[string]string {
	return map[string]string{
		IDMAC: network.MAC, IDAddrs: joinPrefixes(network.Addrs),
		IDSandbox: r.ContainerID, IDNetns: r.Netns, IDIfName: r.IfName,
	}
}

func joinPrefixes(prefixes []netip.Prefix) string {
	words := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, ",")
}
