// Package table finds routing tables by what users call them: a number, a name in iproute2's
// rt_tables, or the VRF device that they belong to.
//
// It only reads. Callers: the node side of EgressServices.
package table

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// HostUsr is where the host's /usr/share and /usr/lib are mounted in a container, whose own ones
// belong to the image.
const HostUsr = "/host/usr"

// DefaultDirs are the directories of iproute2's names; later ones override earlier ones. In a
// container, /etc/iproute2 also is the host's.
var DefaultDirs = []string{
	"/usr/lib/iproute2", "/usr/share/iproute2", HostUsr + "/lib/iproute2", HostUsr + "/share/iproute2", "/etc/iproute2",
}

// builtin are the names that need no file.
var builtin = map[string]int{"default": unix.RT_TABLE_DEFAULT, "main": unix.RT_TABLE_MAIN, "local": unix.RT_TABLE_LOCAL}

// Finder finds tables of the caller's network namespace.
type Finder struct {
	// Dirs are the directories that contain rt_tables and rt_tables.d.
	Dirs []string
}

// Find returns the table that network refers to. ok is false if there is no such table, or if it
// has no route in either family.
func (f Finder) Find(network string) (t host.RoutingTable, ok bool, err error) {
	if t, ok, err = f.table(network); !ok || err != nil {
		return t, false, err
	}
	routed, err := routedFamilies(t.Number)
	if len(routed) == 0 || err != nil {
		return t, false, err
	}
	for _, f := range topology.Families {
		if !slices.Contains(routed, f) {
			t.Without = f
		}
	}
	if !t.VRF {
		t.VRF, err = ofVRF(t.Number)
	}
	return t, err == nil, err
}

// ofVRF reports whether a table belongs to a VRF device.
func ofVRF(number int) (bool, error) {
	links, err := link.Dump(netlink.LinkList)
	if err != nil {
		return false, fmt.Errorf("list links: %w", err)
	}
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		v, is := l.(*netlink.Vrf)
		return is && int(v.Table) == number
	}), nil
}

func (f Finder) table(network string) (t host.RoutingTable, ok bool, err error) {
	if n, err := number(network); err == nil {
		return host.RoutingTable{Number: n}, n > 0, nil
	}
	// A VRF device exists now; a name may be a leftover.
	if l, err := netlink.LinkByName(network); err == nil {
		if vrf, is := l.(*netlink.Vrf); is {
			return host.RoutingTable{Number: int(vrf.Table), VRF: true}, true, nil
		}
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return t, false, fmt.Errorf("look up link %s: %w", network, err)
	}
	names, err := f.names()
	if err != nil {
		return t, false, err
	}
	t.Number, ok = names[network]
	return t, ok, nil
}

// names reads the names of tables.
func (f Finder) names() (map[string]int, error) {
	names := maps.Clone(builtin)
	for _, dir := range f.Dirs {
		files := []string{filepath.Join(dir, "rt_tables")}
		more, err := filepath.Glob(filepath.Join(dir, "rt_tables.d", "*.conf"))
		if err != nil {
			return nil, fmt.Errorf("list names of routing tables: %w", err)
		}
		more = slices.DeleteFunc(more, func(file string) bool { return strings.HasPrefix(filepath.Base(file), ".") })
		slices.Sort(more)
		for _, file := range append(files, more...) {
			if err := read(file, names); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read names of routing tables: %w", err)
			}
		}
	}
	return names, nil
}

// number reads a number, in decimal or hex.
func number(text string) (int, error) {
	base := 10
	if digits, is := strings.CutPrefix(strings.ToLower(text), "0x"); is {
		text, base = digits, 16
	}
	n, err := strconv.ParseUint(text, base, 32)
	return int(n), err
}

// read adds the names in a file: each line has a number and a name. The rest of a line is ignored,
// as by ip.
func read(file string, names map[string]int) error {
	r, err := os.Open(file)
	if err != nil {
		return err
	}
	defer r.Close()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) < 2 {
			continue
		}
		if n, err := number(fields[0]); err == nil && n > 0 {
			names[fields[1]] = n
		}
	}
	return nil
}

// routedFamilies returns the families of which a table has a route.
func routedFamilies(number int) ([]topology.Family, error) {
	var routed []topology.Family
	for f, family := range map[topology.Family]int{topology.IPv4: netlink.FAMILY_V4, topology.IPv6: netlink.FAMILY_V6} {
		routes, err := link.Dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: number}, netlink.RT_FILTER_TABLE)
		})
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list routes of table %d: %w", number, err)
		}
		if len(routes) > 0 {
			routed = append(routed, f)
		}
	}
	return routed, nil
}
