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

// soGetInfo is the getsockopt(2) option IPT_SO_GET_INFO, and also IP6T_SO_GET_INFO.
const soGetInfo = 64

// info is the kernel's struct ipt_getinfo.
type info struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	entries    uint32
	size       uint32
}

// Legacy reports whether iptables writes to the kernel's legacy tables, which send no notifications
// of changes, instead of nftables.
func (w *Writer) Legacy() (bool, error) {
	path, err := exec.LookPath("iptables")
	if err != nil {
		return false, fmt.Errorf("find iptables: %w", err)
	}
	return (&programs{path: path}).legacy()
}

// LegacyState returns a cheap summary of the tables with declared chains: it changes when rules or
// chains are added or deleted. It does not show that a rule was replaced by another one of the same
// length.
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
