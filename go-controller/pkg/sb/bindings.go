package sb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
)

const (
	// databaseNB is the northbound database.
	databaseNB = "OVN_Northbound"
	// tableRouters is where routers are; the identity of a row is that of its datapath.
	tableRouters   = "Logical_Router"
	tableDatapaths = "Datapath_Binding"
	tableBindings  = "Static_MAC_Binding"
)

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
	due                    chan struct{} // has a value when routers may have been replaced
}

// NewBindings returns Bindings, which have an effect while Run runs.
func NewBindings(northbound, southbound nbovsdb.Config) *Bindings {
	return &Bindings{northbound: northbound, southbound: southbound, due: make(chan struct{}, 1)}
}

// Look says that routers may have been replaced.
func (b *Bindings) Look() {
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// Run looks for such bindings at first and after each call of Look, until ctx is done.
func (b *Bindings) Run(ctx context.Context) error {
	b.Look()
	var found map[string]bool
	for {
		select {
		case <-b.due:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(patience):
		case <-ctx.Done():
			return nil
		}
		now, err := b.clean(ctx, found)
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot look for static MAC bindings of routers that were replaced, will retry")
		}
		if err != nil || len(now) > 0 {
			b.Look()
		}
		found = now
	}
}

// clean returns the UUIDs of the bindings of routers that do not exist, and deletes them if they were found before: a member of
// a clustered database may not know a new router yet.
func (b *Bindings) clean(ctx context.Context, before map[string]bool) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// First what may be deleted: a router that is new meanwhile is not taken for a former one.
	sb, err := b.read(ctx, b.southbound, database, map[string]model.Model{tableDatapaths: &datapath{}, tableBindings: &staticBinding{}})
	if err != nil {
		return nil, err
	}
	defer sb.Close()
	var datapaths []datapath
	var bindings []staticBinding
	if err := errors.Join(sb.List(ctx, &datapaths), sb.List(ctx, &bindings)); err != nil {
		return nil, fmt.Errorf("list static MAC bindings: %w", err)
	}
	nb, err := b.read(ctx, b.northbound, databaseNB, map[string]model.Model{tableRouters: &router{}})
	if err != nil {
		return nil, err
	}
	defer nb.Close()
	var routers []router
	if err := nb.List(ctx, &routers); err != nil {
		return nil, fmt.Errorf("list routers: %w", err)
	}
	former := map[string]bool{} // datapaths
	for _, d := range datapaths {
		id := d.ExternalIDs["logical-router"] // as northd calls the UUID of the row
		former[d.UUID] = id != "" && !slices.ContainsFunc(routers, func(r router) bool { return r.UUID == id })
	}
	found := map[string]bool{}
	var ops []ovsdb.Operation
	for _, row := range bindings {
		if !former[row.Datapath] {
			continue
		}
		found[row.UUID] = true
		if !before[row.UUID] {
			continue
		}
		op, err := sb.Where(&row).Delete()
		if err != nil {
			return nil, fmt.Errorf("prepare the deletion of static MAC bindings: %w", err)
		}
		ops = append(ops, op...)
	}
	if len(ops) == 0 {
		return found, nil
	}
	results, err := sb.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return nil, fmt.Errorf("delete static MAC bindings: %w", err)
	}
	klog.InfoS("Deleted static MAC bindings of routers that were replaced, which northd cannot do", "bindings", len(ops))
	return found, nil
}

// read connects to a database and copies tables.
func (b *Bindings) read(ctx context.Context, db nbovsdb.Config, name string, tables map[string]model.Model) (*nbovsdb.Connection, error) {
	m, err := model.NewClientDBModel(name, tables)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", name, err)
	}
	c, err := nbovsdb.Dial(ctx, m, db)
	if err != nil {
		return nil, err
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
