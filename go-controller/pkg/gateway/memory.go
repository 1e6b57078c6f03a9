package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Remembered is the stored state of an external bridge.
type Remembered struct {
	// Bridge is the name of the external bridge, MAC its MAC address, which is that of the uplink if ovnkube created
	// the bridge, and Record the content of its row.
	Bridge string `json:"bridge,omitempty"`
	MAC    string `json:"mac,omitempty"`
	Record Record `json:"record"`
}

// Memory is the state that a node stores outside the Open vSwitch database, in case the database
// or the bridge in it is lost.
type Memory struct {
	// Node is the owner: on a copy of the machine's disk, the state belongs to another node.
	Node string `json:"node"`
	// Remembered is the state of the ordinary external bridge, Second that of the bridge for external gateways.
	Remembered
	Second *Remembered `json:"second,omitempty"`
	// System are the external_ids of Open_vSwitch, whoever has set them, including the identity of
	// the node and the type of its datapath.
	System map[string]string `json:"system,omitempty"`
}

// Of returns the state of the bridge of a physical network.
func (m Memory) Of(network string) Remembered {
	switch {
	case network == topology.PhysicalNetwork:
		return m.Remembered
	case m.Second != nil:
		return *m.Second
	}
	return Remembered{}
}

// Keep stores r for the bridge of a physical network.
func (m *Memory) Keep(network string, r Remembered) {
	switch {
	case network == topology.PhysicalNetwork:
		m.Remembered = r
	case r.Bridge == "":
		m.Second = nil
	default:
		m.Second = &r
	}
}

// Bridges returns the stored state of all bridges.
func (m Memory) Bridges() []Remembered {
	var out []Remembered
	for _, network := range networks {
		if r := m.Of(network); r.Bridge != "" {
			out = append(out, r)
		}
	}
	return out
}

// Encode encodes the content of the state file.
func (m Memory) Encode() []byte {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode what the node remembers: %v", err)) // cannot happen: plain values only
	}
	return append(b, '\n')
}

// ParseMemory decodes the content of the state file; empty content is the zero Memory.
func ParseMemory(content []byte) (Memory, error) {
	var m Memory
	if len(content) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return Memory{}, fmt.Errorf("parse the state file of the node: %w", err)
	}
	return m, nil
}
