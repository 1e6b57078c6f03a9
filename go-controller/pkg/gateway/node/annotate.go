package node

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// internalAddrs returns the node's addresses according to the Node object.
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

// annotate publishes the data from which the master plans the node's part of the network.
func (g *Gateway) annotate(ctx context.Context, n *corev1.Node, node topology.Node, system map[string]string, a attachments) error {
	links, err := attachment.Addresses()
	if err != nil {
		return err
	}
	routed, err := withAdvertised(a.bridge, a.host)
	if err != nil {
		return err
	}
	noPktLenCheck, err := g.OVS.Lacks(ctx, "check_pkt_len")
	if err != nil {
		return err
	}
	inside := slices.Concat(g.MasqueradeSubnets, g.ClusterSubnets)
	if g.Foreign != nil {
		for _, a := range g.Foreign() {
			inside = append(inside, topology.HostPrefix(a))
		}
	}
	hosts := gateway.HostAddresses(links, inside)
	values := map[string]*string{
		kube.AnnotationChassisID:     kube.Value(system[idSystem]),
		kube.AnnotationPrimaryIfAddr: kube.Value(kube.FormatPrimaryIfAddr(a.primary)),
		kube.AnnotationHostAddresses: kube.Value(kube.FormatHostAddresses(hosts)),
		kube.AnnotationL3Gateway: kube.Value(kube.FormatL3Gateway(topology.Gateway{
			Mode: g.Mode, InterfaceID: topology.ExternalInterface(a.bridge, g.Node), MAC: a.mac, Addrs: a.primary,
			NextHops: gateway.NextHops(routed, g.Families, g.NextHops), NodePort: g.NodePort, VLAN: g.VLAN,
			External: g.external(node, a),
		})),
	}
	if values[kube.AnnotationGatewayMTU] = nil; noPktLenCheck {
		values[kube.AnnotationGatewayMTU] = kube.Value("false")
	}
	if len(node.Subnets) > 0 {
		values[kube.AnnotationManagementMAC] = kube.Value(gateway.ManagementPort(node.Subnets, g.MTU).MAC)
	}
	g.Decide(n.UID, values)
	return kube.PatchNode(ctx, g.Kube, n, kube.Metadata{Annotations: values, Unseen: &g.unseen})
}

// external returns the data that the node publishes about its second physical network. Even if that
// network currently fails, it is still the path to the gateways there.
func (g *Gateway) external(node topology.Node, a attachments) topology.ExternalAttachment {
	switch {
	case a.second != nil:
		return topology.ExternalAttachment{InterfaceID: topology.ExternalInterface(a.second.bridge, g.Node), MAC: a.second.mac, Addrs: a.second.primary}
	case a.missing != nil:
		return node.Gateway.External
	}
	return topology.ExternalAttachment{}
}

// publishFailure publishes what keeps failing, and why: the master reports it in a condition of the
// node. What an earlier process has published stays until a pass succeeds, or has failed for long enough
// to be published again.
func (g *Gateway) publishFailure(ctx context.Context, missing string, failed error) error {
	var value *string
	switch {
	case failed == nil:
		g.failing = time.Time{}
	case g.failing.IsZero():
		g.failing = time.Now()
	}
	if failed != nil {
		if time.Since(g.failing) < g.reportAfter {
			return nil
		}
		value = kube.Value(missing + ": " + strings.ReplaceAll(failed.Error(), "\n", "; "))
	}
	n, err := g.Written.Lister().Get(g.Node)
	if apierrors.IsNotFound(err) { // not registered yet
		return nil
	}
	if err != nil {
		return err
	}
	return kube.PatchNode(ctx, g.Kube, n, kube.Metadata{
		Annotations: map[string]*string{kube.AnnotationNetworkFailure: value}, Unseen: &g.unseen,
	})
}
