package sb

import (
	"context"
	"fmt"
	"maps"
	"strconv"
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
	database = "OVN_Southbound"
	table    = "Encap"
	// optionPort is the key of the UDP port in an Encap row's options.
	optionPort = "dst_port"
	// DefaultPort is the port of Geneve if no option sets another.
	DefaultPort = 6081

	timeout = time.Minute // for connecting and for a transaction, while the server may be busy with ovn-northd's
	backoff = time.Second // before the next connection
	// renamed is how often to check whether the host has another identity, of which the rows of the present one tell nothing.
	renamed = 5 * time.Second
)

// encap is the part of a row of the Encap table that we need, and the columns of its unique index, which the
// library's cache needs.
type encap struct {
	UUID    string            `ovsdb:"_uuid"`
	Type    string            `ovsdb:"type"`
	IP      string            `ovsdb:"ip"`
	Chassis string            `ovsdb:"chassis_name"`
	Options map[string]string `ovsdb:"options"`
}

// EncapPort maintains the tunnel port of one chassis.
type EncapPort struct {
	Database nbovsdb.Config
	// Chassis returns the present name of the chassis, the system-id of Open vSwitch.
	Chassis func(ctx context.Context) (string, error)
	Port    int
}

// Run maintains the port until ctx is done, through restarts of the database and of ovn-controller, which may
// recreate the row, also with another name of the chassis. For the default port, which needs no option, it checks once and disconnects.
func (e EncapPort) Run(ctx context.Context) error {
	wait := waitFor("tunnel port", e.Database)
	wait.For = "its row in the southbound database"
	var missing waits.Lost
	defer missing.Set(wait, nil)
	for ctx.Err() == nil {
		err := e.session(ctx, func() { missing.Set(wait, nil) })
		missing.Set(wait, err)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			klog.ErrorS(err, "Cannot keep the tunnel port, will retry", "port", e.Port)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return nil
}

// session handles one connection, for one name of the chassis, and calls found when there is a row. It returns nil when
// there is nothing left to do.
func (e EncapPort) session(ctx context.Context, found func()) error {
	chassis, err := e.Chassis(ctx)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	c, err := e.follow(ctx, chassis, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer c.Close()
	lost := c.Lost()
	again := time.NewTicker(renamed)
	defer again.Stop()
	for {
		exists, err := e.set(ctx, c, chassis)
		if err != nil {
			return err
		}
		if exists && e.Port == DefaultPort {
			return nil
		}
		if exists {
			found()
		}
		// While Open vSwitch does not answer, or has no system-id, the name is unknown and the last one counts.
		if now, err := e.present(ctx); err == nil && now != chassis {
			return fmt.Errorf("the system-id of Open vSwitch changed from %s to %s", chassis, now)
		}
		select {
		case <-changed:
		case <-again.C:
		case <-lost:
			return fmt.Errorf("lost the connection to %s", e.Database.Address)
		case <-ctx.Done():
			return nil
		}
	}
}

// present returns the present name of the chassis, or an error if Open vSwitch does not answer soon.
func (e EncapPort) present(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return e.Chassis(ctx)
}

// follow connects to the database, and calls changed when a row of the chassis changes. The database sends no rows
// of other chassis, of which each node would otherwise have all.
func (e EncapPort) follow(ctx context.Context, chassis string, changed func()) (*nbovsdb.Connection, error) {
	m, err := model.NewClientDBModel(database, map[string]model.Model{table: &encap{}})
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", table, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := nbovsdb.Dial(ctx, m, e.Database)
	if err != nil {
		return nil, err
	}
	if rows := c.Cache(); rows != nil {
		rows.AddEventHandler(&cache.EventHandlerFuncs{
			AddFunc:    func(string, model.Model) { changed() },
			UpdateFunc: func(string, model.Model, model.Model) { changed() },
		})
	}
	row := &encap{}
	own := []model.Condition{{Field: &row.Chassis, Function: ovsdb.ConditionEqual, Value: chassis}}
	if _, err := c.Monitor(ctx, c.NewMonitor(client.WithConditionalTable(row, own, &row.Type, &row.IP, &row.Chassis, &row.Options))); err != nil {
		c.Close()
		return nil, fmt.Errorf("monitor %s: %w", table, err)
	}
	return c, nil
}

// set writes the port to the rows of the chassis that have another one. It reports whether there is a row.
func (e EncapPort) set(ctx context.Context, c client.Client, chassis string) (bool, error) {
	var rows []encap
	if err := c.WhereCache(func(r *encap) bool { return r.Chassis == chassis }).List(ctx, &rows); err != nil {
		return false, fmt.Errorf("list %s of chassis %s: %w", table, chassis, err)
	}
	want := ""
	if e.Port != DefaultPort {
		want = strconv.Itoa(e.Port)
	}
	var ops []ovsdb.Operation
	for i := range rows {
		if rows[i].Options[optionPort] == want {
			continue
		}
		options := maps.Clone(rows[i].Options)
		if options == nil {
			options = map[string]string{}
		}
		if options[optionPort] = want; want == "" {
			delete(options, optionPort)
		}
		rows[i].Options = options
		op, err := c.Where(&rows[i]).Update(&rows[i], &rows[i].Options)
		if err != nil {
			return false, fmt.Errorf("prepare the port of chassis %s: %w", chassis, err)
		}
		ops = append(ops, op...)
	}
	if len(ops) == 0 {
		return len(rows) > 0, nil
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results, err := c.Transact(limited, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return false, fmt.Errorf("set the tunnel port of chassis %s: %w", chassis, err)
	}
	klog.V(2).InfoS("Tunnel port set", "chassis", chassis, "port", e.Port)
	return true, nil
}
