package cni

import (
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// SpecVersion is the version of the CNI specification in configuration files.
const SpecVersion = "1.0.0"

// Result returns the description of a pod's attachment: the two ends of its veth pair, its
// addresses with their gateways, and the default routes.
func Result(r Request, network topology.PodNetwork, hostMAC string, mtu int) *current.Result {
	out := &current.Result{
		CNIVersion: SpecVersion,
		Interfaces: []*current.Interface{
			{Name: HostLink(r.ContainerID, r.IfName), Mac: hostMAC, Mtu: mtu},
			{Name: r.IfName, Mac: network.MAC, Mtu: mtu, Sandbox: r.Netns},
		},
	}
	for _, p := range network.Addrs {
		ip := &current.IPConfig{Interface: current.Int(1), Address: *IPNet(p)}
		f := topology.FamilyOf(p.Addr())
		if gw, ok := topology.AddrOf(f, network.Gateways); ok {
			ip.Gateway = gw.AsSlice()
			out.Routes = append(out.Routes, &types.Route{Dst: *IPNet(DefaultRoute(f)), GW: gw.AsSlice()})
		}
		out.IPs = append(out.IPs, ip)
	}
	return out
}

// DefaultRoute returns 0.0.0.0/0 or ::/0.
func DefaultRoute(f topology.Family) netip.Prefix {
	if f == topology.IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// IPNet converts p to the form of package net.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
