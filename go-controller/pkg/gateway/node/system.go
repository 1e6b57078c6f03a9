package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ensureSystem writes the settings of ovn-controller that do not depend on the
// external bridge, and returns all settings. An existing system-id is kept:
// it identifies this host in the southbound database.
func (g *Gateway) ensureSystem(ctx context.Context) (map[string]string, error) {
	have, err := g.OVS.System(ctx)
	if err != nil {
		return nil, err
	}
	want, err := lostIDs(have, g.memory.System)
	if err != nil {
		return nil, err
	}
	if len(want) > 0 {
		klog.InfoS("The Open vSwitch database was lost, restoring its settings", "settings", slices.Sorted(maps.Keys(want)))
	}
	maps.Copy(want, g.ControllerIDs)
	if have[idEncapIP] == "" {
		// ovn-controller must not connect before the tunnel endpoint is set: the one in
		// OVN 23.03 may crash.
		delete(want, idRemote)
	}
	if have[idSystem] == "" { // also if only that was removed: certificates and ports name the chassis
		want[idSystem] = cmp.Or(g.memory.System[idSystem], uuid.NewString())
	}
	// The ports of pods request a chassis whose name or hostname is the name of the node.
	// The current or former name of the host itself does not matter.
	if cmp.Or(have[idSystem], want[idSystem]) != g.Node {
		want[idHostname] = g.Node
	}
	if err := g.ensureTLS(ctx); err != nil {
		return nil, err
	}
	if err := g.OVS.SetSystem(ctx, want); err != nil {
		return nil, err
	}
	if have == nil {
		have = map[string]string{}
	}
	maps.Copy(have, want)
	return have, nil
}

// ensureTLS writes the TLS files of ovn-controller, or reverts that if the database no longer uses TLS.
func (g *Gateway) ensureTLS(ctx context.Context) error {
	if g.TLS == (ovs.TLS{}) {
		return g.OVS.RestoreTLS(ctx)
	}
	return g.OVS.SetTLS(ctx, g.TLS)
}

// ensureIntegrationBridge creates br-int as ovn-controller would, but early, so that
// ports can be added before ovn-controller runs. If the bridge was lost, its conntrack zones are
// restored from a running ovn-controller.
func (g *Gateway) ensureIntegrationBridge(ctx context.Context, datapathType string) error {
	bridges, err := g.OVS.Bridges(ctx)
	if err != nil {
		return err
	}
	want := ovs.Bridge{
		Name: topology.IntegrationBridge, DatapathType: datapathType, FailMode: "secure",
		OtherConfig: map[string]string{"disable-in-band": "true"},
	}
	i := slices.IndexFunc(bridges, func(b ovs.Bridge) bool { return b.Name == want.Name })
	if i < 0 || gateway.LacksZones(bridges[i].ExternalIDs) {
		want.ExternalIDs = g.zones(ctx)
	}
	return g.OVS.EnsureBridge(ctx, want)
}

// zonesTimeout limits how long ovn-controller may take to list its zones.
const zonesTimeout = 2 * time.Second

// zones returns the external_ids of br-int for the conntrack zones that ovn-controller
// uses. It returns none if ovn-controller is not running, since it then assigns new zones when it starts.
func (g *Gateway) zones(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, zonesTimeout)
	defer cancel()
	list, err := g.Zones(ctx)
	if err != nil {
		klog.V(4).InfoS("Cannot read ovn-controller's conntrack zones", "err", err)
	}
	ids := gateway.ZoneIDs(list)
	if gateway.LacksZones(ids) { // ovn-controller has no zone of a router either: the bridge is new
		return nil
	}
	klog.InfoS("The integration bridge was lost, restoring the zones of conntrack", "zones", len(ids))
	return ids
}

// encapIP returns the tunnel endpoint of this node.
func (g *Gateway) encapIP(a attached) netip.Addr {
	if g.EncapIP.IsValid() {
		return g.EncapIP
	}
	return a.primary[0].Addr()
}

// ensureMapping configures the tunnel endpoint and the database of ovn-controller and, last of
// all, the bridges of the gateway router.
func (g *Gateway) ensureMapping(ctx context.Context, system map[string]string, a attachments) error {
	if err := g.hasEndpoint(a.attached); err != nil {
		return err
	}
	// Lost settings must not be taken for complete ones: neither by the next pass, because of the
	// endpoint, nor by the memory.
	have, err := g.settings(ctx, system[idSystem])
	if err != nil {
		return err
	}
	mappings := have[idMappings] // as it is now: others may have changed it during the pass
	if have[idEncapIP] == "" {   // the database was lost, and with it the mappings of others
		mappings = gateway.MergeMappings(mappings, g.memory.System[idMappings])
	}
	bridges := map[string]string{}
	if a.missing != nil { // the previous mapping stays
		bridges[topology.ExternalGatewayNetwork] = gateway.MappedBridge(mappings, topology.ExternalGatewayNetwork)
	}
	for _, b := range a.all() {
		bridges[b.network] = b.bridge
	}
	ids := map[string]string{
		idEncapIP:  g.encapIP(a.attached).String(),
		idMappings: gateway.BridgeMappings(mappings, bridges),
	}
	if remote, ok := g.ControllerIDs[idRemote]; ok {
		ids[idRemote] = remote
	}
	if err := g.OVS.SetSystem(ctx, ids); err != nil {
		return err
	}
	now, err := g.settings(ctx, system[idSystem])
	if err != nil {
		return err
	}
	g.remember(func(m *gateway.Memory) { m.System = now })
	return nil
}

// settings returns the external_ids of Open_vSwitch. It returns an error if the system-id is no longer the
// given one: somebody has removed or replaced it during the pass, or the database was lost.
func (g *Gateway) settings(ctx context.Context, identity string) (map[string]string, error) {
	now, err := g.OVS.System(ctx)
	if err == nil && now[idSystem] != identity {
		err = fmt.Errorf("the system-id of Open vSwitch changed during the pass, from %q to %q", identity, now[idSystem])
	}
	return now, err
}
