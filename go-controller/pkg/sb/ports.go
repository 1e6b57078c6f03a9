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
	"k8s.io/klog/v2"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// tablePorts is where northd puts what ovn-controllers are to know of ports.
const tablePorts = "Port_Binding"

// Keys of the options of a port that we wrote northbound.
const (
	optionChassis = "requested-chassis"
	optionUID     = "iface-id-ver"
)

// portsTimeout bounds the first copy of all ports of a cluster.
const portsTimeout = 2 * time.Minute

// portBinding is a row of Port_Binding: what we need, and the columns of its unique
// index, which the library's cache needs.
type portBinding struct {
	UUID      string            `ovsdb:"_uuid"`
	Name      string            `ovsdb:"logical_port"`
	Datapath  string            `ovsdb:"datapath"`
	TunnelKey int               `ovsdb:"tunnel_key"`
	MAC       []string          `ovsdb:"mac"`
	Options   map[string]string `ovsdb:"options"`
}

// Ports knows the addresses that the logical ports of pods have by the southbound
// database, which nobody but northd writes there: unlike a pod's annotation, those
// who may edit pods cannot make them up. It is safe for concurrent use; Run has to
// run. While there is no connection it knows what it knew last.
type Ports struct {
	database nbovsdb.Config
	node     string
	synced   chan struct{}
	once     sync.Once
	watchers []func(port string)

	mu    sync.Mutex
	ports map[string]port
	err   error // why there is no connection
	lost  waits.Lost
}

// port is a row.
type port struct {
	uuid  string
	addrs topology.PodAddresses
}

// NewPorts returns Ports that know the ports of the pods of a node, or those of the
// whole cluster where node is "".
func NewPorts(southbound nbovsdb.Config, node string) *Ports {
	return &Ports{database: southbound, node: node, synced: make(chan struct{}), ports: map[string]port{},
		err: errNotYet}
}

// OnChange registers a function that is called with the name of a port that has
// changed. It is called before Run, and f must not block for long.
func (p *Ports) OnChange(f func(port string)) { p.watchers = append(p.watchers, f) }

// Port returns what a port has; false where there is none of that name, or one that
// is not a pod's.
func (p *Ports) Port(name string) (topology.PodAddresses, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.ports[name]
	return found.addrs, ok
}

// Synced is closed when all ports that there were at first are known.
func (p *Ports) Synced() <-chan struct{} { return p.synced }

// Err returns why there is no connection to the database, nil where there is one.
func (p *Ports) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Run works until ctx is done, through restarts of the database.
func (p *Ports) Run(ctx context.Context) error {
	defer p.lost.Set(waits.Wait{}, nil)
	p.lost.Set(p.wait(), errNotYet)
	for ctx.Err() == nil {
		err := p.session(ctx)
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		p.lost.Set(p.wait(), err)
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot watch the addresses of pods, will retry")
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
	}
	return nil
}

// errNotYet is why there is no connection at first.
var errNotYet = errors.New("not connected yet")

func (p *Ports) wait() waits.Wait { return waitFor("addresses of pods", p.database) }

// waitFor returns the wait of a part for a connection to the southbound database.
func waitFor(part string, southbound nbovsdb.Config) waits.Wait {
	return waits.Wait{Part: part, For: "a connection to " + southbound.Address, Reason: waits.ReasonDatabase}
}

// session works over one connection.
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
	lost := c.DisconnectNotify()
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
	// What an event brings may be older than what is known by then, so it only says
	// where to look. Events are asked for before everything is read: none is missed.
	look := func(m model.Model) {
		if b, ok := m.(*portBinding); ok {
			now, _ := rows.Table(tablePorts).Row(b.UUID).(*portBinding)
			p.note(b, now)
		}
	}
	rows.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, m model.Model) { look(m) },
		UpdateFunc: func(_ string, _, m model.Model) { look(m) },
		DeleteFunc: func(_ string, m model.Model) { look(m) },
	})
	var all []portBinding
	if err := c.List(limited, &all); err != nil {
		return fmt.Errorf("list %s: %w", tablePorts, err)
	}
	p.replace(all)
	p.lost.Set(p.wait(), nil)
	p.once.Do(func() { close(p.synced) })
	select {
	case <-lost:
		return fmt.Errorf("lost the connection to %s", p.database.Address)
	case <-ctx.Done():
		return nil
	}
}

// note takes over the state that a row has now; nil: it is gone.
func (p *Ports) note(was, now *portBinding) {
	p.mu.Lock()
	before, known := p.ports[was.Name]
	after, ours := port{}, false
	if now != nil {
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
		p.tell(was.Name)
	}
}

// replace takes over all rows of a new connection.
func (p *Ports) replace(rows []portBinding) {
	ports := make(map[string]port, len(rows))
	for i := range rows {
		if found, ok := read(&rows[i]); ok {
			ports[rows[i].Name] = found
		}
	}
	var changed []string
	p.mu.Lock()
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
	p.ports, p.err = ports, nil
	p.mu.Unlock()
	for _, name := range changed {
		p.tell(name)
	}
}

func (p *Ports) tell(name string) {
	for _, f := range p.watchers {
		f(name)
	}
}

// read reads a row; false where it is not a pod's.
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
