package app

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"

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

// nodeNeighbor returns the addresses of another node on the primary network of node self, at most one for each family.
func nodeNeighbor(nodes corelisters.NodeLister, self, other string) []netip.Addr {
	var found [2]topology.Node
	for i, name := range []string{self, other} {
		n, err := nodes.Get(name)
		if err != nil {
			return nil // it was deleted, or is not known yet
		}
		found[i], _ = kube.Node(n) // invalid annotations are left out
	}
	var addrs []netip.Addr
	for _, p := range found[0].Primary {
		network := p.Masked()
		a := found[1].HostAddr(network)
		// Its other addresses there may move to other hosts.
		if own, ok := topology.PrefixOf(topology.FamilyOf(p.Addr()), found[1].Primary); ok && own.Masked() == network {
			a = own.Addr()
		}
		if a.IsValid() {
			addrs = append(addrs, a)
		}
	}
	return addrs
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
