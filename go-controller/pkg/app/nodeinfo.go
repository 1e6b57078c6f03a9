package app

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nodeinfo"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// viewNodes adds the master's view of nodes, which all its readers share.
func (m *master) viewNodes(core informers.SharedInformerFactory) error {
	var err error
	m.nodes, err = nodeinfo.New(nodeinfo.Deps{
		Nodes:   core.Core().V1().Nodes(),
		Cluster: nodeLimits(m.env.Config),
		Owns:    nodeinfo.ByMaster(),
		Settle:  nodeinfo.Settle,
		Recall: func(node string) map[string]string {
			return kube.FormatNode(network.Recall(node, m.writer.Rows(network.Owner(node))))
		},
		Refused: func(n *corev1.Node, err error) {
			m.recorder.Event(n, corev1.EventTypeWarning, network.ReasonRefused, err.Error())
		},
	})
	m.runners["nodes"] = m.nodes
	return err
}

// viewSelf adds the node's view of itself. The master reports invalid annotations.
func (n *node) viewSelf(self informers.SharedInformerFactory) error {
	var err error
	n.self, err = nodeinfo.New(nodeinfo.Deps{
		Nodes: self.Core().V1().Nodes(), Cluster: nodeLimits(n.env.Config), Owns: nodeinfo.ByNode(), Settle: nodeinfo.Settle,
	})
	n.runners["this node"] = n.self
	return err
}

// viewNodes adds the node's view of all nodes. The master reports invalid annotations.
func (n *node) viewNodes(core informers.SharedInformerFactory) (*nodeinfo.View, error) {
	all, err := nodeinfo.New(nodeinfo.Deps{
		Nodes: core.Core().V1().Nodes(), Cluster: nodeLimits(n.env.Config), Settle: nodeinfo.Settle,
	})
	n.runners["all nodes"] = all
	return all, err
}

// nodeLimits returns the part of the configuration against which annotations of nodes are
// validated.
func nodeLimits(cfg config.Config) nodeinfo.Cluster {
	ranges := egressIPNetwork(cfg)
	c := nodeinfo.Cluster{
		NodeBits: map[topology.Family]int{},
		Cluster:  ranges.Cluster, Service: ranges.Service, Join: ranges.Join, Masquerade: ranges.Masquerade,
	}
	for _, s := range cfg.Default.ClusterSubnets {
		f := topology.FamilyOf(s.CIDR.Addr())
		if bits, ok := c.NodeBits[f]; !ok || s.HostPrefixLen < bits {
			c.NodeBits[f] = s.HostPrefixLen
		}
	}
	return c
}
