package ovs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// hwaddr is the other_config key of a bridge's MAC address.
const hwaddr = "hwaddr"

// config returns the other_config that b asks for.
func (b Bridge) config() map[string]string {
	out, _ := merged(nil, nil)
	for k, v := range b.OtherConfig {
		out[k] = v
	}
	if b.MAC != "" {
		out[hwaddr] = b.MAC
	}
	return out
}

// EnsureBridge implements Client.
func (db *DB) EnsureBridge(ctx context.Context, want Bridge) error {
	db.record(func(w *written) { w.setBridge(want) })
	return db.update(ctx, "ensure bridge "+want.Name, func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		have := &vswitchd.Bridge{Name: want.Name}
		exists, err := s.get(ctx, have)
		switch {
		case err != nil:
			return nil, err
		case exists:
			t.changeBridge(have, want)
			t.changeTag(want)
		default:
			t.createBridge(sys, want)
		}
		return t.finish(sys)
	})
}

func (t *tx) createBridge(sys *vswitchd.OpenvSwitch, want Bridge) {
	iface := &vswitchd.Interface{UUID: "newiface", Name: want.Name, Type: "internal"}
	port := &vswitchd.Port{UUID: "newport", Name: want.Name, Interfaces: []string{iface.UUID}}
	if want.Tag > 0 {
		port.Tag = &want.Tag
	}
	config, _ := merged(nil, want.config())
	ids, _ := merged(nil, want.ExternalIDs)
	bridge := &vswitchd.Bridge{
		UUID: "newbridge", Name: want.Name, DatapathType: want.DatapathType,
		OtherConfig: config, ExternalIDs: ids, Ports: []string{port.UUID},
	}
	put(&bridge.FailMode, want.FailMode, nil)
	t.add(t.s.client.Create(iface, port, bridge))
	t.mutate(sys, []model.Mutation{{
		Field: &sys.Bridges, Mutator: ovsdb.MutateOperationInsert, Value: []string{bridge.UUID},
	}})
}

func (t *tx) changeBridge(have *vswitchd.Bridge, want Bridge) {
	var m []model.Mutation
	m = edit(m, &have.OtherConfig, want.config())
	m = edit(m, &have.ExternalIDs, want.ExternalIDs)
	t.mutate(have, m)
	fields := put(&have.FailMode, want.FailMode, nil)
	if want.DatapathType != "" && have.DatapathType != want.DatapathType {
		have.DatapathType = want.DatapathType
		fields = append(fields, &have.DatapathType)
	}
	if len(fields) > 0 {
		t.add(t.s.client.Where(have).Update(have, fields...))
	}
}

// changeTag sets the VLAN of the local port as b asks for.
func (t *tx) changeTag(want Bridge) {
	if want.Tag == 0 {
		return
	}
	port := &vswitchd.Port{Name: want.Name}
	exists, err := t.s.get(t.ctx, port)
	if err != nil || !exists {
		t.add(nil, err)
		return
	}
	var tag *int
	if want.Tag > 0 {
		tag = &want.Tag
	}
	if value(port.Tag) == value(tag) && (port.Tag == nil) == (tag == nil) {
		return
	}
	port.Tag = tag
	t.add(t.s.client.Where(port).Update(port, &port.Tag))
}

// DeleteBridge implements Client. Port and Interface rows disappear with the bridge, because
// nothing refers to them any more.
func (db *DB) DeleteBridge(ctx context.Context, name string) error {
	db.record(func(w *written) { w.forgetBridge(name) })
	return db.update(ctx, "delete bridge "+name, func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		have := &vswitchd.Bridge{Name: name}
		if exists, err := s.get(ctx, have); err != nil || !exists {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		t.mutate(sys, []model.Mutation{{
			Field: &sys.Bridges, Mutator: ovsdb.MutateOperationDelete, Value: []string{have.UUID},
		}})
		return t.finish(sys)
	})
}

// Bridges implements Client.
func (db *DB) Bridges(ctx context.Context) ([]Bridge, error) {
	s, err := db.connected(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*vswitchd.Bridge
	if err := s.client.List(ctx, &rows); err != nil {
		return nil, fmt.Errorf("list bridges: %w", err)
	}
	out := make([]Bridge, 0, len(rows))
	for _, r := range rows {
		b := Bridge{
			Name: r.Name, DatapathType: r.DatapathType, MAC: r.OtherConfig[hwaddr],
			OtherConfig: r.OtherConfig, ExternalIDs: r.ExternalIDs,
		}
		if r.FailMode != nil {
			b.FailMode = *r.FailMode
		}
		local := &vswitchd.Port{Name: r.Name}
		if exists, err := s.get(ctx, local); err != nil {
			return nil, err
		} else if exists {
			b.Tag = value(local.Tag)
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
