package netnstest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// Debian's path of the local database's schema.
const vswitchSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// OVS is a running Open vSwitch with the userspace datapath only; its sockets, database and logs are in its own
// directory.
type OVS struct {
	ns       *NS
	Dir      string // run directory: db.sock, BRIDGE.mgmt, pid files
	server   *daemon
	vswitchd *daemon
	starts   int
}

type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// OVS starts ovsdb-server and ovs-vswitchd in the namespace and stops them when the test ends. The test fails if
// ovs-vswitchd logs an emergency.
func (ns *NS) OVS() *OVS {
	ns.t.Helper()
	// Not t.TempDir: a socket's path is limited to 107 bytes.
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		ns.t.Fatalf("make a run directory: %v", err)
	}
	o := &OVS{ns: ns, Dir: dir}
	ns.t.Cleanup(func() {
		o.StopVswitchd()
		o.StopServer()
		log, _ := os.ReadFile(filepath.Join(dir, "ovs-vswitchd.log"))
		for line := range bytes.Lines(log) {
			if bytes.Contains(line, []byte("|EMER|")) {
				ns.t.Errorf("ovs-vswitchd: %s", line)
			}
		}
		_ = os.RemoveAll(dir)
	})
	o.create()
	o.StartVswitchd()
	return o
}

// create creates an empty database and starts its server.
func (o *OVS) create() {
	o.ns.t.Helper()
	o.ns.Run("ovsdb-tool", "create", o.path("conf.db"), vswitchSchema)
	o.StartServer()
	o.Run("ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", ".",
		"other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1")
}

// LoseDatabase replaces the database by an empty one, as Open vSwitch's start scripts do if the file is missing.
func (o *OVS) LoseDatabase() {
	o.ns.t.Helper()
	o.StopServer()
	if err := os.Remove(o.path("conf.db")); err != nil {
		o.ns.t.Fatal(err)
	}
	o.create()
}

func (o *OVS) path(name string) string { return filepath.Join(o.Dir, name) }

// Endpoint returns the address of ovsdb-server, as libovsdb expects it.
func (o *OVS) Endpoint() string { return "unix:" + o.path("db.sock") }

func (o *OVS) env() []string {
	return []string{"OVS_RUNDIR=" + o.Dir, "OVS_DBDIR=" + o.Dir, "OVS_LOGDIR=" + o.Dir}
}

// StartServer starts ovsdb-server and waits until it listens; it has opened the database then.
func (o *OVS) StartServer() {
	o.ns.t.Helper()
	o.server = o.start("ovsdb-server", "--remote=punix:"+o.path("db.sock"), "--unixctl="+o.path("ovsdb-server.ctl"),
		"--log-file="+o.path("ovsdb-server.log"), "-vconsole:off", o.path("conf.db"))
	eventually.Succeeds(o.ns.t, "ovsdb-server to listen", func() error {
		c, err := net.Dial("unix", o.path("db.sock"))
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// StopServer kills ovsdb-server.
func (o *OVS) StopServer() { o.server.kill(); o.server = nil }

// Freeze suspends ovsdb-server: its socket stays open and nothing responds. Thaw resumes it.
func (o *OVS) Freeze() { _ = o.server.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw resumes ovsdb-server after Freeze.
func (o *OVS) Thaw() { _ = o.server.cmd.Process.Signal(syscall.SIGCONT) }

// StartVswitchd starts ovs-vswitchd and waits until it has read the database.
func (o *OVS) StartVswitchd() {
	o.ns.t.Helper()
	o.vswitchd = o.start("ovs-vswitchd", "--disable-system", "--pidfile="+o.path("ovs-vswitchd.pid"),
		"--log-file="+o.path("ovs-vswitchd.log"), "-vconsole:off", "unix:"+o.path("db.sock"))
	// ovs-vsctl waits until ovs-vswitchd has carried out a change.
	o.starts++
	o.Run("ovs-vsctl", "--timeout=60", "set", "Open_vSwitch", ".", fmt.Sprintf("other_config:test-starts=%d", o.starts))
}

// StopVswitchd kills ovs-vswitchd.
func (o *OVS) StopVswitchd() { o.vswitchd.kill(); o.vswitchd = nil }

// Run runs an OVS tool against this Open vSwitch and returns its output.
func (o *OVS) Run(name string, args ...string) string {
	o.ns.t.Helper()
	out, err := o.Try(name, args...)
	if err != nil {
		o.ns.t.Fatal(err)
	}
	return out
}

// Try is like Run, for a command that may fail.
func (o *OVS) Try(name string, args ...string) (string, error) {
	if name == "ovs-vsctl" {
		args = append([]string{"--db=unix:" + o.path("db.sock")}, args...)
	}
	if name == "ovs-appctl" {
		args = append([]string{"--target=ovs-vswitchd"}, args...)
	}
	return command("", o.env(), name, args...)
}

// Flows returns the flows of a bridge as ovs-ofctl prints them, without counters, one per line.
func (o *OVS) Flows(bridge string) []string { return o.flows(bridge, "--no-names") }

// FlowsByName returns them sorted, with the names of ports instead of their numbers, which depend on the order in
// which ovs-vswitchd has seen the ports.
func (o *OVS) FlowsByName(bridge string) []string {
	flows := o.flows(bridge, "--names")
	slices.Sort(flows)
	return flows
}

func (o *OVS) flows(bridge, names string) []string {
	o.ns.t.Helper()
	var out []string
	for line := range strings.Lines(o.Run("ovs-ofctl", "-OOpenFlow14", "--no-stats", names, "dump-flows", "unix:"+o.path(bridge+".mgmt"))) {
		if line = strings.TrimSpace(line); strings.Contains(line, "actions=") {
			out = append(out, line)
		}
	}
	return out
}

func (o *OVS) start(name string, args ...string) *daemon {
	o.ns.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), o.env()...)
	// If a test panics, no cleanup runs, but its thread ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		o.ns.t.Fatalf("start %s: %v", name, err)
	}
	d := &daemon{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		_ = cmd.Wait()
	}()
	return d
}

func (d *daemon) kill() {
	if d == nil {
		return
	}
	if err := d.cmd.Process.Kill(); err != nil && !strings.Contains(err.Error(), "finished") {
		fmt.Fprintf(os.Stderr, "kill %s: %v\n", d.cmd.Path, err)
	}
	<-d.done
}
