package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/build"
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

// sbin is searched as well: an account's PATH need not have it.
var sbin = []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// checkMachine says what this machine lacks.
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
