package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"

	bridgenode "github.com/ovnkube/ovnkube/go-controller/pkg/bridge/node"
)

// attached is an external bridge with the host on it.
type attached struct {
	physicalNetwork
	bridge, uplink string
	mac            string
	host           host.Attachment // the host's state on the bridge
	onUplink       host.Attachment // what the uplink had when that was planned
	missing        host.Attachment // the part of host that is missing on the bridge
	gone           []netip.Prefix  // leases that the host no longer has
	primary        []netip.Prefix  // the node's addresses, one per family of the cluster
	row            ovs.Bridge      // of the bridge, with the record
	record         gateway.Record
}

// maxLinkName is the maximum length of the name of a network interface.
const maxLinkName = unix.IFNAMSIZ - 1

// discover returns the names of the external bridge and of its uplink, and the
// current row of the bridge if it exists.
func (g *Gateway) discover(ctx context.Context, p physicalNetwork) (name, uplink string, have *ovs.Bridge, err error) {
	bridges, err := g.OVS.Bridges(ctx)
	if err != nil {
		return "", "", nil, err
	}
	wanted := p.iface
	if wanted == "" {
		// After a reboot the host may have no route yet, but the bridge is known.
		for _, b := range bridges {
			if rec, _ := gateway.ParseRecord(b.ExternalIDs[idAttachment]); b.ExternalIDs[idAttachment] != "" && rec.On(p.network) {
				wanted = b.Name
			}
		}
	}
	lost, lostUplink, err := g.lostBridge(p)
	if err != nil {
		return "", "", nil, err
	}
	if wanted == "" {
		wanted = lost
	}
	if wanted == "" {
		if wanted, err = attachment.DefaultLink(); err != nil {
			return "", "", nil, fmt.Errorf("%w: say %s", err, p.flag)
		}
	}
	for i, b := range bridges {
		ports, err := g.OVS.Ports(ctx, b.Name)
		if err != nil {
			return "", "", nil, err
		}
		if b.Name == lost && b.ExternalIDs[idAttachment] == "" {
			return lost, lostUplink, &bridges[i], nil // somebody recreated it
		}
		if b.Name == wanted {
			uplink, err := uplinkOf(b, ports)
			return b.Name, uplink, &bridges[i], err
		}
		if b.ExternalIDs[idBridgeUplink] == wanted || slices.ContainsFunc(ports, func(p ovs.Port) bool { return p.Name == wanted }) {
			return b.Name, wanted, &bridges[i], nil
		}
	}
	if lost != "" {
		return lost, lostUplink, nil, nil
	}
	name = "br" + wanted
	if len(name) > maxLinkName {
		return "", "", nil, fmt.Errorf("the bridge of %s would be called %s, longer than %d characters: "+
			"make a bridge with a shorter name and give it as %s", wanted, name, maxLinkName, p.flag)
	}
	return name, wanted, nil, nil
}

// uplinkOf returns the port of an existing bridge that is its uplink.
func uplinkOf(b ovs.Bridge, ports []ovs.Port) (string, error) {
	if u := b.ExternalIDs[idBridgeUplink]; u != "" {
		return u, nil
	}
	var found []string
	for _, p := range ports {
		if p.Type == "" || p.Type == "system" {
			found = append(found, p.Name)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("bridge %s has %d ports that may be its uplink (%s): set its external_ids:%s to one",
			b.Name, len(found), strings.Join(found, ", "), idBridgeUplink)
	}
	return found[0], nil
}

// ensureAttached creates the bridge of a physical network and moves the host onto it. It can be
// repeated after a crash at any point: everything still on the uplink is moved. first is the
// attachment of the ordinary network, nil for that network itself.
func (g *Gateway) ensureAttached(ctx context.Context, p physicalNetwork, datapathType string, internal []netip.Addr, first *attached) (attached, error) {
	name, uplink, have, err := g.discover(ctx, p)
	if err != nil {
		return attached{}, fmt.Errorf("find the uplink: %w", err)
	}
	if first != nil && (name == first.bridge || uplink == first.uplink) {
		return attached{}, errSameBridge
	}
	from, err := link.Read(uplink)
	if link.IsNotFound(err) && have != nil {
		if uplink, err = g.renamed(ctx, p, uplink, *have); err == nil {
			from, err = link.Read(uplink)
		}
	}
	if err != nil {
		return attached{}, fmt.Errorf("find the uplink: %w", err)
	}
	a := attached{physicalNetwork: p, bridge: name, uplink: uplink, mac: from.MAC}
	want, err := g.ensureBridge(ctx, &a, have, datapathType)
	if err != nil {
		return attached{}, err
	}
	a.host, a.primary = want, gateway.Primary(want, g.Families, internal)
	if err := g.fits(a, from.MTU, first); err != nil {
		return attached{}, err
	}
	if err := g.flowsEarly(ctx, a); err != nil {
		return attached{}, err
	}
	if err := g.move(ctx, a); err != nil {
		return attached{}, err
	}
	if err := g.recordLink(ctx, a); err != nil {
		return attached{}, err
	}
	if ovs.InUserspace(datapathType) {
		if err := link.Mute(uplink); err != nil {
			return attached{}, err
		}
	}
	return a, nil
}

// ensureBridge creates the bridge, with the record of its planned attachment, and
// returns that attachment. A bridge that ovnkube did not create keeps its MAC address.
func (g *Gateway) ensureBridge(ctx context.Context, a *attached, have *ovs.Bridge, datapathType string) (host.Attachment, error) {
	rec, kept := gateway.Record{Created: true}, g.memory.Of(a.network)
	switch {
	case (have == nil || have.ExternalIDs[idAttachment] == "") && kept.Bridge == a.bridge:
		klog.InfoS("The external bridge was lost, restoring it", "bridge", a.bridge, "uplink", a.uplink)
		rec = gateway.Record{Created: have == nil || kept.Record.Created, Host: kept.Record.Host}
	case have != nil:
		var err error
		if rec, err = gateway.ParseRecord(have.ExternalIDs[idAttachment]); err != nil {
			return host.Attachment{}, fmt.Errorf("bridge %s: %w", a.bridge, err)
		}
	}
	rec = rec.For(a.network)
	if !rec.Created {
		var err error
		if a.mac, err = link.MAC(a.bridge); err != nil {
			return host.Attachment{}, err
		}
	}
	want, err := g.planAttachment(a, &rec)
	if err != nil {
		return host.Attachment{}, err
	}
	g.remember(func(m *gateway.Memory) {
		m.Keep(a.network, gateway.Remembered{Bridge: a.bridge, MAC: a.mac,
			Record: gateway.Record{Uplink: a.uplink, Created: rec.Created, Host: want}.For(a.network)})
	})
	row := ovs.Bridge{
		Name: a.bridge, DatapathType: datapathType, FailMode: "standalone", MAC: a.mac, Tag: ovs.NoTag,
		ExternalIDs: map[string]string{idBridge: a.bridge, idBridgeUplink: a.uplink, idAttachment: rec.String()},
	}
	if a.vlan != 0 {
		row.Tag = a.vlan
	}
	if have != nil && !rec.Created {
		row.DatapathType, row.FailMode, row.Tag = "", "", 0
	}
	if err := g.OVS.EnsureBridge(ctx, row); err != nil {
		return host.Attachment{}, err
	}
	if err := g.awaitLink(ctx, a.bridge, a.mac); err != nil {
		return host.Attachment{}, err
	}
	if err := g.Settings.Apply(ctx, a.contributor(), noRedirects(a.bridge)); err != nil {
		return host.Attachment{}, err
	}
	if rec.Created {
		if err := passAdvertisements(a.uplink, a.bridge); err != nil {
			return host.Attachment{}, err
		}
	}
	a.row, a.record = row, rec
	wasDown, err := link.Up(a.bridge)
	if err != nil || !wasDown {
		return want, err
	}
	a.missing = gateway.Lasting(want, host.Attachment{}) // it may have gone down after its routes were read
	if rec.Link == 0 {
		return want, nil
	}
	a.record.Link = 0
	return want, g.writeRecord(ctx, *a)
}

// recordLink records that the bridge's interface now carries the host. It comes last: an
// interrupted pass may leave an interface with only part of the host's state, and if that were
// recorded, the next pass would assume that somebody deleted the rest.
func (g *Gateway) recordLink(ctx context.Context, a attached) error {
	now, err := link.Read(a.bridge)
	if err != nil || now.Index == a.record.Link {
		return err
	}
	a.record.Link = now.Index
	return g.writeRecord(ctx, a)
}

func (g *Gateway) writeRecord(ctx context.Context, a attached) error {
	a.row.ExternalIDs[idAttachment] = a.record.String()
	return g.OVS.EnsureBridge(ctx, a.row)
}

// planAttachment plans the attachment of the bridge and stores it in the bridge's record. Egress
// addresses, which the bridge for external gateways may carry, do not belong to the host: the node that holds
// them adds them, and a record would restore them when another node has them.
func (g *Gateway) planAttachment(a *attached, rec *gateway.Record) (host.Attachment, error) {
	onUplink, err := attachment.Read(a.uplink)
	if err != nil {
		return host.Attachment{}, err
	}
	a.onUplink = onUplink
	onUplink, rec.Host = g.withoutForeign(onUplink), g.withoutForeign(rec.Host)
	var onBridge host.Attachment
	lost, flaps := true, false
	now, err := link.Read(a.bridge)
	switch {
	case link.IsNotFound(err):
	case err != nil:
		return host.Attachment{}, err
	default:
		if onBridge, err = attachment.Read(a.bridge); err != nil {
			return host.Attachment{}, err
		}
		onBridge = g.withoutForeign(onBridge)
		then, err := link.Read(a.bridge) // it may have gone down meanwhile
		if err != nil {
			return host.Attachment{}, err
		}
		lost = !now.Up || !then.Up || now.Index != rec.Link
		flaps = now.MAC != a.mac // when it gets the other MAC address
	}
	// If this process was not running when the lease changed, this is when it first notices.
	a.gone = gateway.Renumbered(onUplink, rec.Host)
	onBridge, rec.Host = gateway.WithoutAddrs(onBridge, a.gone), gateway.WithoutAddrs(rec.Host, a.gone)
	if lost {
		rec.Link = 0 // until it carries the host
	}
	if onUplink, err = withoutAdvertised(a.uplink, onUplink); err != nil {
		return host.Attachment{}, err
	}
	want, err := withoutAdvertised(a.uplink, gateway.TakeOver(onUplink, onBridge, rec.Host, lost))
	if err != nil {
		return host.Attachment{}, err
	}
	rec.Uplink, rec.Host = a.uplink, want
	a.missing = gateway.Lasting(rec.Host, onBridge)
	if !lost && !flaps && len(onUplink.Addrs)+len(onUplink.Routes) == 0 {
		// Nothing moves. If the bridge loses something later in this pass, somebody has
		// deleted it, and it must not be restored.
		a.missing = gateway.Without(rec.Host, onBridge)
	}
	return rec.Host, nil
}

// withoutForeign removes the addresses that are not the host's own.
func (g *Gateway) withoutForeign(from host.Attachment) host.Attachment {
	if g.Foreign == nil {
		return from
	}
	foreign := g.Foreign()
	from.Addrs = slices.DeleteFunc(slices.Clone(from.Addrs), func(a host.LinkAddress) bool { return slices.Contains(foreign, a.Prefix.Addr()) })
	return from
}

// awaitLink waits until ovs-vswitchd has created the interface of an internal port
// and set its MAC address. Setting the MAC address takes the interface down for a
// moment, which removes IPv6 addresses and routes, so the interface must not be used before.
func (g *Gateway) awaitLink(ctx context.Context, name, mac string) error {
	if have, err := link.MAC(name); err == nil && have == mac {
		return nil
	} else if err != nil && !link.IsNotFound(err) {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if err := errors.Join(g.OVS.Sync(waiting), link.Wait(waiting, name)); err != nil {
		return fmt.Errorf("wait for ovs-vswitchd to make %s: %w", name, err)
	}
	return nil
}

// flowsEarly adapts the bridge's flows to its current ports.
func (g *Gateway) flowsEarly(ctx context.Context, a attached) error {
	waiting, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	return a.flows.Attach(waiting, bridgenode.Attachment{
		Bridge: a.bridge, Uplink: a.uplink, Patch: topology.PatchPort(a.bridge, g.Node),
		Facts: g.bridgeFacts(a),
	})
}

func (g *Gateway) bridgeFacts(a attached) bridge.Bridge {
	return bridge.Bridge{MAC: a.mac, VLAN: a.vlan, EncapPort: g.EncapPort}
}

// move moves the host onto the bridge. The order keeps the host reachable: addresses are
// on both interfaces while ovs-vswitchd adds the uplink, routes are replaced in
// place, and only then are addresses and routes removed from the uplink.
func (g *Gateway) move(ctx context.Context, a attached) error {
	added, err := attachment.AddAddresses(a.bridge, a.missing)
	if err != nil {
		return err
	}
	if err := g.takeUplink(ctx, a); err != nil {
		return err
	}
	if err := g.flowsEarly(ctx, a); err != nil {
		return err
	}
	routes, err := attachment.AddRoutes(a.bridge, a.uplink, a.missing)
	if err != nil {
		return err
	}
	if len(a.gone) > 0 {
		klog.InfoS("The uplink got another lease", "bridge", a.bridge, "uplink", a.uplink, "before", a.gone, "addresses", a.host.Addrs)
		if err := attachment.DeleteAddresses(a.bridge, a.gone, a.host); err != nil {
			return err
		}
	}
	// What somebody has given the uplink since it was read moves in the next pass.
	removed, err := attachment.Strip(a.uplink, a.onUplink)
	if err != nil {
		return err
	}
	if added+routes+removed > 0 {
		klog.V(2).InfoS("Moved the host's addresses to the external bridge", "bridge", a.bridge, "uplink", a.uplink,
			"addresses", a.missing.Addrs, "addedAddresses", added, "addedRoutes", routes, "removedAddresses", removed)
	}
	return nil
}

// takeUplink makes the uplink a port of the bridge, in addition to the port to
// OVN, and waits until ovs-vswitchd has added it.
func (g *Gateway) takeUplink(ctx context.Context, a attached) error {
	if err := g.ensurePatch(ctx, a); err != nil {
		return err
	}
	if err := g.OVS.EnsurePort(ctx, ovs.Port{Bridge: a.bridge, Name: a.uplink}); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if _, err := g.OVS.OFPort(waiting, a.uplink); err != nil {
		return fmt.Errorf("wait for ovs-vswitchd to take uplink %s into bridge %s: %w", a.uplink, a.bridge, err)
	}
	_, err := link.Up(a.uplink)
	return err
}

// ensurePatch creates the bridge's port to OVN. ovn-controller finds it
// by its name, and creates the other end.
//
// A bridge that has lost its flows, because the machine has rebooted or ovs-vswitchd
// was restarted, is a plain switch until they are written again, and
// ovn-controller, which finds all it needs in its databases, may be faster than this
// process. Until then the gateway router must not receive or send on the wire: it would
// answer for addresses that have moved to other nodes. Therefore the port only carries a reserved
// VLAN, which the database stores: only flows send packets to or from it.
func (g *Gateway) ensurePatch(ctx context.Context, a attached) error {
	return g.OVS.EnsurePort(ctx, ovs.Port{
		Bridge: a.bridge, Name: topology.PatchPort(a.bridge, g.Node), Type: "patch", Trunks: []int{ovs.ReservedVLAN},
		Options: map[string]string{"peer": topology.PatchPeer(a.bridge, g.Node)},
	})
}
