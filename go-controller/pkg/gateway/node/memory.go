package node

import (
	"fmt"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
)

// recall returns what a state file has of a node. One that cannot be read is as good as
// none: the Open vSwitch database has the same as long as nobody loses it.
func recall(path, node string) gateway.Memory {
	content, err := statefile.Read(path)
	var m gateway.Memory
	if err == nil {
		m, err = gateway.ParseMemory(content)
	}
	if err != nil {
		klog.ErrorS(err, "Cannot tell what was recorded of the host outside of the Open vSwitch database", "file", path)
	}
	if m.Node != node {
		return gateway.Memory{Node: node}
	}
	return m
}

// remember has change edit what the node keeps outside of the Open vSwitch database. A
// disk that is full keeps no node from being served: the pass fails at its end.
func (g *Gateway) remember(change func(*gateway.Memory)) {
	change(&g.memory)
	changed, err := statefile.Write(g.StateFile, g.memory.Encode(), 0o600)
	if changed {
		klog.V(2).InfoS("Recorded the host outside of the Open vSwitch database", "file", g.StateFile)
	}
	if g.unrecorded = err; err != nil {
		g.unrecorded = fmt.Errorf("record the host outside of the Open vSwitch database: %w", err)
	}
}

// lostBridge returns the bridge of a physical network, and its uplink, that the database has lost,
// where the host still has that uplink; "" where there is none.
func (g *Gateway) lostBridge(p physicalNetwork) (name, uplink string, err error) {
	m := g.memory.Of(p.network)
	if m.Bridge == "" || p.iface != "" && p.iface != m.Bridge && p.iface != m.Record.Uplink {
		return "", "", nil
	}
	exists, err := link.Exists(m.Record.Uplink)
	if err != nil || !exists {
		return "", "", err
	}
	return m.Bridge, m.Record.Uplink, nil
}

// lostIDs returns the external_ids that a database has lost, given what it has: start
// scripts may have set some, the identity among them. Those that have ovn-controller take
// the bridges into use come at the end of a pass.
func lostIDs(have, remembered map[string]string) map[string]string {
	lost := map[string]string{}
	if have[idEncapIP] != "" || remembered[idEncapIP] == "" {
		return lost
	}
	for key, value := range remembered {
		switch key {
		case idEncapIP, idMappings, idRemote:
		default:
			if have[key] == "" {
				lost[key] = value
			}
		}
	}
	return lost
}
