package cni

import (
	"encoding/json"
	"fmt"
)

// ConfFileName is the name of the configuration file; it sorts before those of
// most other plugins.
const ConfFileName = "10-ovn-kubernetes.conf"

// NetworkName is the name of the cluster's network in configurations.
const NetworkName = "ovn-kubernetes"

// ConfFile returns the network configuration for the container runtime. plugin
// is the name of the executable. socket is named only where it is not the default.
func ConfFile(plugin, socket string) []byte {
	if socket == DefaultSocket {
		socket = ""
	}
	text, err := json.MarshalIndent(struct {
		Version string   `json:"cniVersion"`
		Name    string   `json:"name"`
		Type    string   `json:"type"`
		IPAM    struct{} `json:"ipam"`
		DNS     struct{} `json:"dns"`
		Socket  string   `json:"socket,omitempty"`
	}{Version: SpecVersion, Name: NetworkName, Type: plugin, Socket: socket}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode the network configuration: %v", err)) // strings only
	}
	return append(text, '\n')
}
