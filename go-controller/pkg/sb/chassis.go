package sb

import (
	"context"
	"fmt"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
)

// chassis is a row of the Chassis table, as far as we need it.
type chassis struct {
	UUID     string `ovsdb:"_uuid"`
	Name     string `ovsdb:"name"`
	Hostname string `ovsdb:"hostname"`
}

// chassisPrivate is the row of the same name that ovn-controller keeps its
// progress in.
type chassisPrivate struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
}

// DeleteChassis removes what ovn-controller of a host left behind, so that the
// other nodes give up their tunnels to it. An ovn-controller that still runs
// there registers anew. It is no error where there is nothing.
func DeleteChassis(ctx context.Context, db nbovsdb.Config, hostname string) error {
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
	of := func(r *chassis) bool { return r.Hostname == hostname }
	var rows []chassis
	if err := c.WhereCache(of).List(ctx, &rows); err != nil {
		return fmt.Errorf("list chassis of %s: %w", hostname, err)
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
			return fmt.Errorf("prepare the deletion of chassis of %s: %w", hostname, err)
		}
		ops = append(ops, op...)
	}
	results, err := c.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return fmt.Errorf("delete chassis of %s: %w", hostname, err)
	}
	klog.V(2).InfoS("Chassis deleted", "host", hostname, "chassis", len(rows))
	return nil
}
