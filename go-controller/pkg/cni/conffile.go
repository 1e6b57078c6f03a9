package cni

import (
	"encoding/json"
	"fmt"
)

// ConfFileName is the name of the configuration file; it sorts before those of
// most other plugins.
const ConfFileName = "10-ovn-kubernetes.conflist"

// FormerConfFileName is the name of the former file, which configured this plugin only. If
// both files exist, runtimes use the first, which is the former one.
const FormerConfFileName = "10-ovn-kubernetes.conf"

// NetworkName is the name of the cluster's network in configurations.
const NetworkName = "ovn-kubernetes"

// PortMap is the standard plugin that maps host ports to ports of a pod.
const PortMap = "portmap"

// ConfFile returns the network configuration for the container runtime. plugin is the name
// of the executable. socket is included only if it is not the default. With hostPorts the
// runtime calls PortMap after attaching a pod to map the host ports that the pod requests.
func ConfFile(plugin, socket string, hostPorts bool) []byte {
	type step struct {
		Type         string          `json:"type"`
		Socket       string          `json:"socket,omitempty"`
		Capabilities map[string]bool `json:"capabilities,omitempty"`
	}
	steps := []step{{Type: plugin}}
	if socket != DefaultSocket {
		steps[0].Socket = socket
	}
	if hostPorts {
		steps = append(steps, step{Type: PortMap, Capabilities: map[string]bool{"portMappings": true}})
	}
	text, err := json.MarshalIndent(struct {
		Version string `json:"cniVersion"`
		Name    string `json:"name"`
		Plugins []step `json:"plugins"`
	}{SpecVersion, NetworkName, steps}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encode the network configuration: %v", err)) // strings only
	}
	return append(text, '\n')
}
