package node

import (
	"context"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// hostSettings returns the host-wide kernel parameters that a node needs:
// it forwards for pods and sends no ICMP redirects.
func (g *Gateway) hostSettings() map[string]string {
	settings := map[string]string{
		"net/ipv4/ip_forward":              "1",
		"net/ipv4/conf/all/send_redirects": "0",
	}
	for _, f := range g.Families {
		if f == topology.IPv6 {
			settings["net/ipv6/conf/all/forwarding"] = "1"
		}
	}
	return settings
}

// ensureManagementSettings makes the kernel accept packets on the management port that
// it would route through another link.
func (g *Gateway) ensureManagementSettings(ctx context.Context) error {
	const port = topology.ManagementPort
	settings := noRedirects(port)
	settings[link.SysctlName(topology.IPv4, port, "rp_filter")] = "2"
	if link.HasIPv6() {
		settings[link.SysctlName(topology.IPv6, port, "accept_ra")] = "0"
	}
	return g.Settings.Apply(ctx, gateway.Contributor+"-management", settings)
}

// noRedirects disables ICMP redirects on a link: neighbours must not learn of paths that
// bypass the node, nor the node of paths that bypass OVN.
func noRedirects(name string) map[string]string {
	settings := map[string]string{}
	for _, parameter := range []string{"send_redirects", "accept_redirects"} {
		settings[link.SysctlName(topology.IPv4, name, parameter)] = "0"
	}
	if link.HasIPv6() {
		settings[link.SysctlName(topology.IPv6, name, "accept_redirects")] = "0"
	}
	return settings
}
