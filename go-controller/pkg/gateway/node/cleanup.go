package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Cleaner restores the original state of a host.
type Cleaner struct {
	OVS ovs.Client
	// ControllerIDs are the names of our settings of ovn-controller.
	ControllerIDs []string
	// Node and StateFile are as in Config.
	Node, StateFile string
	// Release is as in Deps.
	Release func(ctx context.Context, bridge string) error
}

// Cleanup reverts the changes of Gateway to the host, except for chains, rules and
// routes, which the drivers remove: the host moves back to its uplink, the
// bridges with all their ports are removed, and kernel parameters get their earlier values.
// It continues after failures and can be repeated.
func (c Cleaner) Cleanup(ctx context.Context) error {
	bridges, err := c.bridges(ctx)
	if err != nil { // the steps below would each wait for Open vSwitch as well
		return errors.Join(err, link.UnmuteAll(), link.AcceptNothing())
	}
	var errs []error
	step := func(what string, f func(context.Context) error) {
		limited, cancel := context.WithTimeout(ctx, ovsTimeout)
		defer cancel()
		if err := f(limited); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	// First of all, ovn-controller must release the bridge.
	step("take the settings of ovn-controller back", c.forgetController)
	step("remove the management port", func(ctx context.Context) error {
		return c.OVS.DeletePort(ctx, topology.IntegrationBridge, topology.ManagementPort)
	})
	for _, b := range bridges {
		if b.ExternalIDs[idAttachment] != "" {
			step("move the host off bridge "+b.Name, func(ctx context.Context) error { return c.leave(ctx, b) })
		}
	}
	step("remove bridge "+topology.IntegrationBridge, func(ctx context.Context) error {
		return c.OVS.DeleteBridge(ctx, topology.IntegrationBridge)
	})
	step("forget ovn-controller", c.OVS.ForgetController) // it still had references to ports of the bridges
	step("unmute links", func(context.Context) error { return link.UnmuteAll() })
	step("accept no second MAC address", func(context.Context) error { return link.AcceptNothing() })
	step("restore kernel parameters", settings.NewSet(c.OVS).Sweep)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return statefile.Remove(c.StateFile)
}

// leave moves the host off a bridge. The node's configuration, which may name another uplink, is unknown here.
func (c Cleaner) leave(ctx context.Context, b ovs.Bridge) error {
	err := restore(ctx, c.OVS, c.Release, b)
	if errors.Is(err, errNoUplink) {
		return fmt.Errorf("%w: the bridge keeps its addresses; give an interface the name of the uplink and repeat this, "+
			"or move the addresses yourself and delete the bridge", err)
	}
	return err
}

// bridges returns all bridges, and the external ones that the database has lost.
func (c Cleaner) bridges(ctx context.Context) ([]ovs.Bridge, error) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	bridges, err := c.OVS.Bridges(ctx)
	if err != nil {
		return nil, fmt.Errorf("list bridges: %w", err)
	}
	for _, m := range recall(c.StateFile, c.Node).Bridges() {
		bridges = append(bridges, lost(m, bridges)...)
	}
	return bridges, nil
}

// lost returns the stored state of an external bridge if the database has lost it.
func lost(m gateway.Remembered, bridges []ovs.Bridge) []ovs.Bridge {
	there := func(b ovs.Bridge) bool { return b.Name == m.Bridge && b.ExternalIDs[idAttachment] != "" }
	if slices.ContainsFunc(bridges, there) {
		return nil
	}
	return []ovs.Bridge{{Name: m.Bridge, MAC: m.MAC, ExternalIDs: map[string]string{idAttachment: m.Record.String()}}}
}

func (c Cleaner) forgetController(ctx context.Context) error {
	have, err := c.OVS.System(ctx)
	if err != nil {
		return err
	}
	ids := map[string]string{idEncapIP: "", idMappings: gateway.BridgeMappings(have[idMappings], nil)}
	for _, k := range c.ControllerIDs {
		ids[k] = ""
	}
	return errors.Join(c.OVS.SetSystem(ctx, ids), c.OVS.RestoreTLS(ctx))
}

// restore moves the host from a bridge back to its uplink, which may have another name by now. If there is none, the
// error is errNoUplink and the bridge stays with the host's addresses, unless the database has lost it. A bridge that
// ovnkube did not create stays, with the host on it and without our flows.
func restore(ctx context.Context, db ovs.Client, release func(context.Context, string) error, b ovs.Bridge) error {
	rec, err := gateway.ParseRecord(b.ExternalIDs[idAttachment])
	if err != nil {
		return err
	}
	ports, err := db.Ports(ctx, b.Name)
	gone := errors.Is(err, ovs.ErrNotFound)
	if gone {
		rec.Created, err = true, nil // the bridge is not in the database, so the host cannot stay on it
	}
	if err != nil {
		return err
	}
	for _, p := range ports {
		if strings.HasPrefix(p.Name, "patch-"+b.Name+"_") {
			if err := db.DeletePort(ctx, b.Name, p.Name); err != nil {
				return err
			}
		}
	}
	if !rec.Created {
		// The record is removed last, so that a failure can be repeated.
		if err := release(ctx, b.Name); err != nil {
			return err
		}
		return db.EnsureBridge(ctx, ovs.Bridge{Name: b.Name, ExternalIDs: map[string]string{idAttachment: ""}})
	}
	if err := link.Unmute(rec.Uplink); err != nil { // by its previous name, too
		return err
	}
	rec.Uplink, err = present(ctx, db, rec.Uplink, b)
	if gone && errors.Is(err, errNoUplink) {
		klog.InfoS("Neither the bridge nor its uplink exists, nothing is moved", "bridge", b.Name, "reason", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if err := link.Unmute(rec.Uplink); err != nil {
		return err
	}
	if err := moveBack(ctx, db, b.Name, rec); err != nil {
		return err
	}
	klog.V(2).InfoS("Moved the host's addresses back to its uplink", "bridge", b.Name, "uplink", rec.Uplink)
	return db.DeleteBridge(ctx, b.Name)
}

// present returns the present name of an uplink, and removes the port with its previous name.
func present(ctx context.Context, db ovs.Client, was string, b ovs.Bridge) (string, error) {
	if ok, err := link.Exists(was); err != nil || ok {
		return was, err
	}
	now, err := newName(was, b)
	if err != nil {
		return "", err
	}
	return now, db.DeletePort(ctx, b.Name, was)
}

// moveBack is the reverse of Gateway.move.
func moveBack(ctx context.Context, db ovs.Client, bridge string, rec gateway.Record) error {
	onUplink, err := attachment.Read(rec.Uplink)
	if err != nil {
		return err
	}
	onBridge, err := attachment.Read(bridge)
	if err != nil && !link.IsNotFound(err) {
		return err
	}
	want, err := withoutAdvertised(rec.Uplink, gateway.TakeOver(onBridge, onUplink, rec.Host, true))
	if err != nil {
		return err
	}
	if _, err := link.Up(rec.Uplink); err != nil {
		return err
	}
	if err := solicitRouters(rec.Uplink); err != nil {
		return err
	}
	if _, err := attachment.AddAddresses(rec.Uplink, want); err != nil {
		return err
	}
	if err := errors.Join(db.DeletePort(ctx, bridge, rec.Uplink), db.Sync(ctx)); err != nil {
		return err
	}
	if _, err := attachment.AddRoutes(rec.Uplink, bridge, want); err != nil {
		return err
	}
	if _, err = attachment.Strip(bridge, onBridge); link.IsNotFound(err) {
		return nil // ovs-vswitchd removes it with its row in the database
	}
	return err
}
