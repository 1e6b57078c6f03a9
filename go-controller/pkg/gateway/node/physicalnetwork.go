package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"

	bridgenode "github.com/ovnkube/ovnkube/go-controller/pkg/bridge/node"
)

// physicalNetwork is an external network of the node, with an uplink in a bridge that is
// connected to the gateway router. There is one for everything, and optionally a second
// one for external gateways.
type physicalNetwork struct {
	network string // its name in OVN
	flag    string // the option that names its interface
	iface   string // the value of the option; only the ordinary network can be found without it
	vlan    int
	zone    int // conntrack zone
	flows   *bridgenode.Manager
}

func (p physicalNetwork) second() bool { return p.network == topology.ExternalGatewayNetwork }

// contributor is the owner of the kernel parameters for a physical network.
func (p physicalNetwork) contributor() string {
	if p.second() {
		return gateway.Contributor + "-second-bridge"
	}
	return gateway.Contributor + "-bridge"
}

// about adds the option to an error of the second network, which is optional for a node.
func (p physicalNetwork) about(err error) error {
	if err == nil || !p.second() {
		return err
	}
	return fmt.Errorf("%s %s: %w", p.flag, p.iface, err)
}

// physicalNetworks returns the configured networks of the node, the ordinary one first.
func (g *Gateway) physicalNetworks() []physicalNetwork {
	networks := []physicalNetwork{{
		network: topology.PhysicalNetwork, flag: "--gateway-interface", iface: g.Interface, vlan: g.VLAN,
		zone: g.ConntrackZone, flows: g.Flows,
	}}
	if g.ExternalGatewayInterface != "" {
		networks = append(networks, physicalNetwork{
			network: topology.ExternalGatewayNetwork, flag: "--exgw-interface", iface: g.ExternalGatewayInterface,
			zone: topology.SecondZone(g.ConntrackZone), flows: g.SecondFlows,
		})
	}
	return networks
}

// attachments are the physical networks that the host is attached to.
type attachments struct {
	attached           // the ordinary one
	second   *attached // the one for external gateways; nil if there is none
	missing  error     // why the configured second network is not attached
}

// all returns the existing attachments.
func (a attachments) all() []attached {
	if a.second == nil {
		return []attached{a.attached}
	}
	return []attached{a.attached, *a.second}
}

// ensureAttachments moves the host onto the bridges of all physical networks. If the second one fails,
// the node still serves its pods, except for traffic to gateways there.
func (g *Gateway) ensureAttachments(ctx context.Context, datapath string, internal []netip.Addr) (attachments, error) {
	networks := g.physicalNetworks()
	if err := g.leaveOthers(ctx, networks); err != nil {
		return attachments{}, err
	}
	first, err := g.ensureAttached(ctx, networks[0], datapath, internal, nil)
	if err != nil {
		return attachments{}, err
	}
	out := attachments{attached: first}
	if len(networks) > 1 {
		second, err := g.ensureAttached(ctx, networks[1], datapath, internal, &first)
		if err == nil {
			out.second = &second
		}
		out.missing = networks[1].about(err)
	}
	return out, nil
}

// leaveOthers moves the host off bridges of an earlier configuration, including those that
// the database has lost.
func (g *Gateway) leaveOthers(ctx context.Context, networks []physicalNetwork) error {
	stay := map[string]bool{}
	for _, p := range networks {
		name, _, _, err := g.discover(ctx, p)
		if err != nil && p.second() {
			return nil // reported later; until then it is unknown which bridge to leave
		}
		if err != nil {
			return fmt.Errorf("find the uplink: %w", err)
		}
		stay[name] = true
	}
	bridges, err := g.OVS.Bridges(ctx)
	if err != nil {
		return err
	}
	retired := len(networks) == 1 && g.memory.Second != nil
	if retired {
		bridges = append(bridges, lost(*g.memory.Second, bridges)...)
	}
	for _, b := range bridges {
		if stay[b.Name] || b.ExternalIDs[idAttachment] == "" {
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, ovsTimeout)
		err := restore(waiting, g.OVS, g.Release, b)
		if errors.Is(err, errNoUplink) { // the configuration no longer has that network, or names the card that replaces it
			klog.InfoS("Uplink does not exist, its addresses are removed with the bridge", "bridge", b.Name, "reason", err.Error())
			err = g.OVS.DeleteBridge(waiting, b.Name)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("leave bridge %s: %w", b.Name, err)
		}
	}
	if retired {
		g.remember(func(m *gateway.Memory) { m.Keep(topology.ExternalGatewayNetwork, gateway.Remembered{}) })
	}
	return nil
}

// fits returns an error if an uplink is not suitable for its physical network. first is the attachment of the
// ordinary network, nil for that network itself.
func (g *Gateway) fits(a attached, mtu int, first *attached) error {
	if first == nil {
		if len(a.primary) < len(g.Families) {
			return fmt.Errorf("%s has %v, which is not an address for each of %v: the host is left alone", a.uplink, a.host.Addrs, g.Families)
		}
		if need := gateway.UplinkMTU(g.MTU, topology.FamilyOf(g.encapIP(a))); mtu < need {
			return fmt.Errorf("uplink %s has an MTU of %d, tunnels for pods with %d need %d: "+
				"lower --mtu or raise that of the uplink; the host is left alone", a.uplink, mtu, g.MTU, need)
		}
		if len(g.memory.System) > 0 { // it was attached before, and its addresses may be on a bridge that was lost
			return nil
		}
		if err := g.hasEndpoint(a); err != nil {
			return fmt.Errorf("%w; the host is left alone", err)
		}
		return nil
	}
	if len(a.primary) == 0 {
		return fmt.Errorf("%s has %v, which is no address of %v: the host is left alone", a.uplink, a.host.Addrs, g.Families)
	}
	if mtu < g.MTU {
		return fmt.Errorf("%s has an MTU of %d, less than that of pods, %d: lower --mtu or raise that of the interface; the host is left alone",
			a.uplink, mtu, g.MTU)
	}
	for _, p := range a.primary {
		for _, q := range first.primary {
			if p.Overlaps(q) {
				return fmt.Errorf("network %s of %s overlaps %s of %s: the host is left alone", p.Masked(), a.uplink, q.Masked(), first.uplink)
			}
		}
	}
	return nil
}

// hasEndpoint returns an error if the host does not have the configured tunnel endpoint. The host's own addresses may be
// missing at this point, if the bridge was lost.
func (g *Gateway) hasEndpoint(a attached) error {
	if !g.EncapIP.IsValid() || slices.ContainsFunc(a.host.Addrs, func(x host.LinkAddress) bool { return x.Prefix.Addr() == g.EncapIP }) {
		return nil
	}
	if ok, err := attachment.Has(g.EncapIP); err != nil || ok {
		return err
	}
	return fmt.Errorf("--encap-ip %s: no interface of the host has this address", g.EncapIP)
}

// errSameBridge is the error of an interface that cannot be the second uplink.
var errSameBridge = errors.New("is the gateway's own, the interface of --gateway-interface or of the default route")
