package machine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// Spec is the complete description of a machine; it is stored in the machine's directory so that
// the machine can be booted again.
type Spec struct {
	Cluster  string `json:"cluster"`
	Hostname string `json:"hostname"`
	// Cgroup is the path of the machine's group below the root of every hierarchy.
	Cgroup string `json:"cgroup"`
	// CPUWeight is the weight of the first component of Cgroup, like the kernel's cpu.weight.
	// 0 leaves it unchanged.
	CPUWeight int `json:"cpuWeight,omitempty"`
	// Disk is the directory that survives a reboot. Its etc, opt, tmp and var
	// replace those of the machine that kin runs on. Without a disk the machine sees
	// the latter.
	Disk string `json:"disk,omitempty"`
	// Binds are further bind mounts, made before /tmp is covered.
	Binds []Bind `json:"binds,omitempty"`
	// Bridges make the machine a switch.
	Bridges []Bridge `json:"bridges,omitempty"`
	// Uplinks are the cables to switches.
	Uplinks []Uplink `json:"uplinks,omitempty"`
	// Sysctls are written in order once the machine has its interfaces; keys are
	// paths below /proc/sys.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	// Forward is the address to which connections to the listener passed to Boot
	// are forwarded.
	Forward string `json:"forward,omitempty"`
	// Env is the environment of everything that runs in the machine.
	Env []string `json:"env,omitempty"`
	// Units are the machine's daemons.
	Units []supervise.Unit `json:"units,omitempty"`
}

// Bind makes a directory (or a file) of the machine that kin runs on visible in the machine.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Bridge is a switch.
type Bridge struct {
	Name      string         `json:"name"`
	Addresses []netip.Prefix `json:"addresses"`
	Frames    Frames         `json:"frames,omitempty"`
}

// Uplink is a veth whose other end is a port of the switch.
type Uplink struct {
	// Name is the interface in the machine, Port its end on the switch, which is
	// the bridge of that name.
	Name      string         `json:"name"`
	Port      string         `json:"port"`
	Bridge    string         `json:"bridge"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu"`
	Frames    Frames         `json:"frames,omitempty"`
	Addresses []netip.Prefix `json:"addresses"`
	// Gateways are next hops of default routes.
	Gateways []netip.Addr `json:"gateways,omitempty"`
}

// Frames is the state of frames on a cable or switch.
type Frames string

const (
	// FramesFinished have their checksum and are no longer than the MTU: a
	// userspace switch forwards what it reads from a cable unchanged.
	FramesFinished Frames = ""
	// FramesOffloaded leave checksum and segmentation to hardware, as on a
	// machine with an ordinary network card.
	FramesOffloaded Frames = "offloaded"
)

// Sysctl is one kernel setting, e.g. net/ipv4/ip_forward = 1.
type Sysctl struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Files of a machine's directory.
const (
	specFile = "machine.json"
	pidFile  = "init.pid"
	logFile  = "init.log"
	diskDir  = "disk"
)

// Dir is the directory of a machine's files, on the machine that kin runs on.
type Dir string

// Disk is the machine's disk.
func (d Dir) Disk() string { return filepath.Join(string(d), diskDir) }

// InitLog is the log of the first process.
func (d Dir) InitLog() string { return filepath.Join(string(d), logFile) }

// LogDir is the directory of the logs of the machine's daemons.
func (d Dir) LogDir() string { return d.Disk() + supervise.LogDir }

// Save writes the machine's description.
func (d Dir) Save(s Spec) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine: %w", err)
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("make machine directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(string(d), specFile), text, 0o600); err != nil {
		return fmt.Errorf("write machine: %w", err)
	}
	return nil
}

// Load reads the machine's description.
func (d Dir) Load() (Spec, error) {
	var s Spec
	text, err := os.ReadFile(filepath.Join(string(d), specFile))
	if err != nil {
		return s, fmt.Errorf("read machine: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read machine %s: %w", d, err)
	}
	return s, nil
}
