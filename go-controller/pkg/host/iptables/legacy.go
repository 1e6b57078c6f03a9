package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Options of getsockopt(2): IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES, and also those of ip6tables.
const (
	soGetInfo    = 64
	soGetEntries = 65
)

// entriesAttempts is how often tableEntries tries to read a table that others change.
const entriesAttempts = 10

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
	var i info
	copy(i.name[:], p.table)
	err := ask(p, soGetInfo, unsafe.Pointer(&i), uint32(unsafe.Sizeof(i)))
	return i, err
}

// ask gets a socket option about a table, in which answer has the question.
func ask(p place, option int, answer unsafe.Pointer, size uint32) error {
	domain, level := unix.AF_INET, unix.SOL_IP
	if p.family == topology.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("ask for table %s of %s: %w", p.table, p.family, err)
	}
	defer func() { _ = unix.Close(fd) }()
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(answer), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return fmt.Errorf("ask for table %s of %s: %w", p.table, p.family, errno)
	}
	return nil
}

// entriesHeader is the size of the kernel's struct ipt_get_entries, in front of the rules of a table: the name of the table and
// the size of the rules.
const entriesHeader = 40

// tableEntries returns the rules of a table as the kernel has them.
func tableEntries(p place) ([]byte, error) {
	for attempt := 1; ; attempt++ {
		i, err := tableInfo(p)
		if err != nil {
			return nil, err
		}
		b := make([]byte, entriesHeader+int(i.size))
		copy(b[:len(i.name)], p.table)
		binary.NativeEndian.PutUint32(b[len(i.name):], i.size)
		err = ask(p, soGetEntries, unsafe.Pointer(&b[0]), uint32(len(b)))
		if err == nil {
			return b[entriesHeader:], nil
		}
		if !errors.Is(err, unix.EAGAIN) || attempt == entriesAttempts { // EAGAIN: the size has changed
			return nil, err
		}
	}
}

// chainName finds the names of our chains among rules. A chain begins with a target with the name ERROR, in a field of 29 bytes, and a
// revision of 0, and then has its own name.
var chainName = regexp.MustCompile(`ERROR\x00{25}(` + host.ChainPrefix + `[^\x00]*)\x00`)

// leftInLegacy fails if the kernel's legacy tables still have chains of ours, as on a host that has no legacy iptables any more.
func leftInLegacy(f topology.Family) error {
	file := "/proc/thread-self/net/ip_tables_names" // asking for a table that does not exist would create it
	if f == topology.IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) { // the kernel has no legacy iptables
		return nil
	}
	if err != nil {
		return fmt.Errorf("list legacy tables of %s: %w", f, err)
	}
	var ours []string
	for _, table := range strings.Fields(string(names)) {
		entries, err := tableEntries(place{f, table})
		if err != nil {
			return err
		}
		for _, found := range chainName.FindAllSubmatch(entries, -1) {
			ours = append(ours, table+" "+string(found[1]))
		}
	}
	if len(ours) == 0 {
		return nil
	}
	return fmt.Errorf("these chains are still in legacy tables; install %s-legacy if the host does not have it: %s", basename(f), strings.Join(ours, ", "))
}
