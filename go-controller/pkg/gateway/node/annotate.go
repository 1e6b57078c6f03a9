package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// internalAddrs returns what the Node object says the node's addresses are.
func internalAddrs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// annotate publishes what the master plans the node's part of the network from.
func (g *Gateway) annotate(ctx context.Context, n *corev1.Node, node topology.Node, system map[string]string, a attached) error {
	hosts, err := hostAddresses(slices.Concat(g.MasqueradeSubnets, g.ClusterSubnets))
	if err != nil {
		return err
	}
	values := map[string]*string{
		kube.AnnotationChassisID:     kube.Value(system[idSystem]),
		kube.AnnotationPrimaryIfAddr: kube.Value(kube.FormatPrimaryIfAddr(a.primary)),
		kube.AnnotationHostAddresses: kube.Value(kube.FormatHostAddresses(hosts)),
		kube.AnnotationL3Gateway: kube.Value(kube.FormatL3Gateway(topology.Gateway{
			Mode: g.Mode, InterfaceID: topology.ExternalInterface(a.bridge, g.Node), MAC: a.mac, Addrs: a.primary,
			NextHops: gateway.NextHops(a.host, g.Families, g.NextHops), NodePort: g.NodePort, VLAN: g.VLAN,
		})),
	}
	if len(node.Subnets) > 0 {
		values[kube.AnnotationManagementMAC] = kube.Value(gateway.ManagementPort(node.Subnets, g.MTU).MAC)
	}
	return kube.PatchNode(ctx, g.Kube, n, kube.Metadata{Annotations: values})
}

// hostAddresses reads the addresses of all links that are up.
func hostAddresses(inside []netip.Prefix) ([]netip.Prefix, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var all []gateway.LinkAddrs
	for _, l := range links {
		if l.Attrs().Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		one := gateway.LinkAddrs{Link: l.Attrs().Name}
		for _, a := range addrs {
			one.Addrs = append(one.Addrs, prefixOf(a.IPNet))
		}
		all = append(all, one)
	}
	return gateway.HostAddresses(all, inside), nil
}
