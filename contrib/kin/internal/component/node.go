package component

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// Names of daemons, as kin logs and kin service take them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	OVSDatabase       = "ovsdb-server"
	VSwitch           = "ovs-vswitchd"
	Northbound        = "ovn-nb"
	Southbound        = "ovn-sb"
	Northd            = "ovn-northd"
	OVNController     = "ovn-controller"
	OvnkubeMaster     = "ovnkube-master"
	OvnkubeNode       = "ovnkube-node"
)

// Directories of a node that kin fills.
const (
	// ProgramDir has a link for each Kubernetes program.
	ProgramDir = "/opt/bin"
	// KinDir and OvnkubeDir are bind mounts of the directories that the programs were built into.
	KinDir = "/opt/kin/bin"
	// BusyboxDir has links to busybox for programs that the system lacks.
	BusyboxDir = "/opt/busybox"
	OvnkubeDir = "/opt/ovnkube/bin"
	// CNIBinDir is where containerd looks for CNI plugins.
	CNIBinDir = "/opt/cni/bin"
	pkiDir    = "/etc/kubernetes/pki"
	// AdminKubeconfig is the administrator's kubeconfig on every node.
	AdminKubeconfig = "/etc/kubernetes/admin.conf"
)

// Programs are the names under which kin-kubernetes is linked in ProgramDir.
var Programs = []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet, "kubectl"}

// CNIPlugins are the CNI plugins on a node that ovnkube does not provide: the one that
// containerd needs, and the one that maps host ports to pods.
var CNIPlugins = []string{"loopback", "portmap"}

// Node is the input for the daemons' configuration.
type Node struct {
	plan.Node
	Config config.Cluster
	// Server is the control plane.
	Server plan.Node
	// ChassisID is the OVS system-id.
	ChassisID string
	// Ovnkube says whether ovnkube runs.
	Ovnkube bool
	// Pods says whether ovnkube and OVN run as pods of the cluster, from manifests. Open vSwitch
	// runs as a daemon of the node in either case.
	Pods bool
}

// Environment returns the environment of everything that runs on the node.
func (n Node) Environment() []string {
	env := append(HostEnvironment(), "KUBECONFIG="+AdminKubeconfig, "KUBECACHEDIR=/var/cache/kubectl")
	if !n.ControlPlane() {
		env = append(env, "OVN_NB_DB="+n.database(plan.NorthboundPort), "OVN_SB_DB="+n.database(plan.SouthboundPort))
	}
	return env
}

// HostEnvironment is the environment of a machine outside the cluster.
func HostEnvironment() []string {
	return []string{"PATH=" + strings.Join([]string{
		ProgramDir, KinDir, OvnkubeDir, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", BusyboxDir,
	}, ":")}
}

// Units lists the node's daemons.
func (n Node) Units() []supervise.Unit {
	var units []supervise.Unit
	if n.ControlPlane() {
		units = append(units, n.etcd(), n.apiServer(), n.controllerManager(), n.scheduler())
		if !n.Pods {
			units = append(units, n.central()...)
		}
	}
	units = append(units, n.ovsdb(), n.vswitch())
	if !n.Pods {
		units = append(units, n.ovnController())
	}
	units = append(units, n.containerd(), n.kubelet())
	if n.Ovnkube && !n.Pods {
		if n.ControlPlane() {
			units = append(units, n.ovnkubeMaster())
		}
		units = append(units, n.ovnkubeNode())
	}
	return units
}

// apiServerAddress returns the address at which the node's programs reach the API server.
func (n Node) apiServerAddress() string {
	return plan.HostPort(n.Server.Primary(), plan.APIServerPort)
}

// Server is the API server's URL on the wire.
func Server(server plan.Node) string {
	return "https://" + plan.HostPort(server.Primary(), plan.APIServerPort)
}

func (n Node) database(port int) string {
	return "tcp:" + plan.HostPort(n.Server.Primary(), port)
}

// anyAddress is the address on which a server listens for all families.
func (n Node) anyAddress() string {
	if _, ipv6 := n.Config.Families(); ipv6 {
		return "::"
	}
	return "0.0.0.0"
}

// await is the step that waits for the control plane: without it all daemons that
// start at the same time would fail once and back off.
func (n Node) await() []string { return hook(hookAwaitTCP, n.apiServerAddress()) }

func joined[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = item.String()
	}
	return strings.Join(texts, ",")
}

func addrs(list []netip.Addr) string { return joined(list) }
