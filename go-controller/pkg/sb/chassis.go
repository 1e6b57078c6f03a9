package sb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
)

// chassis is the part of a row of the Chassis table that we need.
type chassis struct {
	UUID     string `ovsdb:"_uuid"`
	Name     string `ovsdb:"name"`
	Hostname string `ovsdb:"hostname"`
}

// chassisPrivate is the row of the same name in which ovn-controller records its progress.
type chassisPrivate struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
}

// DeleteChassis deletes the chassis for which gone returns true, given their names, which are the system-ids of
// hosts, and host names, so that the other nodes remove their tunnels to them. An ovn-controller that still runs
// there registers again. It is not an error if there are none.
func DeleteChassis(ctx context.Context, db nbovsdb.Config, gone func(name, hostname string) bool) error {
	m, err := model.NewClientDBModel(database, map[string]model.Model{"Chassis": &chassis{}, "Chassis_Private": &chassisPrivate{}})
	if err != nil {
		return fmt.Errorf("describe Chassis: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := nbovsdb.Dial(ctx, m, db)
	if err != nil {
		return err
	}
	defer c.Close()
	row, private := &chassis{}, &chassisPrivate{}
	if _, err := c.Monitor(ctx, c.NewMonitor(
		client.WithTable(row, &row.Name, &row.Hostname), client.WithTable(private, &private.Name))); err != nil {
		return fmt.Errorf("monitor Chassis: %w", err)
	}
	names := map[string]bool{}
	of := func(r *chassis) bool { return gone(r.Name, r.Hostname) }
	var rows []chassis
	if err := c.WhereCache(of).List(ctx, &rows); err != nil {
		return fmt.Errorf("list chassis: %w", err)
	}
	if len(rows) == 0 {
		return nil
	}
	for _, r := range rows {
		names[r.Name] = true
	}
	var ops []ovsdb.Operation
	for _, where := range []client.ConditionalAPI{
		c.WhereCache(of), c.WhereCache(func(r *chassisPrivate) bool { return names[r.Name] }),
	} {
		op, err := where.Delete()
		if err != nil {
			return fmt.Errorf("prepare the deletion of chassis: %w", err)
		}
		ops = append(ops, op...)
	}
	results, err := c.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return fmt.Errorf("delete chassis %v: %w", slices.Sorted(maps.Keys(names)), err)
	}
	klog.V(2).InfoS("Chassis deleted", "chassis", slices.Sorted(maps.Keys(names)))
	return nil
}
