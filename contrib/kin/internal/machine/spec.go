package machine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// Spec is everything a machine is; it lies in the machine's directory so that
// the machine can be booted again.
type Spec struct {
	Cluster  string `json:"cluster"`
	Hostname string `json:"hostname"`
	// Cgroup is the machine's place below the root of every hierarchy.
	Cgroup string `json:"cgroup"`
	// CPUWeight is that of the first part of Cgroup, as of the kernel's cpu.weight.
	// 0 leaves it as it is.
	CPUWeight int `json:"cpuWeight,omitempty"`
	// Disk is the directory that survives a reboot. Its etc, opt, tmp and var
	// take the place of the machine-wide ones. Without a disk the machine sees
	// those of the machine kin runs on.
	Disk string `json:"disk,omitempty"`
	// Binds are further directories to see, made before /tmp is covered.
	Binds []Bind `json:"binds,omitempty"`
	// Bridges make the machine a switch.
	Bridges []Bridge `json:"bridges,omitempty"`
	// Uplinks are the cables to switches.
	Uplinks []Uplink `json:"uplinks,omitempty"`
	// Sysctls are written in order once the machine has its interfaces; keys are
	// paths below /proc/sys.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	// Forward is the address that connections to the listener passed to Boot
	// are carried to.
	Forward string `json:"forward,omitempty"`
	// Env is the environment of everything that runs in the machine.
	Env []string `json:"env,omitempty"`
	// Units are the machine's daemons.
	Units []supervise.Unit `json:"units,omitempty"`
}

// Bind shows a directory (or a file) of the machine kin runs on inside.
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

// Frames says in what state frames travel on a cable or switch.
type Frames string

const (
	// FramesFinished have their checksum and are no longer than the MTU: what a
	// switch in user space reads from a cable it hands on as it is.
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

// Dir is where a machine's files are, on the machine kin runs on.
type Dir string

// Disk is the machine's disk.
func (d Dir) Disk() string { return filepath.Join(string(d), diskDir) }

// InitLog holds what the first process had to say.
func (d Dir) InitLog() string { return filepath.Join(string(d), logFile) }

// LogDir holds the logs of the machine's daemons.
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
