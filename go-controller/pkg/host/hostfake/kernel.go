package hostfake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Kernel is a host.Kernel in memory.
type Kernel[K comparable, V any] struct {
	// Fail, if set, is called before each "list", "add" and "delete"; an error makes the operation
	// fail without effect.
	Fail func(op string, key K) error
	// Overlap is the answer of MayOverlap.
	Overlap bool

	mu      sync.Mutex
	objects map[K]V
	writes  int
}

// NewKernel returns a Kernel that holds objects, as if an earlier run had left them.
func NewKernel[K comparable, V any](objects map[K]V) *Kernel[K, V] {
	k := &Kernel[K, V]{objects: maps.Clone(objects)}
	if k.objects == nil {
		k.objects = map[K]V{}
	}
	return k
}

func (k *Kernel[K, V]) fails(op string, key K) error {
	if k.Fail == nil {
		return nil
	}
	return k.Fail(op, key)
}

// List implements host.Kernel.
func (k *Kernel[K, V]) List(context.Context) (map[K]V, error) {
	var none K
	if err := k.fails("list", none); err != nil {
		return nil, err
	}
	return k.Objects(), nil
}

// Add implements host.Kernel.
func (k *Kernel[K, V]) Add(_ context.Context, key K, value V) error {
	if err := k.fails("add", key); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[key] = value
	k.writes++
	return nil
}

// Delete implements host.Kernel.
func (k *Kernel[K, V]) Delete(_ context.Context, key K, _ V) error {
	if err := k.fails("delete", key); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.objects, key)
	k.writes++
	return nil
}

// MayOverlap implements host.Overlapper.
func (k *Kernel[K, V]) MayOverlap() bool { return k.Overlap }

// Objects returns all objects.
func (k *Kernel[K, V]) Objects() map[K]V {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.objects)
}

// Put changes an object as if somebody else did it; it is not counted.
func (k *Kernel[K, V]) Put(key K, value V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[key] = value
}

// Drop removes an object as if somebody else did it; it is not counted.
func (k *Kernel[K, V]) Drop(key K) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.objects, key)
}

// Writes returns how many objects were added or deleted so far.
func (k *Kernel[K, V]) Writes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

// DumpIPRules prints rules as "ip rule" and "ip -6 rule" do, one family after
// the other.
func DumpIPRules(rules map[host.IPRule]struct{}) string {
	keys := slices.SortedFunc(maps.Keys(rules), func(a, b host.IPRule) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Priority, b.Priority),
			a.Src.Addr().Compare(b.Src.Addr()), a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.SrcPort, b.SrcPort), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Mark, b.Mark))
	})
	var out strings.Builder
	for _, r := range keys {
		fmt.Fprintf(&out, "%d:\tfrom %s", r.Priority, selector(r.Src))
		if r.Dst.IsValid() {
			fmt.Fprintf(&out, " to %s", selector(r.Dst))
		}
		if r.Mark != 0 {
			fmt.Fprintf(&out, " fwmark %#x", r.Mark)
		}
		if r.Protocol != "" {
			fmt.Fprintf(&out, " ipproto %s", r.Protocol)
		}
		if r.SrcPort != 0 {
			fmt.Fprintf(&out, " sport %d", r.SrcPort)
		}
		fmt.Fprintf(&out, " lookup %s\n", tableName(r.Table))
	}
	return out.String()
}

// selector prints the addresses that a rule matches.
func selector(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return "all"
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return p.String()
}

// DumpRoutes prints routes as "ip route show table all" does, without the attributes that only the
// kernel knows.
func DumpRoutes(routes map[host.Route]host.Hop) string {
	keys := slices.SortedFunc(maps.Keys(routes), func(a, b host.Route) int {
		return cmp.Or(cmp.Compare(topology.FamilyOf(a.Dst.Addr()), topology.FamilyOf(b.Dst.Addr())),
			cmp.Compare(a.Table, b.Table), a.Dst.Addr().Compare(b.Dst.Addr()),
			cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), cmp.Compare(a.Link, b.Link))
	})
	var out strings.Builder
	for _, r := range keys {
		hop, dst := routes[r], r.Dst.String()
		switch {
		case r.Dst.Bits() == 0:
			dst = "default"
		case r.Dst.IsSingleIP():
			dst = r.Dst.Addr().String()
		}
		if hop.Drop {
			out.WriteString("blackhole ")
		}
		out.WriteString(dst)
		if hop.Via.IsValid() {
			fmt.Fprintf(&out, " via %s", hop.Via)
		}
		if r.Link != "" {
			fmt.Fprintf(&out, " dev %s", r.Link)
		}
		if r.Table != 0 && r.Table != 254 {
			fmt.Fprintf(&out, " table %d", r.Table)
		}
		fmt.Fprintf(&out, " proto %d", host.Protocol)
		if hop.Src.IsValid() {
			fmt.Fprintf(&out, " src %s", hop.Src)
		}
		if hop.MTU != 0 {
			fmt.Fprintf(&out, " mtu %d", hop.MTU)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// DumpAddresses prints addresses as "LINK ADDRESS/BITS" lines, with "deprecated" appended where
// that applies.
func DumpAddresses(addrs map[host.Address]host.AddressUse) string {
	keys := slices.SortedFunc(maps.Keys(addrs), func(a, b host.Address) int {
		return cmp.Or(strings.Compare(a.Link, b.Link), a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	var out strings.Builder
	for _, a := range keys {
		fmt.Fprintf(&out, "%s %s", a.Link, a.Prefix)
		if addrs[a].NotPreferred {
			out.WriteString(" deprecated")
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func tableName(n int) string {
	switch n {
	case 255:
		return "local"
	case 0, 254:
		return "main"
	case 253:
		return "default"
	}
	return fmt.Sprint(n)
}
