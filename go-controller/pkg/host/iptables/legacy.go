package iptables

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// soGetInfo is IPT_SO_GET_INFO, and IP6T_SO_GET_INFO as well, of getsockopt(2).
const soGetInfo = 64

// info is struct ipt_getinfo of the kernel.
type info struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	entries    uint32
	size       uint32
}

// Legacy reports whether rules go to the kernel's own tables, of whose changes it tells
// nobody, and not to nftables.
func (w *Writer) Legacy() (bool, error) {
	path, err := exec.LookPath("iptables")
	if err != nil {
		return false, fmt.Errorf("find iptables: %w", err)
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return !strings.Contains(string(version), "nf_tables"), nil
}

// LegacyState returns what is cheap to know of the tables with declared chains: it is
// another one where rules or chains were added or deleted. What is replaced by something
// of the same length it does not show.
func (w *Writer) LegacyState() (string, error) {
	var out strings.Builder
	var errs []error
	for _, p := range slices.SortedFunc(maps.Keys(w.declared), func(a, b place) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		i, err := tableInfo(p)
		errs = append(errs, err)
		fmt.Fprintln(&out, p, i.entries, i.size, i.hookEntry, i.underflow)
	}
	return out.String(), errors.Join(errs...)
}

func tableInfo(p place) (info, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if p.family == topology.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	var i info
	copy(i.name[:], p.table)
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return i, fmt.Errorf("ask for table %s of %s: %w", p.table, p.family, err)
	}
	defer func() { _ = unix.Close(fd) }()
	size := uint32(unsafe.Sizeof(i))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), soGetInfo,
		uintptr(unsafe.Pointer(&i)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return i, fmt.Errorf("ask for table %s of %s: %w", p.table, p.family, errno)
	}
	return i, nil
}
