package sb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// tablePorts is where northd publishes ports to ovn-controllers.
const tablePorts = "Port_Binding"

// Keys of a port's options that we wrote to the northbound database.
const (
	optionChassis = "requested-chassis"
	optionUID     = "iface-id-ver"
)

// portsTimeout is the timeout for the first copy of all ports of a cluster.
const portsTimeout = 2 * time.Minute

// portBinding is the part of a row of Port_Binding that we need, and the columns of its unique index, which the
// library's cache needs.
type portBinding struct {
	UUID      string            `ovsdb:"_uuid"`
	Name      string            `ovsdb:"logical_port"`
	Datapath  string            `ovsdb:"datapath"`
	TunnelKey int               `ovsdb:"tunnel_key"`
	MAC       []string          `ovsdb:"mac"`
	Options   map[string]string `ovsdb:"options"`
}

// Ports knows the addresses of pods' logical ports from the southbound database, where only northd writes them:
// unlike a pod's annotation, they cannot be forged by those who may edit pods. It is safe for concurrent use; Run
// has to be running. Without a connection it returns the last known state.
type Ports struct {
	database nbovsdb.Config
	node     string
	synced   chan struct{}
	once     sync.Once
	watchers []func(port string)

	mu    sync.Mutex
	rows  tableRows // of the connection from which ports are
	ports map[string]port
	err   error // why there is no connection
	lost  waits.Lost
}

// port is a parsed row.
type port struct {
	uuid  string
	addrs topology.PodAddresses
}

// NewPorts returns Ports for the pods of a node, or of the whole cluster if node is "".
func NewPorts(southbound nbovsdb.Config, node string) *Ports {
	return &Ports{database: southbound, node: node, synced: make(chan struct{}), ports: map[string]port{},
		err: errNotYet}
}

// OnChange registers a function that is called with the name of a port that has changed. Call it before Run; f must
// not block for long.
func (p *Ports) OnChange(f func(port string)) { p.watchers = append(p.watchers, f) }

// Port returns the addresses of a port, and false if there is no such port or it is not a pod's.
func (p *Ports) Port(name string) (topology.PodAddresses, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.ports[name]
	return found.addrs, ok
}

// Synced returns a channel that is closed once all ports that existed at first are known.
func (p *Ports) Synced() <-chan struct{} { return p.synced }

// Err returns why there is no connection to the database, or nil if there is one.
func (p *Ports) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Run runs until ctx is done, and handles restarts of the database.
func (p *Ports) Run(ctx context.Context) error {
	reconnect(ctx, &p.lost, p.wait(), "Cannot watch the addresses of pods, will retry", func(ctx context.Context) error {
		err := p.session(ctx)
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		return err
	})
	return nil
}

// errNotYet is the initial reason why there is no connection.
var errNotYet = errors.New("not connected yet")

func (p *Ports) wait() waits.Wait { return waitFor("addresses of pods", p.database) }

// waitFor returns the wait of a component for a connection to the southbound database.
func waitFor(part string, southbound nbovsdb.Config) waits.Wait {
	return waits.Wait{Part: part, For: "a connection to " + southbound.Address, Reason: waits.ReasonDatabase}
}

// session handles one connection.
func (p *Ports) session(ctx context.Context) error {
	m, err := model.NewClientDBModel(database, map[string]model.Model{tablePorts: &portBinding{}})
	if err != nil {
		return fmt.Errorf("describe %s: %w", tablePorts, err)
	}
	limited, cancel := context.WithTimeout(ctx, portsTimeout)
	defer cancel()
	c, err := nbovsdb.Dial(limited, m, p.database)
	if err != nil {
		return err
	}
	defer c.Close()
	lost := c.Lost()
	row := &portBinding{}
	fields := []any{&row.Name, &row.Datapath, &row.TunnelKey, &row.MAC, &row.Options}
	option := client.WithTable(row, fields...)
	if p.node != "" {
		option = client.WithConditionalTable(row, []model.Condition{{
			Field: &row.Options, Function: ovsdb.ConditionIncludes, Value: map[string]string{optionChassis: p.node},
		}}, fields...)
	}
	if _, err := c.Monitor(limited, c.NewMonitor(option)); err != nil {
		return fmt.Errorf("monitor %s: %w", tablePorts, err)
	}
	rows := c.Cache()
	if rows == nil {
		return fmt.Errorf("lost the connection to %s", p.database.Address)
	}
	of := rows.Table(tablePorts)
	look := func(m model.Model) {
		if b, ok := m.(*portBinding); ok {
			p.note(of, b)
		}
	}
	// Events are requested before everything is read, so that none is missed.
	rows.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, m model.Model) { look(m) },
		UpdateFunc: func(_ string, _, m model.Model) { look(m) },
		DeleteFunc: func(_ string, m model.Model) { look(m) },
	})
	p.replace(of)
	p.lost.Set(p.wait(), nil)
	p.once.Do(func() { close(p.synced) })
	select {
	case <-lost:
		return fmt.Errorf("lost the connection to %s", p.database.Address)
	case <-ctx.Done():
		return nil
	}
}

// note applies an event. The content of an event may be older than what is known by then, so it only says which row to read.
func (p *Ports) note(of tableRows, was *portBinding) {
	p.mu.Lock()
	if p.rows != of {
		p.mu.Unlock()
		return
	}
	before, known := p.ports[was.Name]
	after, ours := port{}, false
	if now, ok := of.Row(was.UUID).(*portBinding); ok {
		after, ours = read(now)
	}
	changed := false
	switch {
	case ours:
		p.ports[was.Name] = after
		changed = !known || !after.equal(before)
	case known && before.uuid == was.UUID:
		delete(p.ports, was.Name)
		changed = true
	}
	p.mu.Unlock()
	if changed {
		p.notify(was.Name)
	}
}

// replace applies all rows of a new connection. They are read while no event can be applied, or an older state could
// replace that of an event.
func (p *Ports) replace(of tableRows) {
	var changed []string
	p.mu.Lock()
	all := of.RowsShallow()
	ports := make(map[string]port, len(all))
	for _, m := range all {
		row, ok := m.(*portBinding)
		if !ok {
			continue
		}
		if found, ok := read(row); ok {
			ports[row.Name] = found
		}
	}
	for name, found := range ports {
		if was, known := p.ports[name]; !known || !found.equal(was) {
			changed = append(changed, name)
		}
	}
	for name := range p.ports {
		if _, ok := ports[name]; !ok {
			changed = append(changed, name)
		}
	}
	p.rows, p.ports, p.err = of, ports, nil
	p.mu.Unlock()
	for _, name := range changed {
		p.notify(name)
	}
}

func (p *Ports) notify(name string) {
	for _, f := range p.watchers {
		f(name)
	}
}

// read parses a row; false if it is not a pod's.
func read(row *portBinding) (port, bool) {
	uid := row.Options[optionUID]
	if uid == "" || len(row.MAC) != 1 {
		return port{}, false
	}
	addrs, ok := topology.ParsePodAddresses(row.MAC[0])
	addrs.UID = uid
	return port{row.UUID, addrs}, ok
}

func (p port) equal(o port) bool {
	return p.addrs.UID == o.addrs.UID && p.addrs.MAC == o.addrs.MAC && slices.Equal(p.addrs.Addrs, o.addrs.Addrs)
}
