package node

import (
	"cmp"
	"fmt"
	"maps"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
)

// recall returns the content of a node's state file. An unreadable file counts as
// empty: the Open vSwitch database has the same state as long as it is not lost.
func recall(path, node string) gateway.Memory {
	content, err := statefile.Read(path)
	var m gateway.Memory
	if err == nil {
		m, err = gateway.ParseMemory(content)
	}
	if err != nil {
		klog.ErrorS(err, "Cannot read the state file of the node", "file", path)
	}
	if m.Node != node {
		return gateway.Memory{Node: node}
	}
	return m
}

// remember applies change to the state stored outside the Open vSwitch database. A
// full disk does not prevent the node from being served: the pass fails only at its end.
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

// lostBridge returns the bridge of a physical network, and its uplink, that the database has lost
// while the host still has that uplink; "" if there is none.
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

// WithLost returns the external_ids of Open_vSwitch and, if its database was lost, the ones that node's
// state file has in addition.
func WithLost(have map[string]string, stateFile, node string) map[string]string {
	remembered := recall(stateFile, node).System
	if !isLost(have, remembered) {
		return have
	}
	all := maps.Clone(remembered)
	for key, value := range have {
		all[key] = cmp.Or(value, all[key])
	}
	return all
}

// isLost reports whether the database was lost, given its external_ids and the ones it had.
func isLost(have, remembered map[string]string) bool {
	return have[idEncapIP] == "" && remembered[idEncapIP] != ""
}

// lostIDs returns the external_ids that a database has lost, given its current ones: start
// scripts may have set some, including the identity. The ones that make ovn-controller use
// the bridges are written at the end of a pass.
func lostIDs(have, remembered map[string]string) (map[string]string, error) {
	lost := map[string]string{}
	if !isLost(have, remembered) {
		return lost, nil
	}
	for key, value := range remembered {
		switch key {
		case idEncapIP, idMappings, idRemote:
		case settings.Record: // others may have recorded parameters before this pass
			merged, err := settings.Merge(value, have[key])
			if err != nil {
				return nil, err
			}
			if merged != have[key] {
				lost[key] = merged
			}
		default:
			if have[key] == "" {
				lost[key] = value
			}
		}
	}
	return lost, nil
}
