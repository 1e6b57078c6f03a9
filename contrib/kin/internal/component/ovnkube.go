package component

import (
	"fmt"
	"strings"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// Ports on which ovnkube serves metrics.
const (
	masterMetricsPort = 9409
	nodeMetricsPort   = 9410
	// tracePort is the port at which nodes answer trace requests.
	tracePort = 9413
)

// ovnkubeMaster and ovnkubeNode are separate processes, so that each can be
// stopped without the other.
func (n Node) ovnkubeMaster() supervise.Unit {
	return supervise.Unit{
		Name:   OvnkubeMaster,
		Before: [][]string{n.account(masterAccount, noNode)},
		Exec:   n.ovnkube("--init-master", masterMetricsPort, masterAccount, n.Config.Ovnkube.MasterArgs),
		After:  []string{APIServer, Northbound, Southbound, Northd},
	}
}

func (n Node) ovnkubeNode() supervise.Unit {
	return supervise.Unit{
		Name: OvnkubeNode,
		Before: [][]string{
			{"install", "-m", "0755", OvnkubeDir + "/" + cniShim, CNIBinDir + "/" + cniShim},
			n.account(nodeAccount, n.Name),
		},
		Exec:  n.ovnkube("--init-node", nodeMetricsPort, nodeAccount, n.nodeArgs()),
		After: []string{VSwitch},
	}
}

func (n Node) nodeArgs() []string {
	return append([]string{"--trace-bind-address=" + plan.HostPort(n.Primary(), tracePort)}, n.Config.Ovnkube.NodeArgs...)
}

const cniShim = "ovn-k8s-cni-overlay"

func (n Node) ovnkube(role string, metricsPort int, account string, extra []string) []string {
	args := []string{"ovnkube", role, n.Name,
		"--k8s-kubeconfig=" + accountKubeconfig(account),
		"--cluster-subnets=" + strings.Join(n.Config.PodSubnets(), ","),
		"--k8s-service-cidrs=" + joined(n.Config.ServiceSubnets()),
		"--gateway-mode=" + n.Config.GatewayMode,
		"--gateway-interface=" + UplinkName,
		"--nb-address=" + n.database(plan.NorthboundPort),
		"--sb-address=" + n.database(plan.SouthboundPort),
		"--encap-ip=" + n.Primary().String(),
		"--nodeport", "--enable-egress-ip", "--enable-egress-service", "--enable-multi-external-gateway",
		"--loglevel=4",
		"--metrics-bind-address=" + plan.HostPort(n.Primary(), metricsPort), "--metrics-insecure",
	}
	return append(append(args, n.Config.Ovnkube.Args...), extra...)
}

// UplinkName is the name of the node's interface on the wire at boot.
const UplinkName = "eth0"

// MastersDatabases returns the addresses at which masters reach the databases that run in pods, by the keys
// of the ConfigMap.
func MastersDatabases(server plan.Node) map[string]string {
	database := func(port int) string { return "ssl:" + plan.HostPort(server.Primary(), port) }
	return map[string]string{"northbound": database(plan.NorthboundPort), "masters-southbound": database(plan.MastersSouthboundPort)}
}

// OvnkubeConfig returns ovnkube's configuration file for a cluster whose control plane
// is the node server: the settings that its daemons get as flags if it does not run
// as pods.
func OvnkubeConfig(c config.Cluster, server plan.Node) string {
	return fmt.Sprintf(`[default]
cluster-subnets=%s
[logging]
loglevel=4
[kubernetes]
apiserver=%s
service-cidrs=%s
[ovnsouth]
address=ssl:%s
[gateway]
mode=%s
interface=%s
nodeport=true
[ovnkubernetesfeature]
enable-egress-service=true
enable-egress-ip=true
enable-multi-external-gateway=true
`, strings.Join(c.PodSubnets(), ","), Server(server), joined(c.ServiceSubnets()),
		plan.HostPort(server.Primary(), plan.SouthboundPort), c.GatewayMode, UplinkName)
}
