package machine

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// bind mounts source at target, which is created if it does not exist.
func bind(b Bind) error {
	info, err := os.Stat(b.Source)
	if err != nil {
		return fmt.Errorf("find what to mount: %w", err)
	}
	if info.IsDir() {
		err = os.MkdirAll(b.Target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(b.Target), 0o755); err == nil {
		err = touch(b.Target)
	}
	if err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := mount(b.Source, b.Target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if b.ReadOnly {
		return mount("", b.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

func touch(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// mountAll sets up the machine's mounts in this mount namespace.
func mountAll(s Spec) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	links := cgroupLinks()
	// Mounts made here must not be visible outside, and what is unmounted outside must
	// be unmounted here too.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	if err := mountKernel(trees, links); err != nil {
		return err
	}
	if s.Disk != "" {
		if err := mountDisk(s); err != nil {
			return err
		}
	}
	if err := mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"/run/kin", "/run/lock", "/run/netns", "/run/openvswitch", "/run/ovn"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("fill /run: %w", err)
		}
	}
	if err := mountKernelFiles(); err != nil {
		return err
	}
	// Later mounts are propagated to pods. This comes last, so that none of the
	// mounts above become peers that share what is mounted below them.
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// diskDirs are the directories that a machine does not share.
var diskDirs = []string{"etc", "opt", "tmp", "var"}

// mountDisk mounts the disk's directories. The disk itself is below one of
// the directories that it covers, so bind mounts are made on the disk first, and the
// disk's directories are opened before the first one is covered.
func mountDisk(s Spec) error {
	for _, b := range s.Binds {
		b.Target = filepath.Join(s.Disk, b.Target)
		if err := bind(b); err != nil {
			return err
		}
	}
	opened := map[string]*os.File{}
	for _, name := range diskDirs {
		dir, err := os.OpenFile(filepath.Join(s.Disk, name), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open disk: %w", err)
		}
		defer dir.Close()
		opened[name] = dir
	}
	for _, name := range diskDirs {
		source := fmt.Sprintf("/proc/self/fd/%d", opened[name].Fd())
		if err := mount(source, "/"+name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return nil
}

func mountKernel(trees []hierarchy, links map[string]string) error {
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := mountCgroups(trees, links); err != nil {
		return err
	}
	if err := mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return err
	}
	// These belong to the machine that kin runs on; a kubelet would change them.
	for _, dir := range []string{"/proc/sys/fs", "/proc/sys/kernel", "/proc/sys/vm"} {
		if err := bind(Bind{Source: dir, Target: dir, ReadOnly: true}); err != nil {
			return err
		}
	}
	return nil
}

// ownKernelFiles returns global kernel files of which a machine
// gets its own copy: a kubelet requires certain values of the first five, and
// a new boot id shows that the machine has booted.
func ownKernelFiles() (map[string]string, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("make boot id: %w", err)
	}
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
		"kernel/random/boot_id":     fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
	}, nil
}

// mountKernelFiles puts those copies, which are files in /run, in place.
func mountKernelFiles() error {
	files, err := ownKernelFiles()
	if err != nil {
		return err
	}
	for name, value := range files {
		copied := filepath.Join("/run/kin/sys", name)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return fmt.Errorf("make kernel file: %w", err)
		}
		if err := os.WriteFile(copied, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("write kernel file: %w", err)
		}
		if err := mount(copied, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}
