package master

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Hosts returns the hosts known from Kubernetes only, by address: nodes that have not
// published their addresses yet, and API servers, whose name is empty. For nodes that have, the
// published addresses count: a cloud also lists egress addresses among the addresses of
// the machine that holds them.
func Hosts(nodes []*corev1.Node, known func(*corev1.Node) topology.Node, apiServers []netip.Addr) map[netip.Addr]string {
	hosts := map[netip.Addr]string{}
	for _, n := range nodes {
		if node := known(n); len(node.Primary)+len(node.Gateway.Addrs) > 0 {
			continue
		}
		for _, address := range n.Status.Addresses {
			if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
				continue
			}
			if a, err := netip.ParseAddr(address.Address); err == nil {
				if other, ok := hosts[a.Unmap()]; !ok || n.Name < other {
					hosts[a.Unmap()] = n.Name
				}
			}
		}
	}
	for _, a := range apiServers {
		if _, ok := hosts[a]; !ok {
			hosts[a] = ""
		}
	}
	return hosts
}
