package machine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// notCopied are parts of /etc that are not copied to a node's disk: this
// machine's secrets and identity, files that a node has its own version of, and what only a
// complete system needs.
var notCopied = []string{
	"shadow", "shadow-", "gshadow", "gshadow-", "ssh", "sudoers", "sudoers.d",
	"machine-id", "hostname", "hosts", "resolv.conf", "fstab", "mtab",
	"cni", "containerd", "kubernetes", "openvswitch", "ovn",
	"apt", "fonts", "systemd", "X11", "xdg",
	"alternatives", "ssl",
}

// EtcBinds are large parts of /etc that are bind-mounted into machines instead of copied.
func EtcBinds() []Bind {
	var binds []Bind
	for _, dir := range []string{"/etc/alternatives", "/etc/ssl"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			binds = append(binds, Bind{Source: dir, Target: dir, ReadOnly: true})
		}
	}
	return binds
}

// MakeDisk creates the disk of a new machine: a copy of much of /etc, and an
// empty /var, /opt and /tmp.
func MakeDisk(disk, hostname, hosts string) error {
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return fmt.Errorf("make disk: %w", err)
	}
	etc := filepath.Join(disk, "etc")
	if err := copyTree("/etc", etc, notCopied); err != nil {
		return fmt.Errorf("copy /etc: %w", err)
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
		// There is no outside name server.
		"resolv.conf": "",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("fill /etc: %w", err)
		}
	}
	return nil
}

// copyTree copies directories, files and symbolic links; skip lists entries of
// the top directory to leave out. Anything else is left out, as are files that disappear while
// they are being copied.
func copyTree(from, to string, skip []string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if slices.Contains(skip, inside) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		err = copyEntry(path, filepath.Join(to, inside), entry)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func copyEntry(from, to string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return os.MkdirAll(to, info.Mode().Perm())
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case info.Mode().IsRegular():
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, info.Mode().Perm())
	}
	return nil
}
