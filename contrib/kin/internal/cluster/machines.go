package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/build"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
)

// chassisFile is the file in which Debian's Open vSwitch stores its system-id, too.
const chassisFile = "etc/openvswitch/system-id.conf"

// prepareNode creates a node's disk and description.
func (c *Cluster) prepareNode(n plan.Node) error {
	d := c.Machine(n.Name)
	if err := machine.MakeDisk(d.Disk(), n.Name, c.hosts()); err != nil {
		return err
	}
	chassis, err := newUUID()
	if err != nil {
		return err
	}
	if c.Install == InstallManifests {
		chassis = n.Name // as in the node's certificate
	}
	node := component.Node{Node: n, Config: c.Config, Server: c.Nodes()[0], ChassisID: chassis, Ovnkube: c.Ovnkube, Pods: c.Install == InstallManifests}
	files, err := node.Files()
	if err != nil {
		return err
	}
	files["/"+chassisFile] = []byte(chassis + "\n")
	for path, text := range files {
		if err := writeFile(filepath.Join(d.Disk(), path), text, 0o644); err != nil {
			return err
		}
	}
	if err := c.installPrograms(d); err != nil {
		return err
	}
	uplinks, interfaces := c.nodeUplinks(n)
	return d.Save(machine.Spec{
		Cluster: c.name, Hostname: n.Name, Cgroup: c.cgroup() + "/" + n.Name, CPUWeight: c.Config.CPUWeight, Disk: d.Disk(), Binds: c.programBinds(),
		Uplinks: uplinks,
		Sysctls: append(machine.QuietSysctls(interfaces...), machine.ForwardSysctls()...),
		Env:     node.Environment(),
		Units:   node.Units(),
	})
}

// nodeUplinks returns a node's cables, and the names of its interfaces. The default
// route uses the nodes' own network.
func (c *Cluster) nodeUplinks(n plan.Node) (uplinks []machine.Uplink, interfaces []string) {
	for _, network := range plan.Networks(c.Config) {
		u := machine.Uplink{
			Name: network.Interface, Port: fmt.Sprintf("node%d", n.Index), Bridge: network.Bridge,
			MAC: network.NodeMAC(n), MTU: mtu, Frames: c.frames(), Addresses: network.Node(n),
		}
		if network.Index > 0 {
			u.Port = fmt.Sprintf("node%d.%d", n.Index, network.Index)
		} else {
			for _, g := range network.Gateways() {
				u.Gateways = append(u.Gateways, g.Addr())
			}
		}
		uplinks, interfaces = append(uplinks, u), append(interfaces, u.Name)
	}
	return uplinks, interfaces
}

// frames returns the kind of frames that the nodes' switches can read.
func (c *Cluster) frames() machine.Frames {
	if c.Config.Datapath == config.DatapathKernel {
		return machine.FramesOffloaded
	}
	return machine.FramesFinished
}

// installPrograms puts the programs on a disk that must be the machine's own files.
func (c *Cluster) installPrograms(d machine.Dir) error {
	programs := filepath.Join(d.Disk(), component.ProgramDir)
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return fmt.Errorf("make program directory: %w", err)
	}
	for _, name := range component.Programs {
		err := os.Symlink(component.KinDir+"/kin-kubernetes", filepath.Join(programs, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link program: %w", err)
		}
	}
	for _, name := range component.CNIPlugins {
		program, err := os.ReadFile(filepath.Join(c.artifacts().Bin(), name))
		if err != nil {
			return fmt.Errorf("read CNI plugin: %w", err)
		}
		if err := writeFile(filepath.Join(d.Disk(), component.CNIBinDir, name), program, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) programBinds() []machine.Bind {
	binds := append(machine.EtcBinds(),
		machine.Bind{Source: c.artifacts().Bin(), Target: component.KinDir, ReadOnly: true},
		machine.Bind{Source: c.artifacts().Busybox(), Target: component.BusyboxDir, ReadOnly: true})
	if _, err := os.Stat(c.Paths.OvnkubeBin); err == nil {
		binds = append(binds, machine.Bind{Source: c.Paths.OvnkubeBin, Target: component.OvnkubeDir, ReadOnly: true})
	}
	return binds
}

func (c *Cluster) artifacts() build.Artifacts { return build.Artifacts(c.Paths.Artifacts) }

// prepareWire describes the wire: a switch for each network, which is the gateway of its
// machines, and the forwarder from this machine to the API server.
func (c *Cluster) prepareWire() error {
	var bridges []machine.Bridge
	var interfaces []string
	for _, n := range plan.Networks(c.Config) {
		bridges = append(bridges, machine.Bridge{Name: n.Bridge, Addresses: n.Gateways(), Frames: c.frames()})
		interfaces = append(interfaces, n.Bridge)
	}
	return c.Machine(WireName).Save(machine.Spec{
		Cluster: c.name, Hostname: WireName, Cgroup: c.cgroup() + "/" + WireName, CPUWeight: c.Config.CPUWeight,
		Bridges: bridges,
		Sysctls: append(append(machine.QuietSysctls(interfaces...), machine.ForwardSysctls()...),
			machine.Sysctl{Key: "net/bridge/bridge-nf-call-iptables", Value: "0"},
			machine.Sysctl{Key: "net/bridge/bridge-nf-call-ip6tables", Value: "0"},
			machine.Sysctl{Key: "net/bridge/bridge-nf-call-arptables", Value: "0"}),
		Forward: plan.HostPort(c.Nodes()[0].Primary(), plan.APIServerPort),
	})
}

// bootWire starts the wire with the listener that its forwarder takes over.
func (c *Cluster) bootWire(listener *net.TCPListener) error {
	file, err := listener.File()
	if err != nil {
		return fmt.Errorf("hand over listener: %w", err)
	}
	defer file.Close()
	_, err = machine.Boot(c.Machine(WireName), nil, file)
	return err
}

// boot starts a machine that is plugged into the wire.
func (c *Cluster) boot(name string) error {
	d := c.Machine(name)
	spec, err := d.Load()
	if err != nil {
		return err
	}
	wire, on := c.Machine(WireName).Running()
	if !on {
		return errors.New("the wire is not running; the cluster has to be created anew")
	}
	_, err = machine.Boot(d, func(p machine.Process) error {
		for _, u := range spec.Uplinks {
			if err := machine.Plug(wire, u, p); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	return err
}

// unplug removes a machine's cables.
func (c *Cluster) unplug(name string) error {
	spec, err := c.Machine(name).Load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	wire, on := c.Machine(WireName).Running()
	if !on {
		return nil
	}
	for _, u := range spec.Uplinks {
		if err := machine.Unplug(wire, u.Port); err != nil {
			return err
		}
	}
	return nil
}

// hosts returns the nodes' /etc/hosts.
func (c *Cluster) hosts() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for _, n := range c.Nodes() {
		for _, a := range n.Addresses {
			fmt.Fprintf(&b, "%s %s\n", a.Addr(), n.Name)
		}
	}
	return b.String()
}

func writeFile(path string, text []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

func newUUID() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make identity: %w", err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
