package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/build"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
)

// needed lists the programs of the system that a cluster uses, by the Debian
// package they come in.
var needed = map[string][]string{
	"openvswitch-switch": {"ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"},
	"openvswitch-common": {"ovs-appctl", "ovsdb-tool"},
	"ovn-central":        {"ovn-northd"},
	"ovn-common":         {"ovn-nbctl", "ovn-sbctl"},
	"ovn-host":           {"ovn-controller"},
	"containerd":         {"containerd", "containerd-shim-runc-v2", "ctr"},
	"runc":               {"runc"},
	"iptables":           {"iptables", "ip6tables", "iptables-restore"},
	"nftables":           {"nft"},
	"ethtool":            {"ethtool"},
	"conntrack":          {"conntrack"},
	"iproute2":           {"ip"},
	"busybox-static":     {build.Busybox},
	"util-linux":         {"mount"},
	"procps":             {"sysctl"},
}

// sbin is searched as well, since it may be missing from a user's PATH.
var sbin = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// checkMachine returns an error that lists what this machine lacks.
func (c *Cluster) checkMachine() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("kin makes namespaces and needs to be root")
	}
	var missing, packages []string
	for pkg, programs := range needed {
		for _, program := range programs {
			if !installed(program) {
				missing = append(missing, program)
				packages = append(packages, pkg)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		slices.Sort(packages)
		return fmt.Errorf("these programs are missing: %s\ninstall them with: apt-get install -y --no-install-recommends %s",
			strings.Join(missing, ", "), strings.Join(slices.Compact(packages), " "))
	}
	if err := c.checkInotify(); err != nil {
		return err
	}
	if !c.Ovnkube {
		return nil
	}
	for _, name := range []string{"ovnkube", "ovn-k8s-cni-overlay"} {
		if _, err := os.Stat(filepath.Join(c.Paths.OvnkubeBin, name)); err != nil {
			return fmt.Errorf("find %s: %w; build it, name its directory with --ovnkube-bin-dir, or do without with --no-ovnkube", name, err)
		}
	}
	return nil
}

// chooseDatapath returns the datapath of a cluster. check returns an error if the
// kernel lacks something for its own datapath.
func chooseDatapath(wanted string, check func() error) (string, error) {
	if wanted == config.DatapathUserspace {
		return wanted, nil
	}
	err := check()
	switch {
	case err == nil:
		return config.DatapathKernel, nil
	case wanted == config.DatapathAuto:
		return config.DatapathUserspace, nil
	}
	return wanted, fmt.Errorf("datapath: %s: %w\nload the modules openvswitch and geneve if the kernel has them, or use --datapath %s",
		wanted, err, config.DatapathUserspace)
}

// Numbers of inotify instances that the daemons of a node and of the control plane use.
const (
	inotifyNode         = 8
	inotifyControlPlane = 8
)

// checkInotify checks how many inotify instances the kernel allows a user: a kubelet that
// gets none fails in ways that are hard to diagnose.
func (c *Cluster) checkInotify() error {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return fmt.Errorf("read limit of inotify instances: %w", err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read limit of inotify instances: %w", err)
	}
	open, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return fmt.Errorf("count inotify instances: %w", err)
	}
	used := 0
	for _, fd := range open {
		if target, err := os.Readlink(fd); err == nil && target == "anon_inode:inotify" {
			used++
		}
	}
	if need := c.Config.Nodes*inotifyNode + inotifyControlPlane; used+need > limit {
		return fmt.Errorf("the kernel allows %d inotify instances, %d are in use and this cluster needs %d\nallow more with: sysctl -w fs.inotify.max_user_instances=%d",
			limit, used, need, 2*(used+need))
	}
	return nil
}

func installed(program string) bool {
	if filepath.IsAbs(program) {
		_, err := os.Stat(program)
		return err == nil
	}
	if _, err := exec.LookPath(program); err == nil {
		return true
	}
	return slices.ContainsFunc(sbin, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, program))
		return err == nil
	})
}
