package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/sandbox"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// check verifies that an attachment is still as ADD created it: the pod's end with its
// addresses and routes, and the port with its flows.
func (s *Server) check(ctx context.Context, r cni.Request) error {
	who, err := cni.ParsePod(r.Args)
	if err != nil {
		return err
	}
	want, err := previous(r)
	if err != nil {
		return err
	}
	checkError := func(err error) error {
		return types.NewError(cni.CodeCheck, fmt.Sprintf("attachment of pod %s is not as it was made", who), err.Error())
	}
	if err := sandbox.Check(want); err != nil {
		return checkError(err)
	}
	ports, err := s.ovs.Ports(ctx, topology.IntegrationBridge)
	if err != nil {
		return err
	}
	name, ifaceID := cni.HostLink(r.ContainerID, r.IfName), topology.PodPort(who.Namespace, who.Name)
	i := slices.IndexFunc(ports, func(p ovs.Port) bool { return p.Name == name })
	switch {
	case i < 0:
		return checkError(fmt.Errorf("bridge %s has no port %s", topology.IntegrationBridge, name))
	case ports[i].ExternalIDs[ovs.IfaceID] != ifaceID:
		return checkError(fmt.Errorf("port %s is for %q, not for %s", name, ports[i].ExternalIDs[ovs.IfaceID], ifaceID))
	case ports[i].OFPort <= 0:
		return checkError(fmt.Errorf("ovs-vswitchd does not serve port %s: %s", name, ports[i].Error))
	case ports[i].ExternalIDs[ovs.Installed] != "true":
		return checkError(fmt.Errorf("ovn-controller has not installed the flows of port %s", name))
	}
	return nil
}

// previous returns the result of ADD, which the runtime passes in the request.
func previous(r cni.Request) (sandbox.Interface, error) {
	want := sandbox.Interface{Netns: r.Netns, Name: r.IfName}
	conf, err := cni.ParseConf(r.Config)
	if err != nil {
		return want, err
	}
	if conf.RawPrevResult == nil {
		return want, types.NewError(cni.CodeInvalid, "CHECK needs prevResult", "")
	}
	plugin := conf.PluginConf
	if err := version.ParsePrevResult(&plugin); err != nil {
		return want, types.NewError(cni.CodeDecode, "prevResult cannot be read", err.Error())
	}
	result, err := current.NewResultFromResult(plugin.PrevResult)
	if err != nil {
		return want, types.NewError(cni.CodeDecode, "prevResult cannot be read", err.Error())
	}
	for _, i := range result.Interfaces {
		if i.Name == r.IfName && i.Sandbox != "" {
			want.MAC = i.Mac
		}
	}
	for _, ip := range result.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			continue
		}
		bits, _ := ip.Address.Mask.Size()
		want.Addrs = append(want.Addrs, netip.PrefixFrom(addr.Unmap(), bits))
		if gw, ok := netip.AddrFromSlice(ip.Gateway); ok {
			want.Gateways = append(want.Gateways, gw.Unmap())
		}
	}
	return want, nil
}
