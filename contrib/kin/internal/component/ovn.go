package component

import (
	"fmt"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// All Open vSwitch and OVN programs log to standard error, which the supervisor
// writes to files; sockets and databases are in the locations of the Debian packages, so that
// the tools need no options.
const quiet = "-vsyslog:off"

func (n Node) ovsdb() supervise.Unit {
	const database = "/etc/openvswitch/conf.db"
	return supervise.Unit{
		Name:   OVSDatabase,
		Before: [][]string{hook(hookEnsureOVSDB, database, "/usr/share/openvswitch/vswitch.ovsschema")},
		Exec: []string{"ovsdb-server", "--pidfile", quiet, "--remote=punix:/run/openvswitch/db.sock",
			"--remote=db:Open_vSwitch,Open_vSwitch,manager_options", database},
		Ready: &supervise.Probe{Unix: "/run/openvswitch/db.sock"},
		Started: [][]string{
			{"ovs-vsctl", "--no-wait", "init"},
			{"ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".",
				"external_ids:system-id=" + n.ChassisID,
				"external_ids:hostname=" + n.Name,
				"external_ids:ovn-bridge-datapath-type=" + n.datapathType(),
				"other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1"},
		},
	}
}

// datapathType returns Open vSwitch's name of the datapath.
func (n Node) datapathType() string {
	if n.Config.Datapath == config.DatapathKernel {
		return "system"
	}
	return "netdev"
}

// vswitch returns the unit of the switch. Each time a userspace switch starts, it reports the capabilities of its datapath
// to ovn-controller through the database; ovn-controller is held
// until those that it must not use are removed.
func (n Node) vswitch() supervise.Unit {
	unit := supervise.Unit{
		Name:  VSwitch,
		Exec:  []string{"ovs-vswitchd", "--pidfile", quiet},
		Ready: &supervise.Probe{Exec: []string{"ovs-appctl", "-t", "ovs-vswitchd", "version"}},
		After: []string{OVSDatabase},
	}
	if n.Config.Datapath != config.DatapathKernel {
		unit.Before = [][]string{hook(hookPrepareDatapath)}
		unit.Exec = append(unit.Exec, "--disable-system")
		unit.Started = [][]string{hook(hookRestrictDatapath)}
		if !n.Pods {
			unit.Freeze = []string{OVNController}
		}
	}
	return unit
}

// ovnController waits by itself until ovnkube has configured the addresses of the databases.
func (n Node) ovnController() supervise.Unit {
	return supervise.Unit{
		Name:  OVNController,
		Exec:  []string{"ovn-controller", "--pidfile", quiet, "unix:/run/openvswitch/db.sock"},
		After: []string{VSwitch},
	}
}

// central returns the units of the two databases and of northd.
func (n Node) central() []supervise.Unit {
	return []supervise.Unit{
		n.centralDatabase(Northbound, "ovn-nbctl", "nb", plan.NorthboundPort),
		n.centralDatabase(Southbound, "ovn-sbctl", "sb", plan.SouthboundPort),
		{
			Name:  Northd,
			Exec:  []string{"ovn-northd", "--pidfile", quiet},
			After: []string{Northbound, Southbound},
		},
	}
}

// centralDatabase probes its clients only once a minute: on a
// loaded machine the default of five seconds would disconnect clients that are merely
// busy.
func (n Node) centralDatabase(name, tool, short string, port int) supervise.Unit {
	database := fmt.Sprintf("/var/lib/ovn/ovn%s_db.db", short)
	socket := fmt.Sprintf("/run/ovn/ovn%s_db.sock", short)
	schema := map[string]string{"nb": "OVN_Northbound,NB_Global", "sb": "OVN_Southbound,SB_Global"}[short]
	listen := fmt.Sprintf("ptcp:%d:%s", port, n.anyAddress())
	if n.anyAddress() == "::" {
		listen = fmt.Sprintf("ptcp:%d:[::]", port)
	}
	return supervise.Unit{
		Name:   name,
		Before: [][]string{hook(hookEnsureOVSDB, database, "/usr/share/ovn/ovn-"+short+".ovsschema")},
		Exec: []string{"ovsdb-server", quiet,
			fmt.Sprintf("--pidfile=/run/ovn/ovn%s_db.pid", short), fmt.Sprintf("--unixctl=/run/ovn/ovn%s_db.ctl", short),
			"--remote=punix:" + socket, "--remote=db:" + schema + ",connections", database},
		Ready: &supervise.Probe{Unix: socket},
		Started: [][]string{
			{tool, "init"},
			{tool, "--inactivity-probe=60000", "set-connection", listen},
		},
	}
}
