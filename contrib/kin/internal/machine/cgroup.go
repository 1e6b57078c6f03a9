package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one tree of control groups. Version 1 has one for each
// controller, version 2 has one for all; a hybrid machine has both.
type hierarchy struct {
	mount string
	v2    bool
	// options mount it again, version 1 only: "cpu,cpuacct", "name=systemd".
	options string
}

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies lists the mounted hierarchies, each once.
func hierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseHierarchies(string(text)), nil
}

func parseHierarchies(mountinfo string) []hierarchy {
	var list []hierarchy
	seen := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		if !ok || len(before) < 5 || len(after) < 3 || seen[before[4]] {
			continue
		}
		mount := before[4]
		if mount != cgroupRoot && filepath.Dir(mount) != cgroupRoot {
			continue
		}
		switch after[0] {
		case "cgroup2":
			list = append(list, hierarchy{mount: mount, v2: true})
		case "cgroup":
			list = append(list, hierarchy{mount: mount, options: mountOptions(after[2])})
		default:
			continue
		}
		seen[mount] = true
	}
	return list
}

// mountOptions returns those options of a version 1 mount that identify the hierarchy.
func mountOptions(options string) string {
	var kept []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case option == "rw", option == "ro", option == "xattr", option == "clone_children":
		case strings.HasPrefix(option, "release_agent="):
		default:
			kept = append(kept, option)
		}
	}
	return strings.Join(kept, ",")
}

// joinCgroup creates a group in every hierarchy and moves a process there; 0 is
// the current process.
func joinCgroup(path string, pid int) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range trees {
		dir := h.mount
		for part := range strings.SplitSeq(path, "/") {
			if h.v2 {
				delegate(dir)
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make control group: %w", err)
			}
			if !h.v2 {
				inheritCpuset(parent, dir)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("join control group %s: %w", dir, err)
		}
		if h.v2 {
			// This is possible only after the process has left the parent group.
			delegate(filepath.Dir(dir))
		}
	}
	return nil
}

// weighCgroup sets the CPU weight of the first group of a path; the default of a group is
// 100. Hierarchies without the CPU controller have no such file.
func weighCgroup(path string, weight int) error {
	if weight == 0 {
		return nil
	}
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	top, _, _ := strings.Cut(path, "/")
	for _, h := range trees {
		// In version 1 the minimum is 2 and the default 1024.
		file, value := "cpu.shares", max(weight*1024/100, 2)
		if h.v2 {
			file, value = "cpu.weight", weight
		}
		file = filepath.Join(h.mount, top, file)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(value)), 0); err != nil {
			return fmt.Errorf("weigh control group: %w", err)
		}
	}
	return nil
}

// delegate enables a version 2 group's controllers for its children, one by
// one, so that a controller that the machine does not have does not prevent the others.
//
// It skips a group that contains processes: enabling the threaded controllers
// would turn it into one whose children no process can join. The root group is an
// exception; it is the only group without a type.
func delegate(dir string) {
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil && len(procs) > 0 {
		return
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(text)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}

// inheritCpuset fills in what a new version 1 cpuset lacks, without which
// no process can join it. Other hierarchies have no such files.
func inheritCpuset(parent, dir string) {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		if value, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, file), value, 0)
		}
	}
}

// mountCgroups shows this cgroup namespace's part of every hierarchy below a
// fresh /sys. trees and links were read before /sys was covered.
func mountCgroups(trees []hierarchy, links map[string]string) error {
	if len(trees) == 1 && trees[0].v2 && trees[0].mount == cgroupRoot {
		return mount("cgroup2", cgroupRoot, "cgroup2", 0, "")
	}
	if err := mount("cgroup", cgroupRoot, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, h := range trees {
		if err := os.Mkdir(h.mount, 0o755); err != nil {
			return fmt.Errorf("make control group mount point: %w", err)
		}
		kind := "cgroup"
		if h.v2 {
			kind = "cgroup2"
		}
		if err := mount(kind, h.mount, kind, 0, h.options); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(cgroupRoot, name)); err != nil {
			return fmt.Errorf("link control group: %w", err)
		}
	}
	return nil
}

// cgroupLinks returns links such as cpu -> cpu,cpuacct.
func cgroupLinks() map[string]string {
	links := map[string]string{}
	entries, _ := os.ReadDir(cgroupRoot)
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(cgroupRoot, e.Name())); err == nil {
			links[e.Name()] = target
		}
	}
	return links
}

// removeTimeout is how long processes of a dead machine may take to end.
const removeTimeout = 15 * time.Second

// RemoveCgroup kills whatever still runs in a group and below it, and removes the group
// from every hierarchy. It is no error if the group does not exist.
func RemoveCgroup(path string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(removeTimeout)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for _, h := range trees {
		top := filepath.Join(h.mount, path)
		for {
			err := removeTree(top)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove control group: %w", err)
			}
			killTree(top)
			<-again.C
		}
	}
	return nil
}

// removeTree removes a tree of groups, deepest first.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// killTree kills the processes of a tree of groups. What it cannot read or kill is
// gone already, or is retried at the next attempt.
func killTree(dir string) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			killTree(filepath.Join(dir, e.Name()))
		}
	}
}
