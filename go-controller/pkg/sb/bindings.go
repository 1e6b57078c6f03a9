package sb

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// databaseNB is the northbound database.
	databaseNB = "OVN_Northbound"
	// tableRouters is where routers are; the identity of a row is that of its datapath.
	tableRouters   = "Logical_Router"
	tableDatapaths = "Datapath_Binding"
	tableBindings  = "Static_MAC_Binding"
)

// keyRouter is the key of a datapath's external_ids that has the UUID of its router.
const keyRouter = "logical-router"

// patience is how long northd may take to replace the bindings of a router itself.
const patience = time.Second

// router is a row of Logical_Router.
type router struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
}

// datapath is a row of Datapath_Binding, with its unique indexes, which the library's cache needs.
type datapath struct {
	UUID        string            `ovsdb:"_uuid"`
	TunnelKey   int               `ovsdb:"tunnel_key"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// staticBinding is a row of Static_MAC_Binding, with its unique index.
type staticBinding struct {
	UUID     string `ovsdb:"_uuid"`
	Port     string `ovsdb:"logical_port"`
	IP       string `ovsdb:"ip"`
	Datapath string `ovsdb:"datapath"`
}

// Bindings deletes static MAC bindings of routers that no longer exist. If northd finds a router replaced by
// another one with the same ports, as after a restore of the northbound database, it deletes the datapath of the
// former one but keeps the bindings, which refer to it. The database refuses that, and whatever else
// northd writes from then on. Once the bindings are deleted, northd creates them anew.
type Bindings struct {
	northbound, southbound nbovsdb.Config
	lost                   waits.Lost // the connections
}

// NewBindings returns Bindings, which have an effect while Run runs.
func NewBindings(northbound, southbound nbovsdb.Config) *Bindings {
	return &Bindings{northbound: northbound, southbound: southbound}
}

// Run runs until ctx is done, and handles restarts of the databases.
func (b *Bindings) Run(ctx context.Context) error {
	reconnect(ctx, &b.lost, waitFor("static MAC bindings", b.southbound), "Cannot watch static MAC bindings, will retry", b.session)
	return nil
}

// session handles one connection to each database.
func (b *Bindings) session(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	nb, err := b.watch(ctx, b.northbound, databaseNB, changed, map[string]model.Model{tableRouters: &router{}})
	if err != nil {
		return err
	}
	defer nb.Close()
	sb, err := b.watch(ctx, b.southbound, database, changed, map[string]model.Model{tableDatapaths: &datapath{}, tableBindings: &staticBinding{}})
	if err != nil {
		return err
	}
	defer sb.Close()
	routers, rows := nb.Cache(), sb.Cache()
	if routers == nil || rows == nil {
		return fmt.Errorf("lost the connection to %s or %s", b.northbound.Address, b.southbound.Address)
	}
	b.lost.Set(waits.Wait{}, nil)
	var due <-chan time.Time // when northd has had its time
	for {
		if due == nil && len(stale(routers, rows)) > 0 {
			due = time.After(patience)
		}
		select {
		case <-changed:
		case <-due:
			due = nil
			if err := deleteBindings(ctx, sb, stale(routers, rows)); err != nil {
				return err
			}
		case <-nb.Lost():
			return fmt.Errorf("lost the connection to %s", b.northbound.Address)
		case <-sb.Lost():
			return fmt.Errorf("lost the connection to %s", b.southbound.Address)
		case <-ctx.Done():
			return nil
		}
	}
}

// watch connects to a database and copies tables. changed gets a value after each change.
func (b *Bindings) watch(ctx context.Context, db nbovsdb.Config, name string, changed chan<- struct{}, tables map[string]model.Model) (*nbovsdb.Connection, error) {
	m, err := model.NewClientDBModel(name, tables)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := nbovsdb.Dial(ctx, m, db)
	if err != nil {
		return nil, err
	}
	if rows := c.Cache(); rows != nil {
		tell := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		rows.AddEventHandler(&cache.EventHandlerFuncs{
			AddFunc:    func(string, model.Model) { tell() },
			UpdateFunc: func(string, model.Model, model.Model) { tell() },
			DeleteFunc: func(string, model.Model) { tell() },
		})
	}
	var options []client.MonitorOption
	for _, row := range tables {
		options = append(options, client.WithTable(row))
	}
	if _, err := c.Monitor(ctx, c.NewMonitor(options...)); err != nil {
		c.Close()
		return nil, fmt.Errorf("monitor %s: %w", name, err)
	}
	return c, nil
}

// stale returns the bindings whose datapath is that of a router that does not exist.
func stale(routers, rows *cache.TableCache) []*staticBinding {
	current := routers.Table(tableRouters).RowsShallow()
	datapaths := rows.Table(tableDatapaths).RowsShallow()
	var found []*staticBinding
	for _, row := range rows.Table(tableBindings).RowsShallow() {
		binding := row.(*staticBinding)
		path, ok := datapaths[binding.Datapath].(*datapath)
		if !ok || path.ExternalIDs[keyRouter] == "" {
			continue
		}
		if _, ok := current[path.ExternalIDs[keyRouter]]; !ok {
			found = append(found, binding)
		}
	}
	return found
}

func deleteBindings(ctx context.Context, c *nbovsdb.Connection, rows []*staticBinding) error {
	var ops []ovsdb.Operation
	for _, row := range rows {
		op, err := c.Where(row).Delete()
		if err != nil {
			return fmt.Errorf("prepare the deletion of static MAC bindings: %w", err)
		}
		ops = append(ops, op...)
	}
	if len(ops) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results, err := c.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return fmt.Errorf("delete static MAC bindings: %w", err)
	}
	klog.InfoS("Deleted static MAC bindings of routers that were replaced, which northd cannot do", "bindings", len(rows))
	return nil
}
