package link

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// SetSysctl sets a kernel parameter, given by its path below /proc/sys, e.g. "net/ipv4/ip_forward".
// It does not write a value that is already set, so a read-only /proc/sys with the right values is
// not a problem.
func SetSysctl(name, value string) error {
	path := filepath.Join("/proc/sys", name)
	have, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read sysctl %s: %w", name, err)
	}
	if strings.TrimSpace(string(have)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
}

// Sysctl returns a parameter of one link and family; the error is fs.ErrNotExist if there is no
// such link. The name of the link may contain dots.
func Sysctl(f topology.Family, link, parameter string) (string, error) {
	name := SysctlName(f, link, parameter)
	value, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(value)), nil
}

// SetLinkSysctl sets a parameter of one link and family, e.g. rp_filter. The
// name of the link may contain dots.
func SetLinkSysctl(f topology.Family, link, parameter, value string) error {
	return SetSysctl(SysctlName(f, link, parameter), value)
}

// SysctlName returns the name of a parameter of one link and family.
func SysctlName(f topology.Family, link, parameter string) string {
	return fmt.Sprintf("net/ipv%d/conf/%s/%s", uint8(f), link, parameter)
}

// HasIPv6 reports whether the kernel supports IPv6 at all.
func HasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}
