package plane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Host is a machine on which the agent of a node runs: a network namespace with an uplink
// that is connected to nothing, a link to the API server, and Open vSwitch in user space.
type Host struct {
	Switch *Process // ovs-vswitchd
	plane  *Plane
	node   topology.Node
	ns     int // file descriptor of the network namespace
}

const (
	uplink = "eth0"
	// ExternalBridge is the bridge that the agent creates for the uplink.
	ExternalBridge = "br" + uplink
	// apiLink is the agent's link to the API server, apiPeer its other end.
	apiLink, apiPeer = "api", "api-peer"
	runOVS           = "/run/openvswitch"
)

// The addresses of the link to the API server.
var (
	apiAddr   = netip.MustParsePrefix("192.168.255.1/30")
	agentAddr = netip.MustParsePrefix("192.168.255.2/30")
)

// StartHost creates a machine for a node, and runs everything there that ovnkube expects.
func (p *Plane) StartHost(ctx context.Context, node topology.Node) (*Host, error) {
	h := &Host{plane: p, node: node}
	// The agent keeps its state there.
	if err := unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount /var/lib: %w", err)
	}
	home, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	defer unix.Close(home)
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if h.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open the network namespace: %w", err)
		}
		// sysfs shows the links of the network namespace of the process that mounts it.
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return fmt.Errorf("mount /sys: %w", err)
		}
		return h.makeLinks(home)
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(addAddress(apiPeer, apiAddr), p.writeKubeconfig("agent.kubeconfig", "https://"+apiAddr.Addr().String()+":"+apiPort, agentUser)); err != nil {
		return nil, err
	}
	return h, h.startSwitch(ctx)
}

// onThread calls f on a separate thread, which then ends.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		done <- f()
	}()
	return <-done
}

// inside calls f in the network namespace. Processes that f starts run in it, too.
func (h *Host) inside(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(h.ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// makeLinks creates the links in the namespace of the calling thread.
func (h *Host) makeLinks(home int) error {
	const wire = "wire" // the other end of the uplink, which answers nobody
	for _, pair := range [][2]string{{uplink, wire}, {apiLink, apiPeer}} {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: pair[0]}, PeerName: pair[1]}); err != nil {
			return fmt.Errorf("make link %s: %w", pair[0], err)
		}
	}
	peer, err := netlink.LinkByName(apiPeer)
	if err == nil {
		err = netlink.LinkSetNsFd(peer, home)
	}
	if err != nil {
		return fmt.Errorf("lead to the API server: %w", err)
	}
	var wireErr error
	if link, err := netlink.LinkByName(wire); err != nil {
		wireErr = err
	} else {
		wireErr = errors.Join(netlink.LinkSetARPOff(link), netlink.LinkSetUp(link))
	}
	if err := errors.Join(wireErr, addAddress("lo", netip.Prefix{}), addAddress(apiLink, agentAddr), addAddress(uplink, h.node.Primary[0])); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Gw: h.node.Gateway.NextHops[0].AsSlice()})
}

// addAddress gives a link an address, if any, and sets it up.
func addAddress(name string, prefix netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err == nil && prefix.IsValid() {
		err = netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(prefix.Addr(), prefix.Bits()))})
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set up link %s: %w", name, err)
	}
	return nil
}

// startSwitch runs Open vSwitch, with the settings that a node's start scripts write into its database.
func (h *Host) startSwitch(ctx context.Context) error {
	if err := os.MkdirAll(runOVS, 0o755); err != nil {
		return err
	}
	database, socket := h.plane.path("vswitch.db"), filepath.Join(runOVS, "db.sock")
	if err := tool("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return err
	}
	return h.inside(func() error {
		server, err := h.plane.start("ovsdb-vswitch", "ovsdb-server", "--no-chdir", "-vconsole:warn", "-vsyslog:off", "-vfile:off",
			"--unixctl="+h.plane.path("vswitch.ctl"), "--remote=punix:"+socket, database)
		if err != nil {
			return err
		}
		if err := server.ready(ctx, func() error { return tool("ovs-vsctl", "--no-wait", "init") }); err != nil {
			return err
		}
		if err := tool("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", "external_ids:system-id="+h.node.Chassis,
			"external_ids:hostname="+h.node.Name, "external_ids:ovn-bridge-datapath-type=netdev",
			"other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1"); err != nil {
			return err
		}
		h.Switch, err = h.plane.start("ovs-vswitchd", "ovs-vswitchd", "-vconsole:warn", "-vsyslog:off", "-vfile:off", "--disable-system",
			"--pidfile="+filepath.Join(runOVS, "ovs-vswitchd.pid"), "unix:"+socket)
		if err != nil {
			return err
		}
		return h.Switch.ready(ctx, func() error { return tool("ovs-appctl", "version") })
	})
}

// tool runs a tool of Open vSwitch.
func tool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// Connect does what ovn-controller does on a new node: it connects the external
// bridge, and reports that the management port has its flows, as soon as the agent has created
// both. Separate processes wait for that.
func (h *Host) Connect() error {
	peer, patch := topology.PatchPeer(ExternalBridge, h.node.Name), topology.PatchPort(ExternalBridge, h.node.Name)
	_, err := h.plane.startOnce("ovn-controller-patch", "ovs-vsctl", "--no-wait", "wait-until", "Bridge", topology.IntegrationBridge, "--",
		"wait-until", "Interface", patch, "--", "add-port", topology.IntegrationBridge, peer, "--",
		"set", "Interface", peer, "type=patch", "options:peer="+patch)
	if err != nil {
		return err
	}
	_, err = h.plane.startOnce("ovn-controller-port", "ovs-vsctl", "--no-wait", "wait-until", "Interface", topology.ManagementPort, "--",
		"set", "Interface", topology.ManagementPort, "external_ids:ovn-installed=true")
	return err
}

// startOnce runs a program that is expected to end by itself.
func (p *Plane) startOnce(name, program string, args ...string) (*Process, error) {
	return start(p.config.Dir, name, program, args...)
}

// Agent is a running agent.
type Agent struct {
	*Served
	Conf   string // the CNI configuration file, which exists when the node accepts pods
	Socket string // for requests to attach a pod
}

// StartAgent starts the agent of the node without waiting until it is ready.
func (h *Host) StartAgent() (*Agent, error) {
	conf := h.plane.path("cni")
	a := &Agent{Conf: filepath.Join(conf, cni.ConfFileName), Socket: cni.DefaultSocket}
	for _, path := range []string{a.Conf, a.Socket} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return nil, err
	}
	address := agentAddr.Addr().String() + ":9410"
	args := append([]string{
		"--init-node", h.node.Name, "--k8s-kubeconfig=" + h.plane.path("agent.kubeconfig"),
		"--cluster-subnets=" + h.plane.config.PodRange.String() + "/23", "--k8s-service-cidrs=" + h.plane.config.ServiceRange.String(),
		"--gateway-mode=shared", "--gateway-interface=" + uplink, "--encap-ip=" + h.node.Primary[0].Addr().String(),
		"--nodeport", "--enable-egress-ip", "--enable-egress-service", "--enable-multi-external-gateway",
		"--nb-address=unix:" + h.plane.path("nb.sock"), "--sb-address=unix:" + h.plane.path("sb.sock"),
		"--cni-conf-dir=" + conf, "--metrics-bind-address=" + address, "--metrics-insecure", "--metrics-enable-pprof", "--loglevel=2",
	}, h.plane.config.AgentArgs...)
	err := h.inside(func() error {
		process, err := h.plane.start("ovnkube-node", h.plane.config.Ovnkube, args...)
		a.Served = &Served{process, h.plane, address}
		return err
	})
	return a, err
}

// Traffic returns the bytes that the agent has sent to the API server, and received from it.
func (h *Host) Traffic() (sent, received int64) {
	link, err := netlink.LinkByName(apiPeer)
	if err != nil || link.Attrs().Statistics == nil {
		return 0, 0
	}
	return int64(link.Attrs().Statistics.RxBytes), int64(link.Attrs().Statistics.TxBytes)
}
