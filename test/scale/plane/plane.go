package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
	"github.com/ovnkube/ovnkube/test/scale/proxy"
)

// Databases of OVN.
const (
	Northbound = "OVN_Northbound"
	Southbound = "OVN_Southbound"
)

// Config defines what is run.
type Config struct {
	// Dir is the directory of all files.
	Dir string
	// KubernetesDir is the directory of the programs of "kin build", Ovnkube the ovnkube binary.
	KubernetesDir, Ovnkube string
	PodRange, ServiceRange netip.Prefix
	// EtcdDir is the directory of etcd's data, which is kept; "" for a new directory in Dir.
	EtcdDir string
	// MasterArgs are additional arguments of each master, AgentArgs those of the agent.
	MasterArgs, AgentArgs []string
}

// Plane is the running control plane.
type Plane struct {
	Proxy     *proxy.Proxy
	config    Config
	processes []*Process
	databases []*Process // those of OVN, in the order in which they were started
	// members are the running servers of the northbound database, if it is clustered, by name.
	members map[string]*Process
	audit   *auditLog
}

// Start runs everything except masters.
func Start(ctx context.Context, config Config) (*Plane, error) {
	p := &Plane{config: config, Proxy: proxy.New()}
	p.audit = &auditLog{path: p.path("audit.log")}
	err := p.startKubernetes(ctx)
	if err == nil {
		err = p.startDatabases(ctx)
	}
	if err == nil {
		err = p.Proxy.Listen(p.path("nbproxy.sock"), p.path("nb.sock"))
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close stops everything.
func (p *Plane) Close() {
	p.Proxy.Close()
	for _, process := range slices.Backward(p.processes) {
		process.Kill()
	}
}

func (p *Plane) path(name string) string { return filepath.Join(p.config.Dir, name) }

func (p *Plane) start(name, program string, args ...string) (*Process, error) {
	process, err := start(p.config.Dir, name, program, args...)
	if err == nil {
		p.processes = append(p.processes, process)
	}
	return process, err
}

// Failed returns an error if a process that should run does not.
func (p *Plane) Failed() error {
	for _, process := range p.processes {
		if err := process.Failed(); err != nil {
			return err
		}
	}
	return nil
}

// forget stops a process, whose end is then not a failure.
func (p *Plane) forget(process *Process, end func()) {
	end()
	p.processes = slices.DeleteFunc(p.processes, func(o *Process) bool { return o == process })
}

// startDatabases runs empty databases of OVN, and northd.
func (p *Plane) startDatabases(ctx context.Context) error {
	for _, name := range []string{"nb", "sb"} {
		if _, err := p.startDatabase(ctx, name, name); err != nil {
			return err
		}
	}
	northd, err := p.startNorthd("unix:" + p.path("nb.sock"))
	if err != nil {
		return err
	}
	// northd creates the first row of each database.
	for _, database := range []string{Northbound, Southbound} {
		if err := northd.ready(ctx, func() error { return p.hasGlobal(ctx, database) }); err != nil {
			return err
		}
	}
	return nil
}

// startNorthd runs ovn-northd with the given addresses of the northbound database.
func (p *Plane) startNorthd(northbound string) (*Process, error) {
	northd, err := p.start("ovn-northd", "ovn-northd", "-vconsole:warn", "-vsyslog:off", "-vfile:off", "--unixctl="+p.path("northd.ctl"),
		"--ovnnb-db="+northbound, "--ovnsb-db=unix:"+p.path("sb.sock"))
	if err == nil {
		p.databases = append(p.databases, northd)
	}
	return northd, err
}

func (p *Plane) hasGlobal(ctx context.Context, database string) error {
	c, err := p.Dial(ctx, database, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	table := map[string]string{Northbound: "NB_Global", Southbound: "SB_Global"}[database]
	outcomes, err := c.Transact(ctx, database, ovsdbraw.Op{"op": "select", "table": table, "where": []any{}, "columns": []string{"nb_cfg"}})
	if err == nil && len(outcomes[0].Rows) == 0 {
		err = fmt.Errorf("%s is empty", table)
	}
	return err
}

func (p *Plane) startDatabase(ctx context.Context, name, schema string) (*Process, error) {
	file, socket := p.path(name+".db"), p.path(name+".sock")
	for _, f := range []string{file, socket} {
		_ = os.Remove(f)
	}
	if err := p.tool("create", file, "/usr/share/ovn/ovn-"+schema+".ovsschema"); err != nil {
		return nil, err
	}
	return p.serve(ctx, name)
}

// tool runs ovsdb-tool.
func (p *Plane) tool(args ...string) error {
	tool, err := start(p.config.Dir, "ovsdb-tool", "ovsdb-tool", args...)
	if err != nil {
		return err
	}
	if <-tool.done; !tool.cmd.ProcessState.Success() {
		return tool.Failed()
	}
	return nil
}

// serve runs a server of the database in a file.
func (p *Plane) serve(ctx context.Context, name string) (*Process, error) {
	file, socket := p.path(name+".db"), p.path(name+".sock")
	server, err := p.start("ovsdb-"+name, "ovsdb-server", "--no-chdir", "-vconsole:warn", "-vsyslog:off", "-vfile:off",
		"--unixctl="+p.path(name+".ctl"), "--remote=punix:"+socket, file)
	if err != nil {
		return nil, err
	}
	p.databases = append(p.databases, server)
	return server, server.ready(ctx, func() error {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// ResetDatabases replaces the databases of OVN by new, empty ones.
func (p *Plane) ResetDatabases(ctx context.Context) error {
	for _, process := range slices.Backward(p.databases) {
		p.forget(process, process.Kill)
	}
	p.databases = nil
	return p.startDatabases(ctx)
}

// Dial connects to a database directly, not through the proxy.
func (p *Plane) Dial(ctx context.Context, database string, update func(params json.RawMessage)) (*ovsdbraw.Conn, error) {
	socket := map[string]string{Northbound: "nb.sock", Southbound: "sb.sock"}[database]
	return p.dialSocket(ctx, socket, update)
}

func (p *Plane) dialSocket(ctx context.Context, socket string, update func(params json.RawMessage)) (*ovsdbraw.Conn, error) {
	return ovsdbraw.Dial(ctx, "unix:"+p.path(socket), update)
}
