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

// EnsurePort implements Client.
func (db *DB) EnsurePort(ctx context.Context, want Port) error {
	db.record(func(w *written) { w.setPort(want) })
	what := fmt.Sprintf("ensure port %s on bridge %s", want.Name, want.Bridge)
	return db.update(ctx, what, func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		bridge := &vswitchd.Bridge{Name: want.Bridge}
		if exists, err := s.get(ctx, bridge); err != nil {
			return nil, err
		} else if !exists {
			return nil, fmt.Errorf("bridge %s: %w", want.Bridge, ErrNotFound)
		}
		t := &tx{ctx: ctx, s: s}
		port := &vswitchd.Port{Name: want.Name}
		exists, err := s.get(ctx, port)
		switch {
		case err != nil:
			return nil, err
		case exists:
			t.changePort(bridge, port, want)
		default:
			t.createPort(bridge, want)
		}
		return t.finish(sys)
	})
}

func (t *tx) createPort(bridge *vswitchd.Bridge, want Port) {
	options, _ := merged(nil, want.Options)
	ids, _ := merged(nil, want.ExternalIDs)
	portIDs, _ := merged(nil, want.PortExternalIDs)
	iface := &vswitchd.Interface{
		UUID: "newiface", Name: want.Name, Type: want.Type, Options: options, ExternalIDs: ids,
	}
	put(&iface.MAC, want.MAC, nil)
	put(&iface.MTURequest, want.MTU, nil)
	port := &vswitchd.Port{
		UUID: "newport", Name: want.Name, Interfaces: []string{iface.UUID}, ExternalIDs: portIDs, Trunks: want.Trunks,
	}
	t.add(t.s.client.Create(iface, port))
	t.mutate(bridge, []model.Mutation{{
		Field: &bridge.Ports, Mutator: ovsdb.MutateOperationInsert, Value: []string{port.UUID},
	}})
}

func (t *tx) changePort(bridge *vswitchd.Bridge, port *vswitchd.Port, want Port) {
	owner, err := t.s.bridgeOf(t.ctx, port.UUID)
	if err != nil {
		t.err = err
		return
	}
	if owner == nil || owner.UUID != bridge.UUID {
		if owner != nil {
			t.mutate(owner, []model.Mutation{{
				Field: &owner.Ports, Mutator: ovsdb.MutateOperationDelete, Value: []string{port.UUID},
			}})
		}
		t.mutate(bridge, []model.Mutation{{
			Field: &bridge.Ports, Mutator: ovsdb.MutateOperationInsert, Value: []string{port.UUID},
		}})
	}
	t.mutate(port, edit(nil, &port.ExternalIDs, want.PortExternalIDs))
	if !slices.Equal(slices.Sorted(slices.Values(port.Trunks)), slices.Sorted(slices.Values(want.Trunks))) {
		port.Trunks = want.Trunks
		t.add(t.s.client.Where(port).Update(port, &port.Trunks))
	}
	iface := &vswitchd.Interface{Name: want.Name}
	exists, err := t.s.get(t.ctx, iface)
	if err == nil && !exists {
		err = fmt.Errorf("interface of port %s: %w", want.Name, ErrNotFound)
	}
	if err != nil {
		t.err = err
		return
	}
	var m []model.Mutation
	m = edit(m, &iface.Options, want.Options)
	m = edit(m, &iface.ExternalIDs, want.ExternalIDs)
	t.mutate(iface, m)
	fields := put(&iface.MTURequest, want.MTU, put(&iface.MAC, want.MAC, nil))
	if iface.Type != want.Type {
		iface.Type = want.Type
		fields = append(fields, &iface.Type)
	}
	if len(fields) > 0 {
		t.add(t.s.client.Where(iface).Update(iface, fields...))
	}
}

// DeletePort implements Client.
func (db *DB) DeletePort(ctx context.Context, bridge, name string) error {
	db.record(func(w *written) { delete(w.ports, name) })
	what := fmt.Sprintf("delete port %s from bridge %s", name, bridge)
	return db.update(ctx, what, func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		port, owner := &vswitchd.Port{Name: name}, &vswitchd.Bridge{Name: bridge}
		if exists, err := s.get(ctx, port); err != nil || !exists {
			return nil, err
		}
		if exists, err := s.get(ctx, owner); err != nil || !exists || !slices.Contains(owner.Ports, port.UUID) {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		t.mutate(owner, []model.Mutation{{
			Field: &owner.Ports, Mutator: ovsdb.MutateOperationDelete, Value: []string{port.UUID},
		}})
		return t.finish(sys)
	})
}

// Ports implements Client.
func (db *DB) Ports(ctx context.Context, bridge string) ([]Port, error) {
	s, err := db.connected(ctx)
	if err != nil {
		return nil, err
	}
	owner := &vswitchd.Bridge{Name: bridge}
	if exists, err := s.get(ctx, owner); err != nil {
		return nil, err
	} else if !exists {
		return nil, fmt.Errorf("bridge %s: %w", bridge, ErrNotFound)
	}
	var out []Port
	for _, uuid := range owner.Ports {
		row := &vswitchd.Port{UUID: uuid}
		if exists, err := s.get(ctx, row); err != nil {
			return nil, err
		} else if !exists || row.Name == bridge {
			continue
		}
		p := Port{Bridge: bridge, Name: row.Name, PortExternalIDs: row.ExternalIDs, Trunks: row.Trunks}
		iface := &vswitchd.Interface{Name: row.Name}
		if exists, err := s.get(ctx, iface); err != nil {
			return nil, err
		} else if exists {
			p.Type, p.Options, p.ExternalIDs = iface.Type, iface.Options, iface.ExternalIDs
			p.MAC, p.MTU = value(iface.MAC), value(iface.MTURequest)
			p.OFPort, p.Error = value(iface.Ofport), value(iface.Error)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Port) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// OFPort implements Client.
func (db *DB) OFPort(ctx context.Context, name string) (int, error) {
	number := 0
	err := db.until(ctx, "the port number of "+name, func(s *session) (bool, error) {
		iface := &vswitchd.Interface{Name: name}
		exists, err := s.get(ctx, iface)
		switch {
		case err != nil:
			return false, err
		case !exists:
			return false, ErrNotFound
		case value(iface.Error) != "":
			return false, fmt.Errorf("ovs-vswitchd says: %s", *iface.Error)
		case value(iface.Ofport) <= 0:
			return false, fmt.Errorf("ovs-vswitchd has given none yet")
		}
		number = *iface.Ofport
		return true, nil
	})
	return number, err
}

// WaitInstalled implements Client.
func (db *DB) WaitInstalled(ctx context.Context, name, ifaceID string) error {
	return db.until(ctx, "the flows of "+name, func(s *session) (bool, error) {
		iface := &vswitchd.Interface{Name: name}
		exists, err := s.get(ctx, iface)
		switch {
		case err != nil:
			return false, err
		case !exists:
			return false, ErrNotFound
		case iface.ExternalIDs[IfaceID] != ifaceID:
			return false, fmt.Errorf("%s is %q, not %q", IfaceID, iface.ExternalIDs[IfaceID], ifaceID)
		case iface.ExternalIDs[Installed] != "true":
			return false, fmt.Errorf("ovn-controller has not reported %s", Installed)
		}
		return true, nil
	})
}
