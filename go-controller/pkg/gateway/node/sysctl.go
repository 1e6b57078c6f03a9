package node

import (
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// hostSettings are the kernel parameters of the whole host that a node needs:
// it forwards for pods and tells nobody of shorter ways around it.
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

// ensureManagementSettings lets packets come in by the management port that the
// kernel would send another way.
func ensureManagementSettings() error {
	const port = topology.ManagementPort
	if err := link.SetLinkSysctl(topology.IPv4, port, "rp_filter", "2"); err != nil {
		return err
	}
	if link.HasIPv6() {
		if err := link.SetLinkSysctl(topology.IPv6, port, "accept_ra", "0"); err != nil {
			return err
		}
	}
	return ensureNoRedirects(port)
}

// ensureNoRedirects keeps ICMP redirects off a link: neighbours must not learn
// of ways that bypass the node, nor the node of ways that bypass OVN.
func ensureNoRedirects(name string) error {
	for _, parameter := range []string{"send_redirects", "accept_redirects"} {
		if err := link.SetLinkSysctl(topology.IPv4, name, parameter, "0"); err != nil {
			return err
		}
	}
	if !link.HasIPv6() {
		return nil
	}
	return link.SetLinkSysctl(topology.IPv6, name, "accept_redirects", "0")
}
