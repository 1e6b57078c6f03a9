package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Remembered is what a node keeps of an external bridge.
type Remembered struct {
	// Bridge is the name of the external bridge, Record what its row remembers.
	Bridge string `json:"bridge,omitempty"`
	Record Record `json:"record"`
}

// Memory is what a node keeps outside of the Open vSwitch database, for when that, or
// the bridge in it, is lost.
type Memory struct {
	// Node is whose this is: what a copy of the machine's disk has is another node's.
	Node string `json:"node"`
	// Remembered is of the ordinary external bridge, Second of that for external gateways.
	Remembered
	Second *Remembered `json:"second,omitempty"`
	// System are the external_ids of Open_vSwitch, whoever has set them: the identity of
	// the node and the type of its datapath are among them.
	System map[string]string `json:"system,omitempty"`
}

// Of returns what is kept of the bridge of a physical network.
func (m Memory) Of(network string) Remembered {
	switch {
	case network == topology.PhysicalNetwork:
		return m.Remembered
	case m.Second != nil:
		return *m.Second
	}
	return Remembered{}
}

// Keep keeps r of the bridge of a physical network.
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

// Bridges are all that is kept of bridges.
func (m Memory) Bridges() []Remembered {
	var out []Remembered
	for _, network := range networks {
		if r := m.Of(network); r.Bridge != "" {
			out = append(out, r)
		}
	}
	return out
}

// Encode returns the content of a file.
func (m Memory) Encode() []byte {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode what the node remembers: %v", err)) // plain values only
	}
	return append(b, '\n')
}

// ParseMemory decodes the content of a file; none is the zero Memory.
func ParseMemory(content []byte) (Memory, error) {
	var m Memory
	if len(content) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return Memory{}, fmt.Errorf("parse what the node remembers: %w", err)
	}
	return m, nil
}
