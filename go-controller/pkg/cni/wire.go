package cni

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// DefaultSocket is the socket on which the node process serves the shim.
const DefaultSocket = "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock"

// Commands of the CNI specification that reach the server. VERSION is answered
// by the shim.
const (
	CommandAdd    = "ADD"
	CommandCheck  = "CHECK"
	CommandDel    = "DEL"
	CommandGC     = "GC"
	CommandStatus = "STATUS"
)

// Error codes. Those below 100 are defined by the specification.
const (
	// CodeInvalid says that parameters are missing or wrong.
	CodeInvalid uint = 4
	// CodeDecode says that the configuration cannot be read.
	CodeDecode uint = 6
	// CodeTryAgain says that the same request may succeed later.
	CodeTryAgain uint = 11
	// CodeNotReady says that the node's network is not ready.
	CodeNotReady uint = 50
	// CodeFailed is any other failure.
	CodeFailed uint = 100
	// CodeCheck says that CHECK found a problem.
	CodeCheck uint = 101
)

// Request is one invocation of the plugin.
type Request struct {
	Command     string          `json:"command"`
	ContainerID string          `json:"containerID"`
	Netns       string          `json:"netns"`
	IfName      string          `json:"ifName"`
	Args        string          `json:"args"`
	Config      json.RawMessage `json:"config"`
}

// Pod is the pod that a request is for.
type Pod struct {
	Namespace, Name string
	// UID is the UID given by the runtime; empty if it gives none.
	UID string
}

// String returns "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// ParsePod parses CNI_ARGS, e.g.
// "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=c".
func ParsePod(args string) (Pod, error) {
	var p Pod
	for pair := range strings.SplitSeq(args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "K8S_POD_NAMESPACE":
			p.Namespace = value
		case "K8S_POD_NAME":
			p.Name = value
		case "K8S_POD_UID":
			p.UID = value
		}
	}
	if p.Namespace == "" || p.Name == "" {
		return Pod{}, types.NewError(CodeInvalid, "CNI_ARGS name no pod",
			fmt.Sprintf("K8S_POD_NAMESPACE and K8S_POD_NAME are needed, got %q", args))
	}
	return p, nil
}

// Conf is the part of the network configuration that the plugin uses.
type Conf struct {
	types.PluginConf
	// Socket replaces DefaultSocket.
	Socket string `json:"socket,omitempty"`
}

// ParseConf parses a network configuration.
func ParseConf(data []byte) (Conf, error) {
	var c Conf
	if err := json.Unmarshal(data, &c); err != nil {
		return Conf{}, types.NewError(CodeDecode, "network configuration cannot be read", err.Error())
	}
	if c.Socket == "" {
		c.Socket = DefaultSocket
	}
	return c, nil
}
