package gateway

import (
	"encoding/json"
	"fmt"
)

// Memory is what a node keeps outside of the Open vSwitch database, for when that, or
// the bridge in it, is lost.
type Memory struct {
	// Bridge is the name of the external bridge, Record what its row remembers.
	Bridge string `json:"bridge,omitempty"`
	Record Record `json:"record"`
	// System are the external_ids of Open_vSwitch, whoever has set them: the identity of
	// the node and the type of its datapath are among them.
	System map[string]string `json:"system,omitempty"`
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
