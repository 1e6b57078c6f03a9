package machine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// hostOnly are parts of /etc that are this machine's secrets or identity and
// have no place on a node.
var hostOnly = []string{
	"shadow", "shadow-", "gshadow", "gshadow-", "ssh", "ssl/private", "sudoers", "sudoers.d",
	"machine-id", "hostname", "hosts", "resolv.conf", "fstab",
	"cni", "containerd", "kubernetes", "openvswitch", "ovn",
}

// MakeDisk makes an empty machine's disk: /etc as it is here, without secrets
// and identity, and an empty /var, /opt and /tmp.
func MakeDisk(disk, hostname, hosts string) error {
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	etc := filepath.Join(disk, "etc")
	if out, err := exec.Command("cp", "-a", "/etc/.", etc).CombinedOutput(); err != nil {
		return fmt.Errorf("copy /etc: %w: %s", err, out)
	}
	for _, name := range hostOnly {
		if err := os.RemoveAll(filepath.Join(etc, name)); err != nil {
			return fmt.Errorf("clear /etc: %w", err)
		}
	}
	for _, dir := range []string{
		"etc/openvswitch", "etc/ovn", "etc/kubernetes", "etc/cni/net.d", "opt/cni/bin", "tmp",
		"var/cache", "var/lib/openvswitch", "var/lib/ovn", "var/log/kin", "var/log/openvswitch", "var/log/ovn", "var/tmp", "var/spool",
	} {
		if err := os.MkdirAll(filepath.Join(disk, dir), 0o755); err != nil {
			return fmt.Errorf("make disk: %w", err)
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(disk, dir), 0o1777); err != nil {
			return fmt.Errorf("make disk: %w", err)
		}
	}
	for name, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		if err := os.Symlink(target, filepath.Join(disk, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make disk: %w", err)
		}
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("make machine id: %w", err)
	}
	for name, text := range map[string]string{
		"machine-id": fmt.Sprintf("%x\n", id),
		"hostname":   hostname + "\n",
		"hosts":      hosts,
		// Nothing outside is there to be asked.
		"resolv.conf": "",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("fill /etc: %w", err)
		}
	}
	return nil
}
